"""Line plots as SVG, to stand in a page whose style sheet colours them. Pure; must not know what they mean.

Lines can be told apart without colour, by dashes and markers. Each point says its values when it is pointed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from kvchat.bench.report import Line
from kvchat.plotting import nice_top, number_text

WIDTH, HEIGHT = 640, 300
LINES = 6  # that look different
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 34
_GRID = 4  # lines across
_TICKS = 5
_DASHES = ("", "7 4", "2 4", "10 3 2 3", "4 6", "1 3")


def svg(title: str, lines: Sequence[Line], x_title: str) -> str:
    """The plot of lines over an axis called `x_title`, y from 0 up."""
    xs = [x for _, points in lines for x, _ in points]
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    top = nice_top(max((y for _, points in lines for _, y in points), default=0.0))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low) / (high - low) if high > low else 0.5
        right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        return round(_LEFT + across * (right - _LEFT), 1), round(bottom - y / top * (bottom - _TOP), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for step in range(_GRID + 1):
        value = top * step / _GRID
        _, y = place(low, value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4}">{number_text(value)}</text>')
    for x in _ticks(low, high):
        at, bottom = place(x, 0)
        parts.append(f'<text class="tick middle" x="{at}" y="{bottom + 16}">{x:,.0f}</text>')
    parts.append(f'<text class="tick middle" x="{WIDTH / 2}" y="{HEIGHT - 3}">{escape(x_title)}</text>')
    for number, (name, points) in enumerate(lines):
        parts += _line(number, name, [(place(*point), point) for point in points])
    return "\n".join([*parts, "</svg>"])


def sample(number: int) -> str:
    """A short piece of a line, for a legend."""
    return (
        f'<svg class="sample" viewBox="0 0 34 12"><g class="s{number % LINES}">'
        f'<path d="M1 6H33"{_dash(number)}/>{_marker(number, 17, 6)}</g></svg>'
    )


def _line(number: int, name: str, points: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> Iterator[str]:
    path = "L".join(f"{x} {y}" for (x, y), _ in points)
    yield f'<g class="s{number % LINES}"><path d="M{path}"{_dash(number)}/>'
    for (x, y), (at, value) in points:
        said = escape(f"{name}, {at:,.0f}: {value:,.3g}")
        yield f"<g><title>{said}</title>{_marker(number, x, y)}</g>"
    yield "</g>"


def _dash(number: int) -> str:
    dash = _DASHES[number % LINES]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _marker(number: int, x: float, y: float) -> str:
    match number % LINES:
        case 0:
            return f'<circle class="mark" cx="{x}" cy="{y}" r="4"/>'
        case 1:
            return f'<path class="mark" d="M{x} {y - 5}l5 5-5 5-5-5z"/>'
        case 2:
            return f'<circle class="hollow" cx="{x}" cy="{y}" r="4"/>'
        case 3:
            return f'<path class="mark" d="M{x} {y - 5}l5 9h-10z"/>'
        case 4:
            return f'<rect class="hollow" x="{x - 4}" y="{y - 4}" width="8" height="8"/>'
        case _:
            return f'<path d="M{x - 4} {y}h8M{x} {y - 4}v8"/>'


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within the axis, and its ends."""
    if high <= low:
        return [low]
    step = nice_top((high - low) / _TICKS)
    inner = [step * number for number in range(int(low // step) + 1, int(high // step) + 1)]
    apart = [x for x in inner if x - low > step / 2 and high - x > step / 2]
    return [low, *apart, high]
