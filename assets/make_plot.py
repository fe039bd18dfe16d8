"""The plot of the README, from what `kvchat bench --json` printed.

python assets/make_plot.py benchmarks/results/bench-2026-11-30.json     # writes assets/resume.svg
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path

from kvchat.bench.report import lines, read_report
from kvchat.commands.bench_svg import HEIGHT, WIDTH, svg

STYLE = """
text { font-family: sans-serif } .tick { fill: #6a7078; font-size: 12px } .end { text-anchor: end }
.middle { text-anchor: middle } .grid { stroke: #dedad1 } .paper { fill: #fbfaf7 }
svg path { fill: none; stroke-width: 2; stroke: currentColor } .mark, svg path.mark { fill: currentColor; stroke: none }
.hollow { fill: #fbfaf7; stroke: currentColor; stroke-width: 2 } .name { fill: currentColor; font-size: 13px }
.s0 { color: #1f6fb2 } .s1 { color: #c2571a } .s2 { color: #2e8540 } .s3 { color: #8a3ea8 }
"""
HEAD = 26  # pixels for the names of the lines


def main() -> None:
    report = read_report(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    part = next(each for each in report.parts if each.name == "resume")
    plot = part.plots[0]
    drawn = lines(part, plot)
    names = "".join(
        f'<g class="s{number}"><text class="name" x="{60 + 130 * number}" y="18">{escape(name)}</text></g>'
        for number, (name, _) in enumerate(drawn)
    )
    inside = svg(plot.title, drawn, "seconds to the first token, by tokens of the prompt")
    sized = inside.replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)
    Path(__file__).with_name("resume.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + HEAD}">\n<style>{STYLE}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT + HEAD}"/>\n{names}\n'
        f'<g transform="translate(0 {HEAD})">\n{sized}\n</g>\n</svg>\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
