"""The prompt in an app of its own: growing, recall, pastes, keys that it leaves to the screen."""

from __future__ import annotations

import pytest
from textual import events, on
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from kvchat.ui.prompt import Prompt
from kvchat.ui.theme import VARIABLES


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, bool]] = []
        self.edges = 0

    def compose(self) -> ComposeResult:
        yield Prompt("Write", lambda text, literal, _: self.sent.append((text, literal)), id="prompt")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    @on(Prompt.Edged)
    def count(self) -> None:
        self.edges += 1

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)


async def test_it_grows_to_ten_rows() -> None:
    app = Host()
    async with app.run_test(size=(40, 30)) as pilot:
        heights = []
        for rows in (1, 3, 10, 40):
            app.prompt.put("\n".join("x" * rows))
            await pilot.pause()
            heights.append(app.prompt.size.height)
        assert heights == [1, 3, 10, 10]


async def test_enter_sends_and_leaves_nothing() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("h", "i", "enter", "enter", "space", "enter")
        assert app.sent == [("hi", False)]
        assert app.prompt.text == " "


async def test_a_backslash_makes_a_new_line_where_the_cursor_is() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "\\", "b", "left", "enter", "end", "enter")
        assert app.sent == [("a\nb", False)]


async def test_recall_at_the_edges_keeps_the_draft() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.remember(["first", "second\nof two rows"])
        app.prompt.put("draft")
        await pilot.press("up")
        assert app.prompt.text == "second\nof two rows"
        await pilot.press("up")  # to its first row
        await pilot.press("up")
        assert app.prompt.text == "first"
        await pilot.press("up")  # there is nothing before it
        assert app.prompt.text == "first"
        await pilot.press("down", "down")
        assert app.prompt.text == "draft"


async def test_what_became_of_a_recalled_text_is_found_again() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.remember(["first", "second"])
        await pilot.press("up", "x", "up", "y", "down")
        assert app.prompt.text == "secondx"
        await pilot.press("up")
        assert app.prompt.text == "firsty"


async def test_what_was_sent_is_recalled_first() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.remember(["old"])
        await pilot.press("n", "e", "w", "enter", "up")
        assert app.prompt.text == "new"


async def test_a_text_that_could_not_be_sent_comes_before_what_was_written_since() -> None:
    app = Host()
    async with app.run_test():
        app.prompt.put("since")
        app.prompt.put_back("before")
        assert app.prompt.text == "before\nsince"


async def test_many_lines_are_undone_and_come_back() -> None:
    """The text gets shorter than the box, which then has no scroll bar, before the cursor is where it was."""
    app = Host()
    lines = "\n".join(f"line {number}" for number in range(18))
    async with app.run_test() as pilot:
        app.prompt.post_message(events.Paste(lines))
        await pilot.pause()
        assert app.prompt.text == lines
        await pilot.press("ctrl+z")
        assert app.prompt.text == ""
        await pilot.press("ctrl+y")
        assert app.prompt.text == lines
        await pilot.press("ctrl+z", "a")
        assert app.prompt.text == "a"


async def test_pastes() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.post_message(events.Paste("/one\r\ntwo\x1b[31m\u202e"))
        await pilot.pause()
        assert app.prompt.text == "/one\ntwo"
        await pilot.press("enter")
        assert app.sent == [("/one\ntwo", True)]
        await pilot.press("/", "x", "enter")
        assert app.sent[-1] == ("/x", False)


@pytest.mark.parametrize("away", [("ctrl+u",), ("backspace", "backspace", "backspace", "backspace")])
async def test_a_command_can_be_typed_after_a_pasted_slash_was_deleted(away: tuple[str, ...]) -> None:
    app = Host()
    async with app.run_test() as pilot:
        await paste(pilot, app, "/tmp")
        await pilot.press(*away, "/", "x", "enter")
        assert app.sent == [("/x", False)]


async def test_a_command_can_be_recalled_in_place_of_a_pasted_slash() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.remember(["/temp 0.5"])
        await paste(pilot, app, "/tmp")
        await pilot.press("up", "enter")
        assert app.sent == [("/temp 0.5", False)]


async def test_every_key_has_an_id_and_none_is_taken_from_the_screen() -> None:
    app = Host()
    async with app.run_test():
        bindings = [binding for found in app.prompt._bindings.key_to_bindings.values() for binding in found]
        assert all(binding.id for binding in bindings)
        assert not any(binding.priority for binding in bindings)
        assert not {"ctrl+c", "ctrl+d", "pageup", "pagedown", "escape"} & app.prompt._bindings.key_to_bindings.keys()


LONG = "\n".join(f"line {number}" for number in range(300))


async def paste(pilot: Pilot[None], app: Host, text: str) -> None:
    app.prompt.post_message(events.Paste(text))
    await pilot.pause()


async def test_a_long_paste_is_one_chip_and_goes_out_in_full() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "space")
        await paste(pilot, app, LONG.replace("\n", "\r"))
        assert app.prompt.text == "a [Pasted #1 · 300 lines]"
        assert app.prompt.draft == f"a {LONG}"
        await pilot.press("backspace")
        assert app.prompt.text == "a "
        await paste(pilot, app, LONG)
        await pilot.press("space", "b", "enter")
        assert app.sent == [(f"a {LONG} b", False)]
        assert app.prompt.text == ""


async def test_a_chip_is_passed_selected_and_deleted_as_one() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a")
        await paste(pilot, app, "x" * 2_000)
        await pilot.press("b")
        chip = "[Pasted #1 · 2,000 characters]"
        assert app.prompt.text == f"a{chip}b"
        await pilot.press("left", "left", "c")
        assert app.prompt.text == f"ac{chip}b"
        await pilot.press("right", "d")
        assert app.prompt.text == f"ac{chip}db"
        app.prompt.move_cursor((0, 9))  # a click within it
        assert app.prompt.cursor_location in {(0, 2), (0, 2 + len(chip))}
        await pilot.press("home", "right", "right", "delete")
        assert app.prompt.text == "acdb"


async def test_word_and_selection_keys_do_not_cut_a_chip() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await paste(pilot, app, LONG)
        await pilot.press("ctrl+w")
        assert app.prompt.text == ""
        await paste(pilot, app, LONG)
        await pilot.press("shift+left", "x")
        assert app.prompt.text == "x"


async def test_the_same_paste_again_unfolds_it() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await paste(pilot, app, LONG)
        await paste(pilot, app, LONG)
        assert app.prompt.text == LONG
        await paste(pilot, app, LONG)
        assert app.prompt.draft == LONG + LONG


async def test_a_long_paste_that_begins_with_a_slash_is_no_command() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await paste(pilot, app, "/quit" + LONG)
        await pilot.press("enter")
        assert app.sent == [("/quit" + LONG, True)]


async def test_five_thousand_lines_come_back_by_recall_and_are_folded() -> None:
    text = "\n".join(f"a line of some length, number {number}" for number in range(5_000))
    app = Host()
    async with app.run_test() as pilot:
        await paste(pilot, app, text)
        await pilot.press("enter", "up")
        assert app.prompt.text == "[Pasted #1 · 5,000 lines]"
        await pilot.press("enter")
        assert app.sent == [(text, False)] * 2


async def test_up_with_nothing_above_is_told() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("up")
        assert app.edges == 1
        await pilot.press("x", "up")
        assert app.edges == 1
