"""A benchmark's report as one HTML page: tables, plots as SVG, light and dark. Owns that form; must not measure.

The page needs nothing from anywhere: no script, font, picture or style of another place. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from kvchat.bench.report import NOISY, Part, Report, Row, lines
from kvchat.clean import clean_line
from kvchat.commands.bench_svg import sample, svg
from kvchat.commands.bench_words import SPREAD, facts, section, value_text

_STYLE = """
:root { --paper: #fbfaf7; --ink: #22262b; --soft: #6a7078; --edge: #dedad1;
  --s0: #1f6fb2; --s1: #c2571a; --s2: #2e8540; --s3: #8a3ea8; --s4: #b3243b; --s5: #6b6b00; }
@media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e4e2dc; --soft: #9aa0a8; --edge: #343a41;
  --s0: #6cb6ff; --s1: #ff9e57; --s2: #7fd68d; --s3: #d6a0f0; --s4: #ff8a9a; --s5: #d6d05e; } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 74rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.45 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 0 1rem } h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem }
h3 { font-size: 1rem; font-weight: 600; margin: 0 0 .4rem }
p { margin: .3rem 0 .8rem; max-width: 60rem } .soft, figcaption { color: var(--soft) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .94rem }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; border-bottom: 1px solid var(--edge); white-space: nowrap }
th { color: var(--soft); font-weight: 500 } td.number, th.number { text-align: right; padding: .25rem 0 .25rem .9rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 }
dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1.2rem 2rem;
  margin-top: 1.2rem }
figure { margin: 0 } figure > svg { width: 100%; height: auto; display: block }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .9rem }
.sample { width: 34px; height: 12px; vertical-align: middle; margin-right: .4rem }
.grid { stroke: var(--edge) } .tick { fill: var(--soft); font-size: 12px }
.end { text-anchor: end } .middle { text-anchor: middle }
svg path { fill: none; stroke-width: 2; stroke: currentColor } .mark, svg path.mark { fill: currentColor; stroke: none }
.hollow { fill: var(--paper); stroke: currentColor; stroke-width: 2 }
""" + "\n".join(f".s{number} {{ color: var(--s{number}) }}" for number in range(6))


def page(report: Report) -> str:
    """The whole page."""
    name = _text(section(report.setup, "model").get("name"))
    body = [f"<h1>kvchat bench: {name}</h1>", _facts(facts(report.setup).items())]
    body += [line for part in report.parts for line in _part(part)]
    body += [f'<p class="soft">{remark}</p>' for remark in _remarks(report)]
    body += ["<h2>Set-up</h2>", _facts(_flat(report.setup))]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>kvchat bench: {name}</title>",
            f"<style>{_STYLE}</style>\n</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def _text(value: object) -> str:
    return escape(clean_line(str(value)))


def _facts(found: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in found)
    return f"<dl>{rows}</dl>"


def _flat(setup: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in setup.items():
        name = f"{above}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, list):
            if value:
                yield name, ", ".join(map(str, value))
        elif value is not None:
            yield name, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _part(part: Part) -> Iterator[str]:
    yield f"<h2>{_text(part.title)}</h2>"
    yield f'<p class="soft">{_text(part.method)}</p>'
    if part.rows:
        yield '<div class="wide"><table>'
        heads = (f"<th{_number(part, key)}>{_text(title)}</th>" for key, title in _titles(part))
        yield f"<tr>{''.join(heads)}</tr>"
        yield from (_row(part, row) for row in part.rows)
        yield "</table></div>"
    yield '<div class="plots">'
    for spec in part.plots:
        drawn = lines(part, spec)
        if any(len(points) > 1 for _, points in drawn):
            yield f"<figure><h3>{_text(spec.title)}</h3>"
            yield svg(spec.title, drawn, part.column(spec.x).title)
            legend = "".join(f"<span>{sample(number)}{_text(name)}</span>" for number, (name, _) in enumerate(drawn))
            yield f'<figcaption class="legend">{legend}</figcaption></figure>'
    yield "</div>"
    yield from (f"<p>Note: {_text(note)}</p>" for note in part.notes)


def _titles(part: Part) -> list[tuple[str, str]]:
    return [(column.key, column.title) for column in part.columns]


def _number(part: Part, key: str) -> str:
    return "" if part.column(key).kind == "text" else ' class="number"'


def _row(part: Part, row: Row) -> str:
    cells = (
        f"<td{_number(part, column.key)}>{_text(value_text(column, row.get(column.key)))}</td>"
        for column in part.columns
    )
    return f"<tr>{''.join(cells)}</tr>"


def _remarks(report: Report) -> Iterator[str]:
    yield _text(SPREAD)
    noisy = ", ".join(part.title.lower() for part in report.parts if part.noisy() > NOISY)
    if noisy:
        yield _text(f"values differ by more than {NOISY:.0%} in {noisy}: other programs may have been at work")
    yield _text(f"measured in {report.seconds:,.0f} s" + (", ended before it was done" if report.interrupted else ""))
