"""Where things lie, and the folders that are made for them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kvchat.errors import KvchatError
from kvchat.paths import Paths, close_to_others, ensure_private, typed_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_home_holds_everything(tmp_path: Path) -> None:
    paths = Paths.find({"KVCHAT_HOME": str(tmp_path)})
    assert paths.config_file == tmp_path / "config.toml"
    assert paths.chats_db == tmp_path / "chats.db"
    assert paths.kv_folder == tmp_path / "kv"
    assert paths.models_folder == tmp_path / "models"
    assert paths.state_folder == tmp_path / "state"
    assert paths.log_file.parent == tmp_path / "logs"


def test_finding_makes_nothing(tmp_path: Path) -> None:
    Paths.find({"KVCHAT_HOME": str(tmp_path / "new")})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("home", "expected"),
    [
        ("here/./there/../x", "{cwd}/here/x"),  # relative: to where the program was started
        ("~/kv", "{home}/kv"),
    ],
)
def test_home_is_made_absolute(home: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somewhere")
    found = Paths.find({"KVCHAT_HOME": home}).chats_db.parent
    assert str(found) == expected.format(cwd=tmp_path, home="/somewhere")


def test_unknown_user_in_home() -> None:
    with pytest.raises(KvchatError, match="KVCHAT_HOME"):
        Paths.find({"KVCHAT_HOME": "~no-such-user-here/kv"})


def test_a_typed_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert typed_path("~/x") == Path("/somewhere/x")
    assert typed_path("~no-such-user-here/x") == Path("~no-such-user-here/x")


@pytest.mark.skipif(os.name != "posix" or os.uname().sysname != "Linux", reason="XDG folders are Linux's")
def test_platform_folders_separate_cache_from_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    paths = Paths.find({"KVCHAT_HOME": ""})
    assert paths.config_file == tmp_path / "CONFIG/kvchat/config.toml"
    assert paths.chats_db == tmp_path / "DATA/kvchat/chats.db"
    assert paths.kv_folder == tmp_path / "CACHE/kvchat/kv"
    assert paths.state_folder == tmp_path / "STATE/kvchat"


def test_new_folders_are_private_with_their_parents(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        assert ensure_private(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    finally:
        os.umask(old_mask)
    assert mode(tmp_path / "a") == 0o700
    assert mode(tmp_path / "a" / "b") == 0o700


def test_a_folder_of_the_person_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o755)
    ensure_private(folder)
    assert mode(folder) == 0o755


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(KvchatError) as caught:
        ensure_private(tmp_path / place)
    assert str(tmp_path / place) in caught.value.message
    assert "KVCHAT_HOME" in caught.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("place", [".", "below"])
def test_unwritable_folder(tmp_path: Path, place: str) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(KvchatError, match="cannot be"):
            ensure_private(tmp_path / place)
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_the_system_refuses() -> None:
    with pytest.raises(KvchatError, match="cannot be made"):
        ensure_private(Path("/proc/kvchat"))  # refused to root as well


def test_what_is_open_to_others_is_closed_and_said_once(tmp_path: Path) -> None:
    paths = Paths.find({"KVCHAT_HOME": str(tmp_path / "home")})
    opened = [paths.kv_folder, paths.kv_folder / "pages", paths.state_folder, paths.log_file.parent]
    files = [paths.kv_folder / "index.db", paths.log_file, paths.chats_db.with_name("chats.db.v4.backup")]
    for folder in opened:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    for file in files:
        file.write_text("x")
        file.chmod(0o640)
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    paths.log_file.with_name("app.log").symlink_to(outside)  # the person's own doing
    said = close_to_others(paths)
    assert [mode(folder) for folder in opened] == [0o700] * 4
    assert [mode(file) for file in files] == [0o600] * 3
    assert mode(outside) == 0o644
    assert len(said) == 7
    assert all(str(path) in "".join(said) for path in (*opened, *files))
    assert close_to_others(paths) == []


def test_below_a_file_there_is_nothing_to_close(tmp_path: Path) -> None:
    paths = Paths.find({"KVCHAT_HOME": str(tmp_path)})
    paths.kv_folder.write_text("no folder")
    paths.kv_folder.chmod(0o600)
    assert close_to_others(paths) == []


def test_nothing_is_made_to_be_closed(tmp_path: Path) -> None:
    assert close_to_others(Paths.find({"KVCHAT_HOME": str(tmp_path / "none")})) == []
    assert not (tmp_path / "none").exists()
