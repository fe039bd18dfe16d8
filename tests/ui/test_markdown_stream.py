"""Markdown that is streamed: the rows of the whole, nothing but the tail changes, and the cost is that of the tail."""

from __future__ import annotations

from itertools import accumulate

import pytest
from markdown_cases import CASES, INHERENT, pieces, texts, trimmed

from kvchat.ui import code_lines, markdown_stream
from kvchat.ui.markdown_blocks import document
from kvchat.ui.markdown_parse import Parsed
from kvchat.ui.markdown_rows import runs_of
from kvchat.ui.markdown_stream import Stream
from kvchat.ui.markdown_table import Table


def streamed(text: str, width: int, seed: int) -> Stream:
    """The stream after all pieces; settled rows are the same objects from then on."""
    stream = Stream(width)
    for shown in accumulate(pieces(text, seed)):
        before = list(stream.settled)
        first = stream.feed(shown)
        assert first == len(before)
        assert all(now is then for now, then in zip(stream.settled, before, strict=False))
        assert len(stream.settled) >= len(before)
    return stream


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [96, 31, 9])
def test_in_any_pieces_the_rows_are_those_of_the_whole(name: str, width: int) -> None:
    text = CASES[name]
    rows, blocks = document(text, width)
    for seed in range(6) if len(text) < 1_000 else (1,):
        stream = streamed(text, width, seed)
        got = trimmed([*stream.settled, *stream.tail])
        assert texts(got) == texts(rows)
        assert [block.kind for block in stream.blocks][-1:] == [block.kind for block in blocks][-1:]


@pytest.mark.parametrize("name", INHERENT)
def test_where_the_end_changes_the_beginning_only_the_end_is_right(name: str) -> None:
    """These must stay few: the last render of a reply puts them right."""
    stream = streamed(INHERENT[name], 96, 1)
    assert texts(trimmed([*stream.settled, *stream.tail])) != texts(document(INHERENT[name], 96)[0])


@pytest.mark.parametrize("name", CASES)
def test_inks_and_sources_are_those_of_the_whole_too(name: str) -> None:
    text = CASES[name]
    stream = streamed(text, 60, 3)
    got = [runs_of(row) for row in trimmed([*stream.settled, *stream.tail])]
    for mine, whole in zip(got, [runs_of(row) for row in document(text, 60)[0]], strict=True):
        assert merged(mine) == merged(whole)


def merged(row: tuple[tuple[str, str, int, int], ...]) -> list[tuple[str, str]]:
    """Text and ink, neighbours of the same ink as one. Code that is not closed has its colours later."""
    found: list[tuple[str, str]] = []
    for text, ink, *_ in row:
        plain = "text" if ink.startswith("code-") else ink
        if found and found[-1][1] == plain:
            found[-1] = (found[-1][0] + text, plain)
        elif text:
            found.append((text, plain))
    return found


# Name -> document, and how often each of its characters may be parsed when it comes in pieces of twelve.
LONG = {
    "code of 200 KB": ("```python\n" + "    value = compute(alpha)[index]  # note\n" * 4_700 + "```\n", 6),
    "table of 400 rows": ("| a | b |\n|---|--:|\n" + "".join(f"| row {n} | {n} |\n" for n in range(400)), 8),
    "paragraph of 10,000 tokens": ("word and **bold** text " * 1_800, 70),
    "paragraph in which a mark is open": ("word and * more text " * 600, 160),
    "list of 1,500 items": ("".join(f"- item {n} with words\n" for n in range(1_500)), 8),
    "list below one item": ("- top\n" + "".join(f"  - item {n} with words\n" for n in range(400)), 160),
    "quote of one paragraph": ("> " + "word and more text " * 2_000, 160),
    "html": ("<div>\n" + "<p>some text</p>\n" * 1_500, 160),
    "one line of code": ("```\n" + "x" * 40_000, 160),
}


def parsed_characters(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    count = 0

    def counting(source: str, start: int = 0, prefix: str = "") -> Parsed:
        nonlocal count
        count += len(prefix) + len(source) - start
        return Parsed(source, start, prefix)

    monkeypatch.setattr(markdown_stream, "Parsed", counting)
    stream = Stream(96)
    for end in range(12, len(text) + 12, 12):
        stream.feed(text[:end])
    return count


@pytest.mark.parametrize("name", LONG)
def test_each_character_is_parsed_a_limited_number_of_times(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, times = LONG[name]
    whole = parsed_characters(text, monkeypatch)
    half = parsed_characters(text[: len(text) // 2], monkeypatch)
    assert whole <= times * len(text)
    assert whole <= 2.5 * half  # twice the text, twice the cost


def test_each_line_of_code_is_highlighted_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    highlighted = code_lines.highlighted
    count = 0

    def counting(language: str, lines: list[str], *, passing: bool = False) -> object:
        nonlocal count
        count += len(lines)
        return highlighted(language, lines, passing=passing)

    monkeypatch.setattr(code_lines, "highlighted", counting)
    line = "    value = compute(alpha)[index]  # note\n"
    text = "```python\n" + line * 500
    stream = Stream(96)
    for end in range(12, len(text), 12):
        stream.feed(text[:end])
        for row in [*stream.settled, *stream.tail][-40:]:  # what a screen draws
            runs_of(row)
    assert count <= 30 * 500


def test_a_table_lays_its_rows_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Table._line
    count = 0

    def counting(self: Table, number: int, cells: list[object]) -> object:
        nonlocal count
        count += 1
        return line(self, number, cells)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "_line", counting)
    text = "| a | b |\n|---|--:|\n" + "".join(f"| row {n:03} | {n:03} |\n" for n in range(400))
    stream = Stream(96)
    feeds = 0
    for end in range(8, len(text), 8):
        stream.feed(text[:end])
        feeds += 1
    assert count <= 2 * feeds + 400  # each row when it is complete, and the one that is being written
