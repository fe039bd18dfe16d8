"""The question before something is loaded that does not fit into the free memory. Owns the highlight, nothing else.

What is needed, what is free and what can be done about it is given; the screen ends with the configuration that the
person takes, None: none of them. Must not load anything or compute a size.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from kvchat.backend.values import EngineConfig
from kvchat.ui.display import display
from kvchat.ui.inline_keys import is_on_top, run_bound
from kvchat.ui.offers import FitProblem, Offer
from kvchat.ui.options import Options
from kvchat.ui.settings_row import Hint

SHORT = 20  # lines of a screen without room for empty ones
TINY = 14  # lines of a screen without room for the parts
PADDING_CELLS = 3  # at both sides of a row, with the scroll bar


class OfferList(Options):
    """What can be done, one line each: the label, then what it means."""

    DEFAULT_CSS = """
    OfferList {
        border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; text-wrap: nowrap; height: auto;
        &:focus { border: none; background-tint: $foreground 0%; }
        & > .option-list--option { padding: 0 1; color: $foreground; }
        & > .option-list--option-highlighted { background: $panel; color: $foreground; }
        &:focus > .option-list--option-highlighted { background: $panel; color: $foreground; text-style: bold; }
    }
    """

    def __init__(self, offers: tuple[Offer, ...], *, id: str) -> None:
        self._cells = max(cell_len(offer.label) for offer in offers)
        self._rows = offers
        super().__init__(*(Option(self._line(offer)) for offer in offers), id=id, markup=False)
        self.highlighted = 0

    def on_resize(self) -> None:
        """Rows are cut at the edge, never wrapped."""
        row, width = self.highlighted, max(1, self.size.width - PADDING_CELLS)
        self.set_options(Option(self._line(offer).truncate(width, ellipsis=True)) for offer in self._rows)
        self.highlighted = row

    def _line(self, offer: Offer) -> Content:
        label = set_cell_size(offer.label, self._cells)
        return Content.assemble(label, Content.styled(f"   {offer.meaning}", "$meta"))

    async def _on_key(self, event: events.Key) -> None:
        await run_bound(self, event)


class FitQuestion(ModalScreen[EngineConfig | None]):
    """Arrows or a first letter move, Enter takes what is highlighted, Escape takes nothing."""

    DEFAULT_CSS = """
    FitQuestion {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 76; height: auto; max-height: 100%;
            background: $surface; border: round $warning; border-title-color: $warning; padding: 0 1;
        }
        & .said { height: auto; padding: 0 1; }
        & #parts { color: $meta; margin: 1 0; }
        & #hints { height: 1; padding: 0 1; margin: 1 0 0 0; }
        &.-short #parts, &.-short #hints, &.-tiny #hints { margin: 0; }
        &.-tiny .said { max-height: 2; }
        &.-tiny #parts { display: none; }
        &.-tiny #box { border: none; padding: 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-short"), (SHORT, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Load nothing", show=False, id="fit.cancel"),
    ]

    def __init__(self, problem: FitProblem) -> None:
        super().__init__()
        self._problem = problem
        self._offers = OfferList(problem.offers, id="offers")
        self._over = False

    def compose(self) -> ComposeResult:
        problem = self._problem
        with Vertical(id="box") as box:
            box.border_title = "Not enough free memory"
            yield Static(Content(display(problem.headline)), classes="said", markup=False)
            yield Static(Content("\n".join(problem.parts)), id="parts", classes="said", markup=False)
            yield self._offers
            with Horizontal(id="hints"):
                yield Hint("⏎ take it", "take")
                yield Hint("↑↓ choose")
                yield Hint("{fit.cancel} cancel", "cancel")

    def on_resize(self, event: events.Resize) -> None:
        """The list has what the lines around it leave."""
        tiny = event.size.height < TINY
        around = 3 if tiny else 5 + len(self._problem.parts)  # two lines of the sentence, hints, border
        self._offers.styles.max_height = max(1, event.size.height - around)

    def on_key(self, event: events.Key) -> None:
        """A letter goes to the next offer that begins with it."""
        if not event.character or not event.is_printable:
            return
        event.stop()
        offers, letter = self._problem.offers, event.character.lower()
        now = self._offers.highlighted or 0
        order = [(now + offset) % len(offers) for offset in range(1, len(offers) + 1)]
        found = [row for row in order if offers[row].label.lower().startswith(letter)]
        if found:
            self._offers.highlighted = found[0]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        self._end(self._problem.offers[event.option_index].config)

    def action_take(self) -> None:
        """End with what is highlighted."""
        self._end(self._problem.offers[self._offers.highlighted or 0].config)

    def action_cancel(self) -> None:
        """End with nothing."""
        self._end(None)

    def _end(self, config: EngineConfig | None) -> None:
        if not self._over and is_on_top(self):
            self._over = True
            self.dismiss(config)
