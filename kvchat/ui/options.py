"""The base of all lists of options. Owns what a list does that has no place on the screen; must not know what it lists.

In a window of a few columns or lines a list can have the keyboard and no cells. Then it has no lines either, among
which Textual would look for the option a page away.
"""

from __future__ import annotations

from textual.widgets import OptionList


class Options(OptionList):
    """See the module."""

    def action_page_up(self) -> None:
        """A page up; to the first one where there are no pages."""
        if self.scrollable_content_region:
            super().action_page_up()  # type: ignore[no-untyped-call]
        else:
            self.action_first()

    def action_page_down(self) -> None:
        """A page down; to the last one where there are no pages."""
        if self.scrollable_content_region:
            super().action_page_down()  # type: ignore[no-untyped-call]
        else:
            self.action_last()
