"""The prompt in an app of its own: growing, recall, pastes, keys that it leaves to the screen."""

from __future__ import annotations

from textual import events, on
from textual.app import App, ComposeResult

from kvchat.ui.prompt import Prompt
from kvchat.ui.theme import VARIABLES


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, bool]] = []

    def compose(self) -> ComposeResult:
        yield Prompt("Write", id="prompt")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    @on(Prompt.Submitted)
    def keep(self, event: Prompt.Submitted) -> None:
        self.sent.append((event.text, event.literal))

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


async def test_every_key_has_an_id_and_none_is_taken_from_the_screen() -> None:
    app = Host()
    async with app.run_test():
        bindings = [binding for found in app.prompt._bindings.key_to_bindings.values() for binding in found]
        assert all(binding.id for binding in bindings)
        assert not any(binding.priority for binding in bindings)
        assert not {"ctrl+c", "ctrl+d", "pageup", "pagedown", "escape"} & app.prompt._bindings.key_to_bindings.keys()
