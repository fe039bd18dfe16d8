"""The check of quality: what other cache types do to the open chat. Owns the screen, its keys, and one measurement.

It says first what it needs. The engine measures in contexts of its own; leaving ends it. Must not wait for files or for
the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from kvchat.backend.fidelity import FidelityReport, Measure, Measured, Measuring, Pair
from kvchat.bench.fidelity import SHALLOWEST, lab_bytes, passage
from kvchat.chats.ids import new_ulid
from kvchat.errors import KvchatError
from kvchat.kv.needs import Subject
from kvchat.machine import free_memory
from kvchat.ui.display import display
from kvchat.ui.inline_keys import is_on_top, is_there, run_bound
from kvchat.ui.inspector_report import write_report
from kvchat.ui.key_hints import keys_at, told
from kvchat.ui.meters import shortened
from kvchat.ui.quality_lines import Question, progress_lines, question_lines, report_lines, wrapped
from kvchat.ui.wording import sentences

if TYPE_CHECKING:
    from kvchat.ui.room import Room

MOST_TOKENS = 2048
DEPTHS = (256, 1024)
PASSAGE_TOKENS = 1024  # where the chat is too short
PAIRS: tuple[Pair, ...] = (("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q4_0", "f16"), ("f16", "q4_0"))
FEWEST = 8 * SHALLOWEST  # tokens of a chat that say something about it
REPORT_CELLS, REPORT_LINES = 100, 200
TITLE = "Check quality · what cache types do to this model"
NO_ENGINE = "No engine is ready, so nothing can be measured."

State = Literal["asking", "running", "told"]
KEYS: dict[State, tuple[str, ...]] = {
    "asking": ("{quality.start} start", "{quality.leave} back"),
    "running": ("{quality.leave} stop",),
    "told": ("{quality.export} export", "{quality.start} again", "{quality.leave} back"),
}


class Quality(ModalScreen[None]):
    """`ids` are the tokens of the chat, `subject` the model as plans are made for it, `speed` that of reading a prompt
    in tokens per second; None where they are not known."""

    DEFAULT_CSS = """
    Quality { background: $background; & > #page { width: 100%; height: 100%; padding: 0 1; text-wrap: nowrap; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "start", "Measure", show=False, id="quality.start"),
        Binding("e", "export", "Report to a file", show=False, id="quality.export"),
        Binding("escape,ctrl+c", "leave", "Stop, or back", show=False, id="quality.leave"),
    ]

    def __init__(self, room: Room, ids: tuple[int, ...], subject: Subject | None, speed: float | None) -> None:
        super().__init__()
        self._room = room
        self._own = len(ids) >= FEWEST
        self._ids = ids[: MOST_TOKENS + 1] if self._own else ()
        self._subject = subject
        self._speed = speed
        self._question: Question | None = None
        self._turn: str | None = None  # the measurement that is going on
        self._progress = (0, 0)
        self._report: FidelityReport | None = None
        self._trouble = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="page", markup=False)

    def on_mount(self) -> None:
        """Find out what it needs, away from the event loop."""
        self._room.aside(self._ask, self._asked, self._failed)

    def on_resize(self, _: events.Resize) -> None:
        """More or less fits."""
        self._draw()

    def take(self, event: Measuring | Measured) -> None:
        """What the engine says about a measurement; of another one, nothing is taken."""
        if event.turn != self._turn:
            return
        if isinstance(event, Measuring):
            self._progress = (event.done, event.total)
        else:
            self._turn = None
            self._report = event.report or self._report
            failure = event.failure
            self._trouble = sentences(failure.message, failure.hint) if failure is not None else ""
        self._draw()

    # ------------------------------------------------------------------ what it needs

    def _ask(self) -> Question:
        """On another thread."""
        tokens = min(len(self._ids), MOST_TOKENS) if self._own else PASSAGE_TOKENS
        needed = None
        if self._subject is not None:
            needed = lab_bytes(self._subject, tokens, self._pairs * 2)
        passes = 3 + len(self._pairs) + 1  # the reference, two kinds of noise, every pair, and a part of each converted
        seconds = tokens * passes / self._speed if self._speed else None
        return Question(tokens, self._own, self._pairs, needed, free_memory(), seconds)

    @property
    def _pairs(self) -> tuple[Pair, ...]:
        """The usual ones and, if it is another, the one in use."""
        ready = self._room.desk.engine.ready
        now: tuple[Pair, ...] = () if ready is None else ((ready.cache.type_k, ready.cache.type_v),)
        return tuple(pair for pair in dict.fromkeys((*now, *PAIRS)) if pair != ("f16", "f16"))

    def _asked(self, question: Question) -> None:
        self._question = question
        self._draw()

    def _failed(self, error: KvchatError) -> None:
        self._trouble = sentences(error.message, error.hint)
        self._draw()

    # ------------------------------------------------------------------ drawing

    @property
    def _state(self) -> State:
        return "running" if self._turn is not None else "told" if self._report is not None else "asking"

    def _draw(self) -> None:
        width, height = self.size.width - 2, self.size.height
        if not is_there(self) or width < 1:
            return
        keys = told(KEYS[self._state], keys_at(self))
        lines = [
            Content.styled(shortened(TITLE, width), "$primary"),
            Content(""),
            *self._lines(width, height - 4),
        ]
        shown = [*lines[: height - 1], *[Content("")] * (height - 1 - len(lines))]
        page = Content("\n").join([*shown, Content.styled("  ".join(keys), "$meta")])
        self.query_one("#page", Static).update(page, layout=False)

    def _lines(self, width: int, height: int) -> Iterable[Content]:
        if self._trouble:
            yield from wrapped(display(self._trouble), width, "$warning")
            yield Content("")
        match self._state:
            case "running":
                yield from progress_lines(*self._progress, width)
            case "told" if self._report is not None:
                yield from report_lines(self._report, width, height)
            case _ if self._room.desk.engine.ready is None:
                yield from wrapped(NO_ENGINE, width)
            case _ if self._question is not None:
                yield from question_lines(self._question, width)

    # ------------------------------------------------------------------ keys

    async def on_key(self, event: events.Key) -> None:
        """Bound keys in the order in which they were typed."""
        await run_bound(self, event)

    def action_start(self) -> None:
        """Begin."""
        question = self._question
        if self._turn is not None or question is None or self._room.desk.engine.ready is None:
            return
        self._trouble, self._progress = "", (0, 0)
        self._turn = new_ulid()
        text = "" if self._own else passage()
        depths = tuple(depth for depth in DEPTHS if 2 * depth <= question.tokens)  # nearer ones say the same
        command = Measure(self._turn, self._ids, text, (*depths, question.tokens), question.pairs, transcode=True)
        if not self._room.desk.engine.measure(command):
            self._turn = None
        self._draw()

    def action_export(self) -> None:
        """The tables as a text file."""
        report, paths = self._report, self._room.desk.paths
        if report is None:
            return
        text = "\n".join(line.plain.rstrip() for line in report_lines(report, REPORT_CELLS, REPORT_LINES)) + "\n"

        def written(path: object) -> None:
            if is_there(self):
                self.notify(display(f"Report written to {path}"), markup=False, timeout=8)

        self._room.aside(lambda: write_report(paths, text, time.time()), written, self._failed)

    def action_leave(self) -> None:
        """Stop what is measured; nothing is: back to the inspector."""
        if self._turn is not None:
            self._room.desk.engine.cancel(self._turn)
            self._turn = None
            self._draw()
        elif is_on_top(self):
            self.dismiss(None)

    def on_unmount(self) -> None:
        """Nobody looks any more."""
        if self._turn is not None:
            self._room.desk.engine.cancel(self._turn)


def deliver(app: App[object], event: Measuring | Measured) -> None:
    """To the screen that waits for it, if there is one."""
    for screen in app.screen_stack:
        if isinstance(screen, Quality):
            screen.take(event)
