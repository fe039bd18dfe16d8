"""Screens of a terminal, one after the other, as one SVG that moves by CSS alone.

Owns the format of the picture. Must not know what is shown. Each row that was ever drawn is in it once, and is placed
where and when it stood; who asked for reduced motion, and a viewer that cannot animate, sees the last screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style

CELL, LINE, SIZE, EDGE = 8.4, 18, 14, 10  # pixels: width and height of a cell, height of letters, margin
INK, PAPER = "#c8cdea", "#16161e"
_CONSOLE = Console()

Row = tuple[tuple[str, Style], ...]
"""A line of the screen: texts with their looks, from left to right."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The screen as it stood for so many seconds."""

    rows: tuple[Row, ...]
    seconds: float


def rows_of(screen: str) -> tuple[Row, ...]:
    """A screen with its SGR sequences, as `tmux capture-pane -eN -p` writes it; a look lasts over the end of a line."""
    lines = AnsiDecoder().decode(screen)
    return tuple(tuple((part.text, part.style or Style()) for part in line.render(_CONSOLE)) for line in lines)


def moving(frames: Sequence[Frame], columns: int, title: str) -> str:
    """The picture, of `columns` cells in width; it begins anew at its end."""
    total = sum(frame.seconds for frame in frames)
    names: dict[Row, str] = {}
    classes: dict[tuple[tuple[float, float], ...], str] = {}
    uses = []
    last = frames[-1].rows
    for (row, content), spans in _stands(frames).items():
        name = names.setdefault(content, f"r{len(names)}")
        when = classes.setdefault(tuple(spans), f"k{len(classes)}")
        end = " z" if row < len(last) and last[row] == content else ""
        uses.append(f'<use href="#{name}" y="{row * LINE}" class="{when}{end}"/>')
    width, height = columns * CELL + 2 * EDGE, max(len(frame.rows) for frame in frames) * LINE + 2 * EDGE
    moves = [_keyframes(name, spans, total) for spans, name in classes.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            "<style>",
            f"text{{font:{SIZE}px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:{INK};white-space:pre}}",
            "use{visibility:hidden}.z{visibility:visible}",
            *moves,
            "@media (prefers-reduced-motion:reduce){use{animation:none!important}}",
            "</style>",
            "<defs>",
            *(f'<g id="{name}">{"".join(_drawn(content))}</g>' for content, name in names.items()),
            "</defs>",
            f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
            f'<g transform="translate({EDGE} {EDGE})">',
            *uses,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _stands(frames: Sequence[Frame]) -> dict[tuple[int, Row], list[tuple[float, float]]]:
    """When each row with something in it stands where: spans of seconds, those that touch made one."""
    found: dict[tuple[int, Row], list[tuple[float, float]]] = {}
    start = 0.0
    for frame in frames:
        end = start + frame.seconds
        for row, content in enumerate(frame.rows):
            if not any(text.strip() or style.bgcolor for text, style in content):
                continue
            spans = found.setdefault((row, content), [])
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        start = end
    return found


def _keyframes(name: str, spans: Sequence[tuple[float, float]], total: float) -> str:
    steps = "" if spans[0][0] == 0 else "0%{visibility:hidden}"
    for start, end in spans:
        steps += f"{_share(start, total)}{{visibility:visible}}"
        steps += "" if end >= total else f"{_share(end, total)}{{visibility:hidden}}"
    return f".{name}{{animation:{name} {total:.1f}s step-end infinite}}@keyframes {name}{{{steps}}}"


def _share(seconds: float, total: float) -> str:
    return f"{100 * seconds / total:.2f}".rstrip("0").rstrip(".") + "%"


def _drawn(content: Row) -> Iterator[str]:
    """One row: backgrounds, then letters. The width of each text is given, so that columns meet in any font."""
    column, texts = 0, []
    for text, style in content:
        width = cell_len(text)
        ink, paper = _colours(style)
        if paper != PAPER:
            yield f'<rect x="{_px(column)}" width="{_px(width)}" height="{LINE}" fill="{paper}"/>'
        if bare := text.strip():
            texts.append(_text(bare, column + cell_len(text[: text.index(bare)]), ink, style))
        column += width
    yield from texts


def _text(text: str, column: int, ink: str, style: Style) -> str:
    looks = "" if ink == INK else f' style="fill:{ink}"'
    looks += ' font-weight="bold"' if style.bold else ""
    looks += ' font-style="italic"' if style.italic else ""
    looks += ' text-decoration="underline"' if style.underline else ""
    long = f' textLength="{_px(cell_len(text))}"' if len(text) > 1 else ""
    return f'<text x="{_px(column)}" y="{SIZE}"{long}{looks}>{escape(text, quote=False)}</text>'


def _colours(style: Style) -> tuple[str, str]:
    """Of the letters and of what is behind them."""
    ink, paper = _hex(style.color, INK, foreground=True), _hex(style.bgcolor, PAPER, foreground=False)
    return (paper, ink) if style.reverse else (ink, paper)


def _hex(color: Color | None, usual: str, *, foreground: bool) -> str:
    if color is None or color.is_default:
        return usual
    return color.get_truecolor(foreground=foreground).hex


def _px(cells: int) -> str:
    return f"{cells * CELL:.1f}".removesuffix(".0")
