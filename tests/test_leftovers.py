"""Unfinished files of processes that were killed: the next start removes them, and none of a process that runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvchat.backend.journal import write_json
from kvchat.config_write import replace_file
from kvchat.kv.folder import QUIET_SECONDS, PageFolder, write_file
from kvchat.leftovers import draft_prefix, tidy
from kvchat.paths import Paths

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def paths() -> Paths:
    return Paths.find(os.environ)


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def aged(path: Path, seconds: float) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def cut_short(write: Callable[[], object], monkeypatch: pytest.MonkeyPatch, dead: int) -> None:
    """As if the process had been killed before the new file has the name of the old one."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: dead)
        patched.setattr(Path, "replace", lambda *_: None)
        write()


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


WRITERS: dict[str, Callable[[Path], object]] = {
    "state/journal.json": lambda file: write_json(file.parent, file.name, {"a": 1}),
    "state/models.json": lambda file: replace_file(file, "{}"),
    "config.toml": lambda file: replace_file(file, "threads = 1\n"),
    "presets/kind.md": lambda file: replace_file(file, "Be kind.\n"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_being_written_goes(
    paths: Paths, home: Path, name: str, monkeypatch: pytest.MonkeyPatch, dead: int
) -> None:
    (home / name).parent.mkdir(exist_ok=True)
    cut_short(lambda: WRITERS[name](home / name), monkeypatch, dead)
    (left,) = [each for each in home.rglob("*") if each.is_file()]
    assert str(dead) in left.name
    assert tidy(paths) == []
    assert left.exists()  # just now: whoever writes it may be in another container
    aged(left, 11)
    assert tidy(paths) == []
    assert files(home) == set()


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_running_process_writes_stays(
    paths: Paths, home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / name).parent.mkdir(exist_ok=True)
    cut_short(lambda: WRITERS[name](home / name), monkeypatch, os.getppid())
    (left,) = [each for each in home.rglob("*") if each.is_file()]
    aged(left, HOUR)
    tidy(paths)
    assert left.exists()
    aged(left, 2 * DAY)  # its number is somebody else's by now
    tidy(paths)
    assert not left.exists()


def test_files_of_the_person_stay(paths: Paths, home: Path) -> None:
    names = ["config.toml", "config.toml.bak", "notes.tmp", ".hidden", ".swap.tmp", "draft.md", "draft-of-mine.md"]
    for name in names:
        (home / name).touch()
        aged(home / name, 2 * DAY)
    tidy(paths)
    assert files(home) == set(names)


def test_a_write_sweeps_its_own_folder(home: Path, dead: int) -> None:
    """What a fetch keeps about a file lies where no start looks."""
    left = home / f".model.gguf.part.json.{dead}.tmp"
    left.touch()
    aged(left, 11)
    replace_file(home / "other.part.json", "{}")
    assert files(home) == {"other.part.json"}


def test_a_draft_in_an_editor_is_told_and_kept_for_a_day(paths: Paths, dead: int) -> None:
    """It may hold words that were saved in the editor, and nowhere else."""
    paths.state_folder.mkdir()
    left = paths.state_folder / f"draft-{dead}-abc12_x.md"
    left.write_text("My words")
    aged(left, HOUR)
    (said,) = tidy(paths)
    assert str(left) in said
    assert left.exists()
    aged(left, 1.1 * DAY)
    assert tidy(paths) == []
    assert not left.exists()


def test_a_draft_that_is_being_edited_is_not_told(paths: Paths) -> None:
    paths.state_folder.mkdir()
    (paths.state_folder / f"{draft_prefix()}abc.md").touch()
    assert tidy(paths) == []


@pytest.mark.parametrize(
    "name",
    [
        "pins/abc-0123456789abcdef.json",
        "pages/0123456789abcdef/namespace.json",
        "pages/0123456789abcdef/ab/" + "ab" * 32,
    ],
)
def test_what_the_store_was_writing_goes(home: Path, name: str, monkeypatch: pytest.MonkeyPatch, dead: int) -> None:
    cut_short(lambda: write_file(home / "kv" / name, [memoryview(b"rows")]), monkeypatch, dead)
    (left,) = [each for each in home.rglob("*") if each.is_file()]
    folder = PageFolder(home / "kv")
    assert folder.remove_stale() == 0
    aged(left, QUIET_SECONDS + 1)
    assert folder.remove_stale() == 1
    assert files(home) == set()


def test_a_start_tidies(paths: Paths, home: Path, dead: int) -> None:
    """The program itself does, before it finds that it has no model."""
    paths.state_folder.mkdir()
    left = aged_file(paths.state_folder / f".journal.json.{dead}.tmp")
    for arguments in (["ask", "-m", "none", "Hello"], ["--plain", "-m", "none"]):
        aged_file(left)
        done = subprocess.run(
            [sys.executable, "-m", "kvchat", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
        assert done.returncode == 1
        assert not left.exists()


def aged_file(path: Path) -> Path:
    path.touch()
    return aged(path, 60)
