"""Lines of the transcript to strips of styled cells. Owns the strip cache; must not know scrolling or messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from kvchat.ui.entry import Kind, Line
from kvchat.ui.markdown_rows import Run

BAR = "▌ "
NOTE_MARKS: dict[Kind, str] = {"info": "· ", "warning": "! ", "error": "✗ "}
COLUMN = 96  # cells of text at most: longer lines are hard to read
PILL = " ↓ new "
CACHED_STRIPS = 256

# What each ink is painted with: a variable of the theme.
COLORS = {
    "text": "$foreground",
    "user": "$accent",
    "heading": "$primary",
    "meta": "$meta",
    "info": "$meta",
    "warning": "$warning",
    "error": "$error",
    "mark": "$warning",
    "title": "$primary",
    "link": "$primary",
    "bullet": "$primary",
    "edge": "$edge",
    "code": "$success",
    "code-keyword": "$accent",
    "code-string": "$success",
    "code-number": "$warning",
    "code-name": "$primary",
    "code-comment": "$meta",
    "code-deleted": "$error",
}
# One component for each colour, and not for each ink: Textual styles every one of them before the first frame.
_COMPONENT = {ink: f"transcript--{color[1:]}" for ink, color in COLORS.items()} | {"mark": "transcript--mark"}
COMPONENTS = {*_COMPONENT.values(), "transcript--pill"}
CSS = "".join(
    f"& > .{name} {{ color: {color}; background: $background; }}"
    for name, color in sorted({(_COMPONENT[ink], color) for ink, color in COLORS.items()})
)
CSS += "& > .transcript--pill { color: $background; background: $primary; }"
_MARKS = {"b": Style(bold=True), "i": Style(italic=True), "s": Style(strike=True)}


class Painter:
    """Draws lines at one width. `style` gives the style of a component class, `clear` is for a change of either."""

    def __init__(self, style: Callable[[str], Style]) -> None:
        self._style = style
        self._strips: LRUCache[tuple[Kind, Line, bool], Strip] = LRUCache(CACHED_STRIPS)
        self._inks: dict[str, Style] = {}
        self._filters: Sequence[LineFilter] = ()
        self._background = Color(0, 0, 0)
        self.width = 0

    def reset(self, width: int, filters: Sequence[LineFilter], background: Color) -> None:
        """Forget all strips and draw for `width` cells from now on."""
        self.width = width
        self._filters = filters
        self._background = background
        self._strips.clear()
        self._inks.clear()

    @property
    def margin(self) -> int:
        """Cells left free at both sides; none in a narrow window."""
        return 2 if self.width >= 60 else 0

    @property
    def indent(self) -> int:
        """Characters, all one cell wide, that stand before the text in every line."""
        return self.margin + len(BAR)

    @property
    def text_width(self) -> int:
        """Cells that text may take."""
        return max(1, min(COLUMN, self.width - self.indent - max(1, self.margin)))

    def strip(self, kind: Kind, line: Line, marked: bool = False) -> Strip:
        """The line, filled to the width; `marked`: its entry is the one that is marked."""
        key = (kind, line, marked)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._filtered(self._draw(kind, line, marked))
            self._strips[key] = strip
        return strip

    def plain(self, text: str, ink: str) -> Strip:
        """A line that belongs to no entry."""
        segments = [Segment(" " * self.margin, self._ink("text")), Segment(text, self._ink(ink))]
        return self._filtered(self._filled(segments))

    def with_pill(self, strip: Strip) -> Strip:
        """The strip with the button that leads to what came below the view."""
        left = max(0, self.width - len(PILL) - 1)
        pill = Strip([Segment(PILL, self._style("transcript--pill"))], len(PILL))
        return Strip.join([strip.crop(0, left), self._filtered(pill), strip.crop(left + len(PILL), self.width)])

    def _draw(self, kind: Kind, line: Line, marked: bool) -> Strip:
        base = self._ink("text")
        mark, mark_style = "  ", base
        if line.role != "blank":
            if marked:
                mark, mark_style = BAR, self._ink("mark")
            elif kind == "user":
                mark, mark_style = BAR, self._ink("user")
            elif kind in NOTE_MARKS and line.runs and line.runs[0].start == 0:
                mark, mark_style = NOTE_MARKS[kind], self._ink(kind)
        drawn = (self._segment(kind, line, run) for run in line.runs)
        return self._filled([Segment(" " * self.margin, base), Segment(mark, mark_style), *drawn])

    def _segment(self, kind: Kind, line: Line, run: Run) -> Segment:
        ink = run.ink
        if line.role == "heading":
            ink = "user" if kind == "user" else "heading"
        elif line.role == "footer":
            ink = "meta"
        elif kind in NOTE_MARKS:
            ink = kind
        return Segment(run.text, self._ink(ink))

    def _ink(self, ink: str) -> Style:
        style = self._inks.get(ink)
        if style is None:
            name, _, marks = ink.partition("/")
            style = self._style(_COMPONENT[name])
            for mark in marks:
                style += _MARKS[mark]
            self._inks[ink] = style
        return style

    def _filled(self, segments: list[Segment]) -> Strip:
        cells = sum(cell_len(segment.text) for segment in segments)
        if cells < self.width:
            segments.append(Segment(" " * (self.width - cells), self._ink("text")))
        strip = Strip(segments, max(cells, self.width))
        return strip if cells <= self.width else strip.crop(0, self.width)

    def _filtered(self, strip: Strip) -> Strip:
        for line_filter in self._filters:
            strip = strip.apply_filter(line_filter, self._background)
        return strip
