"""The status line. Owns which parts fit a width; must not know engines or chats, only the values of `StatusState`.

It never wraps: parts drop in a fixed order until the rest fits. What moves is drawn four times a second at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import Literal, NamedTuple

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from kvchat.ui.display import display_line

Phase = Literal[
    "starting",
    "loading",
    "loading draft",
    "rebuilding",
    "choosing",
    "idle",
    "waiting",
    "restoring",
    "reading",
    "generating",
    "stopped",
    "failed",
]
GLYPHS: dict[Phase, str] = {
    "starting": "◌",
    "loading": "◌",
    "loading draft": "◌",
    "rebuilding": "◌",
    "choosing": "◌",
    "idle": "○",
    "waiting": "◔",
    "restoring": "◔",
    "reading": "◔",
    "generating": "◐",
    "stopped": "⏸",
    "failed": "!",
}
GLYPH_STYLES: dict[Phase, str] = {
    "waiting": "$warning",
    "restoring": "$warning",
    "reading": "$warning",
    "generating": "$success",
    "failed": "$error",
}
DOING: dict[Phase, str] = {
    "starting": "starting",
    "loading": "loading",
    "loading draft": "loading the draft model",
    "rebuilding": "rebuilding the cache",
    "choosing": "no model yet",
    "idle": "",
    "waiting": "waiting for the engine",
    "restoring": "restoring",
    "reading": "reading",
    "generating": "generating",
    "stopped": "",
    "failed": "no engine",
}
SHORTEST_PAUSE = 0.25  # seconds between two drawings
BAR_CELLS = 8
BAR_GLYPHS = ("━", "─")  # used, free
LONGEST_MODEL = 28
SHORT_MODEL = 8
LONGEST_PREFIX = 16
LEVELS = 12


@dataclass(frozen=True, slots=True)
class StatusState:
    """What the line says. Tokens, seconds, tokens per second; None and "" where there is nothing to say.

    `progress` is the part of the model that is loaded, or of the prompt that is read, 0 to 1. `source` names where the
    reused tokens came from. `remaining` are the seconds until the prompt is read, about. `drafted` is the part of the
    drafted tokens that stood, 0 to 1. `left` tokens went out of the full context for this answer. `told` is a sentence
    that takes the place of what is said about the last answer. `waiting`: why the answer cannot begin yet. `incognito`:
    nothing of the chat is kept. `elsewhere` chats that are not open are being answered. `prefix`: the name of the
    pinned one that the chat begins with.
    """

    phase: Phase = "starting"
    model: str = ""
    type_k: str = ""
    type_v: str = ""
    used: int = 0
    context: int = 0
    prompt: int | None = None
    reused: int = 0
    source: str = ""
    ttft: float | None = None
    speed: float | None = None
    progress: float | None = None
    remaining: float | None = None
    drafted: float | None = None
    left: int = 0
    told: str = ""
    waiting: str = ""
    elsewhere: int = 0
    incognito: bool = False
    prefix: str = ""


class Part(NamedTuple):
    """One segment: its text, its style, and the level of shortening at which it is dropped."""

    text: str
    style: str = ""
    until: int = 99


def status_line(state: StatusState, width: int) -> Content:
    """The longest form that fits into `width` cells."""
    for level in range(LEVELS):
        parts = [part for part in _parts(state, level) if part.text and level < part.until]
        if _cells(parts) <= width:
            return _joined(parts)
    return Content(set_cell_size(_joined(parts).plain, max(0, width)).rstrip())


def _parts(state: StatusState, level: int) -> list[Part]:
    """All parts at a level of shortening, from 0 (everything) to LEVELS - 1 (the state, and what happens)."""
    return [
        Part(GLYPHS[state.phase], GLYPH_STYLES.get(state.phase, "$meta")),
        Part("incognito" if state.incognito else "", "bold $warning"),
        Part(f"on {_shortened(display_line(state.prefix), LONGEST_PREFIX)}" if state.prefix else "", until=5),
        Part(_shortened(state.model, LONGEST_MODEL if level < 8 else SHORT_MODEL), "$foreground", until=10),
        Part(_cache_types(state, long=level < 4), until=9),
        *_meter(state, level),
        *_last_answer(state, level),
        Part(_activity(state, long=level < 9), "$foreground"),
        Part(_elsewhere(state, long=level < 5), "$success", until=10),
        Part(f"let {_thousands(state.left)} go" if state.left and not state.told else "", "$warning", until=8),
        Part(_drafts(state), until=6),
    ]


def _last_answer(state: StatusState, level: int) -> list[Part]:
    if state.told:
        return [Part(state.told, "$success", until=9)]
    first = f"first {state.ttft:.2f} s" if state.ttft is not None else ""
    return [Part(_reuse(state, long=level < 5), until=7), Part(first, until=2)]


def _meter(state: StatusState, level: int) -> list[Part]:
    if not state.context:
        return []
    share = min(1.0, state.used / state.context)
    color = "$success" if share < 0.8 else "$warning" if share < 0.93 else "$error"
    percent = Part(f"{share:.0%}", color, until=11)
    if level >= 8:
        return [percent]
    full = round(share * BAR_CELLS)
    bar = Part("━" * full, color), Part("─" * (BAR_CELLS - full), "$edge")
    numbers = Part(f"{_thousands(state.used)}/{_thousands(state.context)}") if level < 3 else percent
    return [Part("ctx", until=4), *bar, numbers]


def _cache_types(state: StatusState, *, long: bool) -> str:
    if not state.type_k:
        return ""
    if state.type_k == state.type_v:
        return f"KV {state.type_k}" if long else state.type_k
    return f"K {state.type_k} V {state.type_v}" if long else f"{state.type_k}/{state.type_v}"


def _reuse(state: StatusState, *, long: bool) -> str:
    if state.prompt is None:
        return ""
    if not long:
        return f"hit {state.reused / max(1, state.prompt):.0%}"
    reused = f"reused {_thousands(state.reused)} of {_thousands(state.prompt)}"
    return f"{reused} ({state.source})" if state.source else reused


def _activity(state: StatusState, *, long: bool) -> str:
    """What is being done and how fast; in short, only the last word of it."""
    percent = f"{state.progress:.0%}" if state.progress is not None else ""
    digits = 0 if state.phase == "reading" else 1
    speed = f"{state.speed:.{digits}f} t/s" if state.speed is not None and not state.told else ""
    if not long and (percent or speed):
        return percent or speed
    left = f"{state.remaining:.0f} s" if state.remaining is not None and state.remaining >= 1 else ""
    doing = DOING[state.phase]
    if state.waiting:
        doing = f"waiting: {state.waiting}" if long else "waiting"
    return " ".join(filter(None, (doing, percent, speed, left)))


def _drafts(state: StatusState) -> str:
    return f"draft {state.drafted:.0%}" if state.drafted is not None and not state.told else ""


def _elsewhere(state: StatusState, *, long: bool) -> str:
    if not state.elsewhere:
        return ""
    return f"{state.elsewhere} in the background" if long else f"+{state.elsewhere}"


def _thousands(count: int) -> str:
    return str(count) if count < 1000 else f"{count / 1000:.1f}k".replace(".0k", "k")


def _shortened(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _joined(parts: list[Part]) -> Content:
    pieces: list[Content] = []
    for index, part in enumerate(parts):
        if index:
            pieces.append(Content(_gap(parts[index - 1], part)))
        pieces.append(Content.styled(part.text, part.style) if part.style else Content(part.text))
    return Content.assemble(*pieces)


def _cells(parts: list[Part]) -> int:
    gaps = sum(len(_gap(before, after)) for before, after in pairwise(parts))
    return gaps + sum(cell_len(part.text) for part in parts)


def _gap(before: Part, after: Part) -> str:
    """The two halves of the bar stand together, it is close to its name and numbers, the rest is further apart."""
    if before.text.startswith(BAR_GLYPHS):
        return "" if after.text.startswith(BAR_GLYPHS) else " "
    return " " if after.text.startswith(BAR_GLYPHS) or before.text in GLYPHS.values() else "  "


class StatusLine(Static):
    """One line of text below the prompt."""

    DEFAULT_CSS = "StatusLine { height: 1; padding: 0 1; color: $meta; background: $background; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._state = StatusState()
        self._drawn_at = 0.0
        self._timer: Timer | None = None

    def say(self, state: StatusState) -> None:
        """Show this, now or at the end of the shortest pause."""
        if state == self._state:
            return
        self._state = state
        if self._timer is not None:
            return
        pause = self._drawn_at + SHORTEST_PAUSE - monotonic()
        if pause <= 0:
            self._draw()
        else:
            self._timer = self.set_timer(pause, self._draw)

    def on_resize(self) -> None:
        """Another width shows other parts."""
        self._draw()

    def _draw(self) -> None:
        self._timer = None
        self._drawn_at = monotonic()
        self.update(status_line(self._state, self.content_size.width))
