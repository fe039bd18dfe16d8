"""Files that are shown to a model: which are offered, what is read of them, what becomes of them in the prompt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_backend import turn_events
from textual.pilot import Pilot
from ui_fakes import Stage, room, sees, stage, toasts, until

from kvchat.backend.protocol import Forecast, Forecasted
from kvchat.errors import KvchatError
from kvchat.fenced import LARGEST, language_of
from kvchat.ui.chips import FileRef
from kvchat.ui.files import list_files
from kvchat.ui.files_reading import read_block, split_range

# ---------------------------------------------------------------------- which are offered


def names(folder: Path, most: int = 99) -> list[str]:
    return [file.name for file in list_files(folder, most).files]


def fill(folder: Path) -> None:
    for name in ("b.py", "a b.txt", "한글.md", "sub/deep/c.rs", "sub/z.txt", ".hidden", ".git2/x", "node_modules/m.js"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    (folder / "picture.png").write_text("no picture")  # by its name
    (folder / "data").write_bytes(b"ab\0c")  # by what is in it
    (folder / "empty").write_bytes(b"")
    (folder / "odd.txt\n").write_text("x")
    os.mkfifo(folder / "pipe.txt")
    (folder / "loop").symlink_to(folder)
    (folder / "dangling.txt").symlink_to(folder / "nowhere")


def test_a_folder_without_a_repository_is_walked(tmp_path: Path) -> None:
    fill(tmp_path)
    assert names(tmp_path) == ["a b.txt", "b.py", "empty", "odd.txt\n", "한글.md", "sub/z.txt", "sub/deep/c.rs"]
    assert names(tmp_path / "sub") == ["z.txt", "deep/c.rs"]
    assert {file.name: file.size for file in list_files(tmp_path).files}["b.py"] == 2


def test_there_is_a_most_of_files(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_text("")
    assert list_files(tmp_path, 20).whole
    listing = list_files(tmp_path, 19)
    assert (len(listing.files), listing.whole) == (19, False)


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert names(tmp_path / "nowhere") == []


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def test_git_says_what_is_ignored(tmp_path: Path) -> None:
    fill(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.rs\nnode_modules\nempty\n")
    git(tmp_path, "add", "b.py", "한글.md")
    (tmp_path / "한글.md").unlink()  # known to git and gone
    assert names(tmp_path) == ["a b.txt", "b.py", "odd.txt\n", "sub/z.txt"]
    assert names(tmp_path / "sub") == ["z.txt"]


def test_a_repository_starts_no_program(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    git(tmp_path, "init", "-q")
    monitor = tmp_path / "monitor.sh"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    monitor.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(monitor))
    assert "a.py" in names(tmp_path)
    assert not (tmp_path / "started").exists()


# ---------------------------------------------------------------------- what is read of them


def block(path: Path, first: int | None = None, last: int | None = None, name: str = "") -> str:
    return read_block(FileRef(str(path), name or path.name, first, last))


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("a.py", ("a.py", None, None)),
        ("a.py#10-40", ("a.py", 10, 40)),
        ("a.py#7", ("a.py", 7, 7)),
        ("a.py#L3-L5", ("a.py", 3, 5)),
        ("a.py#9-2", ("a.py", 2, 9)),
        ("a.py#0-2", ("a.py", 1, 2)),
        ("c#.txt", ("c#.txt", None, None)),
        ("a#1#2", ("a#1", 2, 2)),
    ],
)
def test_lines_behind_a_name(word: str, parts: tuple[str, int | None, int | None]) -> None:
    assert split_range(word) == parts


def test_a_file_is_a_block_with_language_and_name(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = '\x1b[31m'\r\n\r\n")
    assert block(file, name="src/x.py") == "```python src/x.py\na = 1\nb = ''\n```"


def test_a_fence_is_longer_than_all_in_it(tmp_path: Path) -> None:
    file = tmp_path / "x.md"
    file.write_text("````\ncode\n````\n")
    assert block(file) == "`````markdown x.md\n````\ncode\n````\n`````"


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("".join(f"{number}\n" for number in range(1, 11)))
    assert block(file, 9, 9) == "```text x.txt lines 9-9\n9\n```"
    assert block(file, 9, 40) == "```text x.txt lines 9-10\n9\n10\n```"
    with pytest.raises(KvchatError, match="10 lines"):
        block(file, 11, 12)


def test_the_name_is_foreign_text(tmp_path: Path) -> None:
    file = tmp_path / "a`b\n\x1b[2J.txt"
    file.write_text("x")
    assert block(file).splitlines()[0] == "```text a'b ␛[2J.txt"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\0b", "is no text"),
        (b"\xff\xfe\xfd", "no text in UTF-8"),
        (b" \n\n", "is empty"),
        (b"x" * (LARGEST + 1), "too large: more than 1 MiB"),
    ],
)
def test_what_cannot_go_out_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "f.txt"
    file.write_bytes(content)
    with pytest.raises(KvchatError, match=said) as caught:
        block(file)
    assert "@f.txt" in caught.value.message
    assert caught.value.hint


def test_lines_of_a_file_that_is_too_large_can_go_out(tmp_path: Path) -> None:
    file = tmp_path / "f.txt"
    file.write_text("line\n" * (LARGEST // 4))
    assert block(file, 1, 2) == "```text f.txt lines 1-2\nline\nline\n```"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path / "pipe", "no file"), (tmp_path, "no file"), (tmp_path / "gone", "not there")):
        with pytest.raises(KvchatError, match=said):
            block(path)
    (tmp_path / "closed").write_text("x")
    (tmp_path / "closed").chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(KvchatError, match="cannot be read"):
            block(tmp_path / "closed")


def test_languages() -> None:
    found = {name: language_of(name) for name in ("a/b.TS", "Makefile", "x", ".py", "c.unknown")}
    assert found == {"a/b.TS": "typescript", "Makefile": "makefile", "x": "text", ".py": "python", "c.unknown": "text"}


# ---------------------------------------------------------------------- in the prompt


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("a = 1\nb = 2\nc = 3\n")
    (tmp_path / "my notes.txt").write_text("remember\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def take(pilot: Pilot[None], word: str) -> None:
    """Type a name and take the first file that is offered, which is waited for."""
    await pilot.press(*f"@{word}", "tab")


def sent(on: Stage) -> str:
    return on.engine.requests[-1].messages[-1].text


async def test_a_file_is_chosen_and_goes_out_in_front_of_the_text(home: Path, folder: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await pilot.press(*"why ")
            await take(pilot, "x#2-3")
            await until(pilot, lambda: "~" in room(pilot).prompt.text)
            # the block below has 44 bytes, four are taken for a token
            assert room(pilot).prompt.text == "why @src/x.py#2-3 · ~11 tokens "
            await pilot.press("?", "enter")
            await sees(pilot, "Hello there.")
            assert sent(on) == "```python src/x.py lines 2-3\nb = 2\nc = 3\n```\n\nwhy @src/x.py#2-3 ?"
            await pilot.press("up")  # it is recalled as it was written
            assert room(pilot).prompt.text == "why @src/x.py#2-3 · ~11 tokens ?"


async def test_what_stands_in_the_file_when_it_is_sent_goes_out(home: Path, folder: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await take(pilot, "notes")
            (folder / "my notes.txt").write_text("changed")
            await pilot.press("enter")
            await sees(pilot, "Hello there.")
            assert sent(on) == "```text my notes.txt\nchanged\n```\n\n@my notes.txt "


async def test_a_file_that_is_gone_is_said_and_nothing_is_sent(home: Path, folder: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await take(pilot, "notes")
            await until(pilot, lambda: not list(room(pilot).prompt.chips.unread(room(pilot).prompt.text)))
            (folder / "my notes.txt").unlink()
            await pilot.press("enter")
            await sees(pilot, "not sent: @my notes.txt is not there")
            assert room(pilot).prompt.draft == "@my notes.txt "
            assert on.engine.requests == []


async def test_a_file_that_cannot_go_out_is_a_name_again(home: Path, folder: Path) -> None:
    (folder / "big.txt").write_bytes(b"x" * (LARGEST + 1))
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await take(pilot, "big")
            await until(pilot, lambda: "too large" in toasts(pilot))
            assert room(pilot).prompt.text == "@big.txt "


async def test_enter_on_a_chip_gives_the_name_back_and_backspace_takes_it_whole(home: Path, folder: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await take(pilot, "x.py")
            await pilot.press("home", "enter")
            assert room(pilot).prompt.text == "@src/x.py "
            await pilot.press("tab")  # what is offered for it
            assert room(pilot).prompt.text.startswith("@src/x.py · ~")
            await pilot.press("end", "backspace", "backspace")
            assert room(pilot).prompt.text == ""


def tokens(command: Forecast) -> int:
    """An engine for which a prompt has ten tokens and one per character."""
    return 10 + sum(len(message.text) for message in command.messages)


async def test_the_engine_counts_chips_and_the_forecast_knows_what_is_in_them(home: Path, folder: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            answered = 0

            def count() -> None:
                nonlocal answered
                for command in on.engine.forecasts[answered:]:
                    on.engine.say(Forecasted(command.turn, tokens(command), 0, 0, tokens(command), None, None))
                    answered += 1

            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await until(pilot, lambda: on.link.ready is not None)
            await take(pilot, "notes")
            message = "```text my notes.txt\nremember\n```"

            def is_forecast() -> bool:
                count()
                drafts = [command.messages[-1].text for command in on.engine.forecasts]
                return f"{message}\n\n@my notes.txt " in drafts

            await until(pilot, is_forecast)
            await until(pilot, lambda: room(pilot).prompt.text == f"@my notes.txt · {len(message)} tokens ")
            await pilot.press("enter")
            await sees(pilot, "Hello there.")
            assert sent(on) == f"{message}\n\n@my notes.txt "


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
async def test_names_that_are_no_utf8(home: Path, folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.txt")).write_text("inside")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await take(pilot, "bad")
            await pilot.press("enter")
            await sees(pilot, "Hello there.")
            assert sent(on) == "```text bad\ufffd.txt\ninside\n```\n\n@bad\ufffd.txt "


async def test_a_label_that_grows_while_a_file_is_chosen_behind_it(home: Path, folder: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: room(pilot).prompt.companion is not None)
            await take(pilot, "x.py")
            await pilot.press(*"and @notes")
            prompt = room(pilot).prompt
            (label,) = prompt.written.files
            prompt.relabel(label, prompt.chips.count(label, 1_234_567))
            await pilot.press("enter")
            assert prompt.draft == "@src/x.py and @my notes.txt "
            assert prompt.text.startswith("@src/x.py · 1,234,567 tokens and @my notes.txt · ~")
