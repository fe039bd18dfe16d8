"""Presets: files with a system prompt and sampling, damaged ones among them, and what /preset does with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fake_backend import turn_events
from modal_host import EVIL, text
from textual.pilot import Pilot
from ui_fakes import room, send, shown, stage, toasts, until

from kvchat.conversation import Own
from kvchat.errors import KvchatError
from kvchat.ui.dialogs import Confirm
from kvchat.ui.presets_file import LARGEST, MOST, Preset, find_preset, read_preset, read_presets, write_preset
from kvchat.ui.presets_picker import PresetPicker

# ------------------------------------------------------------------ files


def put(folder: Path, content: str | bytes, name: str = "x.md") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("system", "sampling"),
    [
        ("You are brief.", {}),
        ('two\n\nparagraphs with 键值 and "quotes"', {"temperature": 0.3, "top_k": 5, "stop": ("END", "\n\n")}),
        ("", {"seed": None, "max_tokens": None, "top_p": 1.0}),
        ("+++\nno = head\n+++\nat all", {}),
        ("    indented", {"repeat_last_n": 0, "repeat_penalty": 1.1, "min_p": 0.0, "seed": 7}),
    ],
)
def test_what_is_written_is_read(tmp_path: Path, system: str, sampling: dict[str, Any]) -> None:
    path = write_preset(tmp_path / "presets", "Mine", system, sampling)
    assert read_preset(path) == Preset("Mine", path, system, sampling)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_from_elsewhere(tmp_path: Path) -> None:
    """Byte order mark, other line ends, hyphens, and nothing that a terminal would obey."""
    path = put(tmp_path, "\ufeff+++\r\ntop-k = 5\r\n+++\r\n\r\nBe brief.\r\n\x1b[31m\u202eNow.\r\n")
    assert read_preset(path) == Preset("x", path, "Be brief.\n␛[31mNow.", {"top_k": 5})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("+++\ntemp = 0.5\nBe brief.\n", ":1: the +++ at the beginning has no second one"),
        ("+++\ntemp = 0.5\n\ntopk = 5\n+++\n", ":4: there is no sampling 'topk', did you mean top_k?"),
        ("+++\ntemp = 0.5\ntop_p = 3\n+++\n", ":3: top_p: 3 is not between 0 and 1. a share between 0 and 1"),
        ("+++\nstop = [1]\n+++\n", ":2: stop: 1 is not a text."),
        ("+++\ntemp = 0.5\n\ntemp == 1\n+++\n", ":4: is not valid TOML: Invalid value (at line 4, column 7)"),
        ("+++\nmodel = 'x'\n+++\n", ":2: there is no sampling 'model'"),
        (b"a\nb \xff", ":2: is not UTF-8 text"),
        (b"x" * (LARGEST + 1), ": is larger than the 256 KiB that a preset may have"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, content: str | bytes, problem: str) -> None:
    path = put(tmp_path, content)
    found = read_preset(path)
    assert found.problem == f"{path}{problem}"
    assert (found.system, found.sampling) == ("", {})


def test_what_is_no_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    problems = [preset.problem.removeprefix(str(tmp_path)) for preset in read_presets(tmp_path)]
    assert problems == [
        "/folder.md: is no file",
        "/gone.md: cannot be read: No such file or directory",
        "/pipe.md: is no file",
    ]


def test_the_list(tmp_path: Path) -> None:
    assert read_presets(tmp_path / "presets") == ()
    for name in ("b.md", "a.md", ".hidden.md", "a.md~", "note.txt"):
        put(tmp_path, name, name)
    assert [(each.name, each.system) for each in read_presets(tmp_path)] == [("a", "a.md"), ("b", "b.md")]


def test_the_list_has_an_end(tmp_path: Path) -> None:
    for number in range(MOST + 5):
        put(tmp_path, "x", f"{number}.md")
    assert len(read_presets(tmp_path)) == MOST


def test_names(tmp_path: Path) -> None:
    presets = [Preset("Brief", tmp_path), Preset("Pirate", tmp_path)]
    assert find_preset("brief", presets) is presets[0]
    with pytest.raises(KvchatError, match="there is no preset 'pirat'") as told:
        find_preset("pirat", presets)
    assert told.value.hint == "did you mean Pirate?"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", ".hidden", "save", "Save", "a\0b", "x" * 61, "a\n", "-"]
)
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(KvchatError, match="cannot be the name of a preset"):
        write_preset(tmp_path, name, "x", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "two words", "键值", "v1.2", "C++"])
def test_names_that_are_some(tmp_path: Path, name: str) -> None:
    write_preset(tmp_path, name, "x", {})
    assert [preset.name for preset in read_presets(tmp_path)] == [name]


def test_what_was_there_stays_beside_it(tmp_path: Path) -> None:
    damaged = put(tmp_path, b"\xff mine", "Brief.md")
    for text_now in ("one", "two"):
        assert write_preset(tmp_path, "brief", text_now, {}) == damaged
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert contents == {"Brief.md": b"two\n", "Brief.md~": b"\xff mine", "Brief.md~2": b"one\n"}


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "mine")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KvchatError, match="No space left on device"):
        write_preset(tmp_path, "x", "other", {})
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {path.name: "mine"}


# ------------------------------------------------------------------ the command


async def picker(pilot: Pilot[None]) -> PresetPicker:
    await send(pilot, "/preset")
    await until(pilot, lambda: isinstance(pilot.app.screen, PresetPicker))
    await pilot.pause(0.05)
    found = pilot.app.screen
    assert isinstance(found, PresetPicker)
    return found


async def test_a_preset_is_taken(home: Path) -> None:
    """The system prompt and the sampling are the chat's own; what the preset does not say stays."""
    put(home / "presets", "+++\ntemp = 0.3\n+++\nYou are a pirate.", "Pirate.md")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.link.ready is not None)
            await send(pilot, "/seed 7")
            await send(pilot, "/preset pirate")
            await until(pilot, lambda: "Preset Pirate: its system prompt, temperature 0.3." in toasts(pilot))
            conversation = room(pilot).conversation
            assert conversation.chat.system == "You are a pirate."
            assert conversation.own == Own({"seed": 7, "temperature": 0.3})
            await send(pilot, "hello")
            await until(pilot, lambda: bool(on.engine.requests) and not room(pilot).is_busy)
            request = on.engine.requests[-1]
            assert (request.messages[0].role, request.messages[0].text) == ("system", "You are a pirate.")
            assert (request.sampling.temperature, request.sampling.seed) == (0.3, 7)


async def test_a_preset_is_kept(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "/preset save Mine")
            await until(pilot, lambda: "no system prompt" in toasts(pilot))
            await send(pilot, "/system Be brief.")
            await send(pilot, "/temp 0.3")
            await send(pilot, "/preset save Mine")
            await until(pilot, lambda: "Preset Mine keeps system prompt, temperature 0.3." in toasts(pilot))
            file = home / "presets" / "Mine.md"
            assert file.read_text() == "+++\ntemp = 0.3\n+++\nBe brief.\n"


async def test_one_of_the_same_name_is_asked_about(home: Path) -> None:
    put(home / "presets", "old", "Mine.md")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "/system new")
            for key, content in (("escape", "old"), ("enter", "new\n")):
                await send(pilot, "/preset save mine")
                await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
                await pilot.press(key)
                await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))
                file = home / "presets" / "Mine.md"
                await until(pilot, lambda file=file, content=content: file.exists() and file.read_text() == content)
            assert (home / "presets" / "Mine.md~").read_text() == "old"


async def test_no_presets_yet(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "/preset")
            await until(pilot, lambda: "There are no presets yet. /preset save NAME" in shown(pilot))
            await send(pilot, "/preset save")
            await until(pilot, lambda: "/preset save takes a name." in toasts(pilot))
            await send(pilot, "/preset nothing")
            await until(pilot, lambda: "There is no preset 'nothing'" in toasts(pilot))


async def test_a_damaged_one_is_told_and_changes_nothing(home: Path) -> None:
    """In the list in its place, with the line; the others can be taken."""
    put(home / "presets", "+++\ntemp = hot\n+++\nx", "bad.md")
    put(home / "presets", "Be good.", "good.md")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await picker(pilot)
            told = text(pilot.app)
            assert "! bad.md:2: is not valid TOML" in told
            assert "Be good." in told
            await pilot.press("enter")
            await until(pilot, lambda: "not taken:" in shown(pilot))
            assert "bad.md:2" in shown(pilot).replace("\n    ", "")
            assert room(pilot).conversation.chat.system == ""
            await picker(pilot)
            await pilot.press(*"good", "enter")
            await until(pilot, lambda: room(pilot).conversation.chat.system == "Be good.")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36), (20, 6)])
async def test_the_picker_shows_foreign_text_as_text(home: Path, size: tuple[int, int]) -> None:
    put(home / "presets", EVIL * 3, "键[bold]x.md")
    with stage(home) as on:
        async with on.app().run_test(size=size) as pilot:
            await picker(pilot)
            assert "键[bold]x" in text(pilot.app)
            assert "\x1b" not in text(pilot.app)
            assert "\u202e" not in text(pilot.app)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, PresetPicker))


async def test_a_hint_about_what_varies(home: Path) -> None:
    put(home / "presets", "It is 2026-11-29. " + "Answer in short sentences. " * 5, "dated.md")
    with stage(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "/preset dated")
            await until(pilot, lambda: "a date (2026-11-29)" in shown(pilot))
