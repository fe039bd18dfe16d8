"""Typing in the settings: the line, keys in their order, wrong values, pages, sizes of the screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from modal_host import EVIL, Host, model, ready_with, settled, text, type_at_once
from textual import events
from textual.widgets import Static

from kvchat.backend.protocol import Ready
from kvchat.backend.values import EngineConfig, Sampling
from kvchat.conversation import Defaults, Own
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.ui import settings_screen
from kvchat.ui.settings_frame import PAGES
from kvchat.ui.settings_pages import ChatNow
from kvchat.ui.settings_row import FieldRow
from kvchat.ui.settings_screen import EngineWish, SettingsScreen
from kvchat.ui.typed_line import LONGEST, TypedLine

GIB = 1 << 30

# ------------------------------------------------------------------ the line


def test_a_line_is_typed_and_corrected() -> None:
    line = TypedLine()
    for character in "0.75":
        line = line.put(character)
    assert line == TypedLine("0.75", 4)
    assert line.without(-1) == TypedLine("0.7", 3)
    assert line.to(end=False).without(1) == TypedLine(".75", 0)
    assert line.moved(-1).moved(-1).put("1") == TypedLine("0.175", 3)
    assert line.moved(1) == line
    assert line.to(end=False).without(-1) == TypedLine("0.75", 0)


def test_a_grapheme_is_one_character() -> None:
    line = TypedLine.at_end("a👩\u200d💻")
    assert line.moved(-1).cursor == 1
    assert line.without(-1) == TypedLine("a", 1)


def test_a_paste_is_cleaned_and_bounded() -> None:
    assert TypedLine().put("1\x1b[31m\n2\u202e").text == "1␛[31m 2"
    assert TypedLine().put("\n").text == ""
    assert len(TypedLine().put("x" * 5000).text) == LONGEST


@pytest.mark.parametrize(
    ("line", "cells", "seen"),
    [
        (TypedLine("abc", 1), 10, ("a", "b", "c")),
        (TypedLine("abc", 3), 10, ("abc", " ", "")),
        (TypedLine("abcdef", 6), 4, ("def", " ", "")),
        (TypedLine("abcdef", 0), 4, ("", "a", "bcd")),
        (TypedLine("键值键值", 4), 5, ("键值", " ", "")),
    ],
)
def test_what_is_seen_of_a_long_line(line: TypedLine, cells: int, seen: tuple[str, str, str]) -> None:
    assert line.window(cells) == seen


# ------------------------------------------------------------------ the screen


class Desk:
    """Settings over a chat with a temperature of its own."""

    def __init__(self, folder: Path) -> None:
        self.models: list[ModelFile] = [model("llama", folder)]
        self.config = EngineConfig(str(self.models[0].path), kv_folder=str(folder / "kv"))
        self.ready: Ready | None = ready_with(self.config)
        self.chat = ChatNow(Own({"temperature": 0.3}), Defaults(Sampling(), "append"))
        self.asked: list[EngineConfig] = []

    def app(self, page: str = "sampling") -> Host:
        return Host(
            lambda: SettingsScreen(
                self.ready,
                self.config,
                self.models,
                2000,
                self.asked.append,
                memory=Memory(4 * GIB),
                chat=self.chat,
                page=page,
            )
        )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(settings_screen, "total_memory", lambda: 8 * GIB)
    monkeypatch.setattr(settings_screen, "logical_cores", lambda: 4)
    monkeypatch.setattr(settings_screen, "REST", 0.05)
    yield Desk(tmp_path)


def row(app: Host, field: str) -> FieldRow:
    return app.screen.query_one(f"#field-{field}", FieldRow)


def part(app: Host, name: str) -> str:
    return str(app.screen.query_one(f"#{name}", Static).render())


def own(app: Host) -> Own:
    (wish,) = app.results
    assert isinstance(wish, EngineWish)
    assert wish.own is not None
    return wish.own


async def test_the_chat_with_what_is_its_own(desk: Desk) -> None:
    """The temperature has a dot behind it, and the default beside it; the others have none."""
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "Temperature" in text(app))
        line = next(line for line in text(app).splitlines() if "Temperature" in line)
        assert "‹ 0.3" in line
        assert "● default 0.8" in line
        assert text(app).count("●") == 2  # the row, and the sentence about it
        assert " Engine   Turns   Sampling   History   Store" in text(app)
        assert "KV memory" not in text(app)


async def test_typed_in_one_write(desk: Desk) -> None:
    """All keys at once: a value is typed and taken, a second one, then all is applied."""
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await type_at_once(pilot, *"1.25", "enter", "down", *"77", "enter", "enter", "x", "escape")
        await settled(pilot, lambda: app.results)
        await pilot.pause(0.05)
    assert app.results == [EngineWish(None, False, Own({"temperature": 1.25, "top_k": 77}))]


async def test_a_wrong_value_is_told_at_its_field_and_not_applied(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("t", *"9x", "enter")
        line = next(line for line in text(app).splitlines() if "▸" in line)
        assert "Top-k" in line
        assert "! '9x' is not a whole number" in line
        assert "0 turns it off" in part(app, "detail")
        for key in ("enter", "down", "tab", "ctrl+s"):  # nothing leads away from it
            await pilot.press(key)
            assert row(app, "top_k").state.problem, key
        assert app.results == []
        await pilot.press("backspace")
        assert row(app, "top_k").state.problem == ""
        await pilot.press("down")  # 9 is taken by leaving the field
        assert (row(app, "top_k").state.value, row(app, "top_k").state.own) == ("9", True)
        await pilot.press("escape")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]


async def test_escape_leaves_the_line_first(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5", "escape")
        assert row(app, "temperature").state.value == "0.3"
        assert app.results == []
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]  # nothing was changed


async def test_what_is_the_chats_own_is_given_back(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("backspace")
        assert row(app, "temperature").state.value == "0.8"
        assert "●" not in text(app)
        assert "Sampling*" in text(app)
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert own(app) == Own()


async def test_space_types_from_what_stands_there(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await type_at_once(pilot, "s", "s", "space", *'"a b", c', "home", "delete", "end", *'"', "enter")
        assert "a quote is not closed" in row(app, "stop").state.problem
        await type_at_once(pilot, "backspace", "left", "left", "left", "left", *'"', "enter")
        assert "a quote is not closed" in row(app, "stop").state.problem
        await type_at_once(pilot, "escape", "space", *'"a b", c', "enter", "enter")
        await settled(pilot, lambda: app.results)
    assert own(app) == Own({"temperature": 0.3, "stop": ("a b", "c")})


async def test_a_paste_goes_into_the_line(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("end")
        app.screen.post_message(events.Paste(f"{EVIL}\n"))
        await pilot.pause()
        assert "\x1b" not in text(app)
        assert "\u202e" not in text(app)
        await pilot.press("enter", "enter")
        await settled(pilot, lambda: app.results)
    assert own(app).sampling["stop"] == ("⚠\ufe0fevil␛]0;title␇[bold", "red]键")


async def test_letters_within_a_line_are_text(desk: Desk) -> None:
    app = desk.app("engine")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        await pilot.press("c", "space", "backspace", "backspace", "backspace", "backspace", *"2000", "enter")
        assert row(app, "context").state.value == "2,000"
        await pilot.press(*"99999999", "enter")  # 1,024 bytes a token: 95 GiB
        assert row(app, "context").state.problem == "its cache is larger than the memory of this machine"
        await pilot.press("escape", "enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(replace(desk.config, context=2000), False)]


async def test_pages(desk: Desk) -> None:
    """Tab walks them, a click goes to one; a star says where something is to change."""
    app = desk.app("engine")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "KV memory" in text(app))
        seen = []
        for _ in PAGES:
            seen.append(next(line for line in text(app).splitlines() if "▸" in line).split()[2])
            await pilot.press("tab")
        assert seen == ["K", "Answers", "Temperature", "History", "KV"]
        await pilot.press("shift+tab")
        assert "Most on disk" in text(app)
        await pilot.click("#page-history")
        await pilot.press("right")
        assert "History*" in text(app)
        assert "Sampling*" not in text(app)
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(None, False, Own({"temperature": 0.3}, "exact"))]


async def test_the_store_is_part_of_the_engine(desk: Desk) -> None:
    app = desk.app("store")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "Applying changes nothing." in text(app))
        await pilot.press("down", *"8GiB", "enter")
        await settled(pilot, lambda: desk.asked)
        assert desk.asked == [replace(desk.config, kv_budget=8 * GIB)]
        await pilot.press("up", "right", "enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(replace(desk.config, kv_budget=8 * GIB, kv_folder=None), False)]


async def test_sampling_without_an_engine(desk: Desk) -> None:
    """The engine that is being loaded is left alone."""
    desk.ready = None
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(None, False, Own({"temperature": 0.4}))]


async def test_sampling_without_a_model(desk: Desk) -> None:
    desk.ready, desk.config = None, EngineConfig("")
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "ctrl+s")
        await settled(pilot, lambda: app.results)
    assert app.results == [EngineWish(None, True, Own({"temperature": 0.4}))]


async def test_the_mouse(desk: Desk) -> None:
    app = desk.app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.05)
        await pilot.click("#field-min_p")
        assert row(app, "min_p").state.selected
        await pilot.click("#field-min_p")
        assert row(app, "min_p").state.line is not None
        await pilot.press("backspace", "6", "x")
        await pilot.click("#field-top_k")  # what cannot be had keeps the cursor
        assert row(app, "min_p").state.problem
        await pilot.press("backspace")
        await pilot.click("#field-top_k")
        assert row(app, "min_p").state.value == "0.06"
        assert row(app, "top_k").state.selected


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36)])
@pytest.mark.parametrize("page", PAGES)
async def test_everything_has_room(desk: Desk, size: tuple[int, int], page: str) -> None:
    """All fields, what applying does, and the hints are seen at once; nothing touches the border."""
    app = desk.app(page)
    async with app.run_test(size=size) as pilot:
        await settled(pilot, lambda: "Applying changes nothing." in text(app))
        assert isinstance(app.screen, SettingsScreen)
        shown = text(app)
        for label, _ in app.screen._page.labels.values():
            assert label in shown, label
        assert "⏎ apply" in shown
        body = app.screen.query_one("#body")
        assert body.virtual_size.height <= body.size.height
        await pilot.press("end")
        if page == "engine":  # the last field is picked from a list
            await pilot.press("up", "up")
        await pilot.press("right")
        await settled(pilot, lambda: "Applying changes nothing." not in text(app) or page == "sampling")


@pytest.mark.parametrize("size", [(20, 6), (40, 12), (5, 3)])
async def test_small_screens_do_not_break(desk: Desk, size: tuple[int, int]) -> None:
    app = desk.app()
    async with app.run_test(size=size) as pilot:
        await pilot.press("5", "x", "enter", "tab", "escape", "tab", "right", "tab", "down", "1", "enter", "home")
        await pilot.resize_terminal(80, 24)
        await settled(pilot, lambda: "Most on disk" in text(app))
