"""The question when a context is full for the first time in a chat. Owns the highlight, nothing else.

What each policy would let go is given; the screen ends with the one that the person takes. Must not set or begin
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from kvchat.backend.values import OverflowPolicy
from kvchat.ui.display import display
from kvchat.ui.fit_question import SHORT, TINY, OfferList
from kvchat.ui.inline_keys import is_on_top
from kvchat.ui.offers import Offer
from kvchat.ui.settings_row import Hint

LATER = "/overflow changes it at any time, /undo takes back the last that left. No message is lost."
AROUND = 8  # lines that are not the list's: two sentences in two lines each, hints, border, one that is empty


class OverflowQuestion(ModalScreen[OverflowPolicy]):
    """Arrows or a first letter move, Enter takes what is highlighted, Escape is stop."""

    DEFAULT_CSS = """
    OverflowQuestion {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 96; height: auto; max-height: 100%;
            background: $surface; border: round $warning; border-title-color: $warning; padding: 0 1;
        }
        & .said { height: auto; padding: 0 1; }
        & #later { color: $meta; margin: 1 0; }
        & #headline { margin: 0 0 1 0; }
        & #hints { height: 1; padding: 0 1; }
        &.-short .said, &.-tiny .said { margin: 0; }
        &.-tiny #later { display: none; }
        &.-tiny #box { border: none; padding: 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-short"), (SHORT, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "stop", "Stop here", show=False, id="overflow.stop"),
    ]

    def __init__(self, context: int, ways: Sequence[tuple[OverflowPolicy, str]]) -> None:
        """`context`: tokens that it holds; `ways`: policies, each with what it would do, the best first."""
        super().__init__()
        self._headline = f"The context of {context:,} tokens is full. What may leave it, so that the chat goes on?"
        self._policies = [policy for policy, _ in ways]
        offers = tuple(Offer(policy, display(meaning), None) for policy, meaning in ways)
        self._offers = OfferList(offers, id="offers")
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = "The context is full"
            yield Static(Content(self._headline), id="headline", classes="said", markup=False)
            yield self._offers
            yield Static(Content(LATER), id="later", classes="said", markup=False)
            with Horizontal(id="hints"):
                yield Hint("⏎ take it and go on", "take")
                yield Hint("↑↓ choose")
                yield Hint("{overflow.stop} stop here", "stop")

    def on_resize(self, event: events.Resize) -> None:
        """The list has what the lines around it leave."""
        self._offers.styles.max_height = max(1, event.size.height - (3 if event.size.height < TINY else AROUND))

    def on_key(self, event: events.Key) -> None:
        """A letter goes to the next policy that begins with it."""
        if not event.character or not event.is_printable:
            return
        event.stop()
        now, letter = self._offers.highlighted or 0, event.character.lower()
        order = [(now + offset) % len(self._policies) for offset in range(1, len(self._policies) + 1)]
        found = [row for row in order if self._policies[row].startswith(letter)]
        if found:
            self._offers.highlighted = found[0]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        self._end(self._policies[event.option_index])

    def action_take(self) -> None:
        """End with what is highlighted."""
        self._end(self._policies[self._offers.highlighted or 0])

    def action_stop(self) -> None:
        """Nothing leaves."""
        self._end("stop")

    def _end(self, policy: OverflowPolicy) -> None:
        if not self._over and is_on_top(self):
            self._over = True
            self.dismiss(policy)
