"""Several answers side by side, of which one is picked. Owns which are in view and which one the keys are for.

It only shows: what is picked or stopped it tells whoever shows it, and is told how the answers are by `show`. Where
there is no room for all, it shows as many as fit, among them the one that the keys are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from kvchat.conversation import Alternative
from kvchat.reasoning import split_whole
from kvchat.ui.alternatives_column import AnswerColumn
from kvchat.ui.alternatives_words import heading, state, summary
from kvchat.ui.display import display, display_line
from kvchat.ui.inline_keys import is_on_top, is_there, run_bound
from kvchat.ui.key_hints import hints, keys_at
from kvchat.ui.wording import thought_cost

LEAST_CELLS = 38  # of a column
MOST_COLUMNS = 4
HINTS = (
    "{alternatives.pick} keep  {alternatives.first} … keep by number  {alternatives.previous}{alternatives.next} move  "
    "{alternatives.stop-one} stop one  {alternatives.leave} {leave}  {alternatives.copy} copy  "
    "{alternatives.down}{alternatives.up} scroll",
    "{alternatives.pick} keep  {alternatives.first} … keep by number  {alternatives.previous}{alternatives.next} move  "
    "{alternatives.stop-one} stop one  {alternatives.leave} {leave}",
    "{alternatives.pick} keep  {alternatives.previous}{alternatives.next} move  {alternatives.stop-one} stop one  "
    "{alternatives.leave} {leave}",
    "{alternatives.pick} keep  {alternatives.leave} {leave}",
)
Pace = Callable[[Alternative], float | None]


class AlternativesScreen(Screen[None]):
    """Columns, the line above them, the keys below them."""

    DEFAULT_CSS = """
    AlternativesScreen {
        background: $background;
        & > #asked { height: 1; padding: 0 1; color: $meta; text-wrap: nowrap; text-overflow: ellipsis; }
        & > #columns { height: 1fr; }
        & > #keys { height: 1; padding: 0 1; color: $meta; }
        &.-tall .state { margin: 0 0 1 0; }
    }
    """
    VERTICAL_BREAKPOINTS = [(0, "-low"), (24, "-tall")]  # noqa: RUF012 (Textual declares it for instances)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pick", "Keep this answer", show=False, id="alternatives.pick"),
        Binding("1", "pick_number(1)", "Keep the first", show=False, id="alternatives.first"),
        *(
            Binding(
                str(number), f"pick_number({number})", f"Keep number {number}", show=False, id=f"alternatives.{number}"
            )
            for number in range(2, 10)
        ),
        Binding("left,shift+tab,h", "move(-1)", "The answer before", show=False, id="alternatives.previous"),
        Binding("right,tab,l", "move(1)", "The answer after", show=False, id="alternatives.next"),
        Binding("x", "stop_one", "Stop this answer", show=False, id="alternatives.stop-one"),
        Binding("y", "copy", "Copy this answer", show=False, id="alternatives.copy"),
        Binding("up,k", "scroll(-1)", "Scroll up", show=False, id="alternatives.up"),
        Binding("down,j", "scroll(1)", "Scroll down", show=False, id="alternatives.down"),
        Binding("pageup", "page(-1)", "A page up", show=False, id="alternatives.page-up"),
        Binding("pagedown,space", "page(1)", "A page down", show=False, id="alternatives.page-down"),
        Binding("end,G", "end", "To the end, and follow", show=False, id="alternatives.end"),
        Binding("ctrl+t", "fold_all", "Fold or unfold all thoughts", show=False, id="alternatives.fold-all"),
        Binding("escape,ctrl+c", "leave", "Stop them, then back", show=False, id="alternatives.leave"),
    ]

    def __init__(
        self,
        question: str,
        found: Sequence[Alternative],
        pace: Pace,
        pick: Callable[[str], object],
        stop: Callable[[str | None], object],
    ) -> None:
        """`pick` and `stop` are told the id of a message; None stops all. `pace`: how fast one comes now."""
        super().__init__()
        self._question = display_line(question)
        self._found = tuple(found)
        self._pace = pace
        self._pick = pick
        self._stop = stop
        self._at = next((place for place, each in enumerate(found) if each.shown), 0)
        self._first = 0  # the leftmost column in view
        self._columns = [AnswerColumn(number) for number in range(1, len(found) + 1)]
        self._title = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="asked", markup=False)
        with Horizontal(id="columns"):
            yield from self._columns
        yield Static("", id="keys", markup=False)

    def on_mount(self) -> None:
        """What there is so far."""
        self._arrange()

    def on_resize(self) -> None:
        """Another width has room for more or fewer of them."""
        self._arrange()

    def show(self, found: Sequence[Alternative]) -> None:
        """The same answers, as they are now."""
        self._found = tuple(found)
        if not self.is_mounted:
            return
        for column, each in zip(self._columns, self._found, strict=True):
            if column.display:
                column.show(each, heading(column.number, self._found), state(each, self._pace(each)))
        self._tell()

    def _tell(self) -> None:
        """The line above the columns, and the keys."""
        seen = sum(column.display for column in self._columns)
        view = f"{self._first + 1}" if seen == 1 else f"{self._first + 1} to {self._first + seen}"
        part = "" if seen == len(self._columns) else f" · {view} in view"
        keys = keys_at(self)
        leave = "stop all" if any(each.live is not None for each in self._found) else "back"
        rows = [hints(row.replace("{leave}", leave), keys) for row in HINTS]
        width = self.size.width - 2
        title = f"{summary(self._found)}{part} · {self._question}"
        told = f"{title}\n{next((row for row in rows if len(row) <= width), rows[-1])}"
        if told != self._title and is_there(self):
            self._title = told
            self.query_one("#asked", Static).update(Content(title), layout=False)
            self.query_one("#keys", Static).update(Content(told.partition("\n")[2]), layout=False)

    def _arrange(self) -> None:
        """As many columns as fit, with the marked one among them."""
        count = max(1, min(MOST_COLUMNS, len(self._columns), self.size.width // LEAST_CELLS))
        self._first = min(max(self._first, self._at - count + 1), self._at, len(self._columns) - count)
        for place, column in enumerate(self._columns):
            column.display = self._first <= place < self._first + count
            column.mark(place == self._at)
        self.show(self._found)

    # ------------------------------------------------------------------ keys

    async def on_key(self, event: events.Key) -> None:
        """Bound keys in the order in which they were typed."""
        await run_bound(self, event)

    def on_click(self, event: events.Click) -> None:
        """A click marks the answer below it."""
        for place, column in enumerate(self._columns):
            if column.display and column.region.contains(event.screen_x, event.screen_y):
                self._at = place
                self._arrange()

    def action_move(self, step: int) -> None:
        """To another answer."""
        self._at = (self._at + step) % len(self._columns)
        self._arrange()

    def action_pick(self) -> None:
        """Keep the marked one."""
        if is_on_top(self):
            self._pick(self._found[self._at].message.id)

    def action_pick_number(self, number: int) -> None:
        """Keep the one with this number."""
        if number <= len(self._found) and is_on_top(self):
            self._at = number - 1
            self._arrange()
            self.action_pick()

    def action_stop_one(self) -> None:
        """Stop the marked one; what there is of it stays."""
        each = self._found[self._at]
        if each.live is not None:
            self._stop(each.message.id)

    def action_leave(self) -> None:
        """Stop all that are being written; when none is, back to the chat, which goes on with the one it shows."""
        if any(each.live is not None for each in self._found):
            self._stop(None)
        elif is_on_top(self):
            self.dismiss(None)

    def action_copy(self) -> None:
        """The marked answer without its reasoning."""
        each = self._found[self._at]
        text, thought = each.message.text, each.live.thought if each.live else thought_cost(each.message).tokens
        answer = text[split_whole(text, counted=thought > 0).answer :].strip("\n")
        if answer:
            self.app.copy_to_clipboard(answer)
        said = f"{len(answer):,} characters copied." if answer else "There is nothing in it to copy."
        self.notify(display(said), timeout=2, markup=False)

    def action_scroll(self, step: int) -> None:
        """A line up or down in the marked one."""
        self._columns[self._at].transcript.scroll_relative(y=step, animate=False)

    def action_page(self, step: int) -> None:
        """A page up or down in the marked one."""
        transcript = self._columns[self._at].transcript
        transcript.scroll_relative(y=step * max(1, transcript.size.height - 1), animate=False)

    def action_end(self) -> None:
        """To the end of the marked one."""
        self._columns[self._at].transcript.to_end()

    def action_fold_all(self) -> None:
        """The reasoning of all of them."""
        for column in self._columns:
            column.transcript.fold_all()
