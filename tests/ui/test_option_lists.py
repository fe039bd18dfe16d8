"""A list of options that has the keyboard and no place on the screen."""

from __future__ import annotations

from textual.app import App, ComposeResult

from kvchat.ui.options import Options


class Host(App[None]):
    def compose(self) -> ComposeResult:
        found = Options("one", "two", "three")
        found.display = False
        yield found


async def test_a_page_is_all_that_there_is() -> None:
    app = Host()
    async with app.run_test():
        found = app.query_one(Options)
        found.highlighted = 1
        found.action_page_down()
        assert found.highlighted == 2
        found.action_page_up()
        assert found.highlighted == 0
