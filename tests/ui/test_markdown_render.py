"""Markdown as rows: what each kind of block looks like, that nothing is lost, obeyed or wider than the window."""

from __future__ import annotations

import re

import pytest
from markdown_cases import CASES, INHERENT, texts
from rich.cells import cell_len

from kvchat.ui.code_panel import code_of
from kvchat.ui.markdown_blocks import document
from kvchat.ui.markdown_rows import runs_of
from kvchat.ui.markdown_table import fitted
from kvchat.ui.painter import COLORS


def lines(text: str, width: int = 40) -> list[str]:
    return texts(document(text, width)[0])


def inks(text: str, width: int = 60) -> dict[str, str]:
    """The ink of each run."""
    return {run.text: run.ink for row in document(text, width)[0] for run in runs_of(row)}


def test_a_paragraph_keeps_the_line_feeds_that_were_written() -> None:
    assert lines("one\ntwo  \nthree\\\nfour") == ["one", "two", "three", "four"]


def test_emphasis_code_and_links() -> None:
    text = "a **b** *c* ***d*** ~~e~~ `f *g*` [h](https://i.j/k) <https://l.m> ![n](o.png)"
    assert lines(text, 200) == ["a b c d e f *g* h (https://i.j/k) https://l.m n (o.png)"]
    found = inks(text, 200)
    assert found["b"] == "text/b"
    assert found["c"] == "text/i"
    assert found["d"] == "text/bi"
    assert found["e"] == "text/s"
    assert found["f *g*"] == "code"
    assert found["h"] == "link"
    assert found[" (https://i.j/k)"] == "meta"
    assert found["https://l.m"] == "link"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd"])
def test_other_addresses_are_no_links(address: str) -> None:
    assert lines(f"[x]({address})", 80) == [f"[x]({address})"]


def test_headings_lists_and_tasks() -> None:
    text = "# Title\ntext\n## Part\n- a\n- b\n  1. c\n  2. d\n\n3. x\n4. y\n\n- [ ] todo\n- [x] done"
    assert lines(text) == [
        "Title",
        "text",
        "",
        "Part",
        "• a",
        "• b",
        "  1. c",
        "  2. d",
        "",
        "3. x",
        "4. y",
        "",
        "[ ] todo",
        "[x] done",
    ]
    assert inks(text)["Title"] == "title/b"


def test_items_wrap_behind_their_mark() -> None:
    assert lines("- one two three four\n- five", 12) == ["• one two", "  three four", "• five"]


def test_a_loose_list_keeps_its_blank_lines() -> None:
    assert lines("- a\n\n- b\n- c") == ["• a", "", "• b", "• c"]


def test_quotes_and_rules() -> None:
    assert lines("> a\n>\n> > b\n\n---\nc", 20) == ["▎ a", "▎", "▎ ▎ b", "", "─" * 20, "", "c"]


def test_code_stands_in_a_panel_and_wraps() -> None:
    text = "```python\n\tx = 1\n\ny = 'abcdefghij klmno'\n```"
    assert lines(text, 20) == [
        "╭ python ──────────╮",
        "│     x = 1",
        "│",
        "│ y = 'abcdefghij",
        "│ klmno'",
        "╰──────────────────╯",
    ]
    assert lines("    a\n      b", 10) == ["╭────────╮", "│ a", "│   b", "╰────────╯"]


def test_a_table_is_aligned_by_cells_and_not_by_characters() -> None:
    text = "| 键 | right | mid |\n|:--|--:|:-:|\n| 值值值 | 1 | x |\n| a | 22 | **가나** |"
    assert lines(text) == [
        "键     │ right │ mid",
        "───────┼───────┼─────",
        "值值值 │     1 │  x",
        "a      │    22 │ 가나",
    ]


def test_a_table_that_is_too_wide_wraps_its_cells() -> None:
    text = "| name | what it does |\n|---|---|\n| f16 | two bytes for each number |\n| q8 | one |"
    assert lines(text, 20) == [
        "name │ what it does",
        "─────┼──────────────",
        "f16  │ two bytes for",
        "     │ each number",
        "q8   │ one",
    ]


def test_a_table_of_too_many_columns_becomes_a_list() -> None:
    text = "| one | two | three |\n|---|---|---|\n| aaaa | bbbb | cccc |\n| d | e | f |"
    assert lines(text, 12) == ["one: aaaa", "two: bbbb", "three: cccc", "", "one: d", "two: e", "three: f"]


def test_columns_share_what_there_is_and_the_widest_give_first() -> None:
    assert fitted([5, 30, 10], 100) == [5, 30, 10]
    assert fitted([5, 30, 10], 35) == [5, 20, 10]
    assert fitted([5, 30, 30], 36) == [5, 16, 15]
    assert fitted([2, 30, 30], 9) == []


def test_html_and_definitions_of_links_are_shown_as_they_were_written() -> None:
    assert lines("<div>\n<b>x</b>\n</div>\n\nA <i>y</i> z<br>w\n\n[1]: http://a.b") == [
        "<div>",
        "<b>x</b>",
        "</div>",
        "",
        "A <i>y</i> z",
        "w",
        "",
        "[1]: http://a.b",
    ]


def test_formulas_keep_their_backslashes_and_stars() -> None:
    text = r"so \( a_1 * b \{ * c \) and \[ \frac{a}{b} \] and $$x * y * z$$ but \( open *x*"
    assert lines(text, 200) == [r"so \( a_1 * b \{ * c \) and \[ \frac{a}{b} \] and $$x * y * z$$ but \( open x"]


@pytest.mark.parametrize("entity", ["&#27;[2J", "&#x9b;2J", "&#0;", "&#x202e;", "&#13;", "&#x7f;"])
def test_entities_do_not_bring_back_what_a_terminal_would_obey(entity: str) -> None:
    for text in (
        entity,
        f"`x` {entity}",
        f"| a |\n|---|\n| {entity} |",
        f"[x](http://a.b/{entity})",
        f"```{entity}\n```",
    ):
        shown = "".join(lines(text, 80))
        assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in shown)


@pytest.mark.parametrize("name", [*CASES, *INHERENT])
@pytest.mark.parametrize("width", [96, 40, 17, 9, 4, 1])
def test_no_row_is_wider_than_the_room_and_no_word_is_lost(name: str, width: int) -> None:
    text = {**CASES, **INHERENT}[name]
    shown = lines(text, width)
    assert all(cell_len(line) <= max(width, 8) for line in shown)
    joined = re.sub(r"\W", "", "".join(shown))
    words = [word for word in re.findall(r"[^\W_]+", text) if word not in ("lt", "amp", "copy", "42", "br", "title")]
    if width >= 40 and name != "table with odd cells":  # a line of a table has as many cells as its heading
        assert [word for word in words if word not in joined] == []


def test_nesting_without_end_is_shown_as_it_was_written() -> None:
    text = "> " * 500 + "deep"
    assert "deep" in "".join(lines(text, 80))
    text = "".join("  " * n + "- a\n" for n in range(60)) + "  " * 60 + "- last"
    assert "last" in "".join(lines(text, 80))


def test_blocks_know_their_source() -> None:
    text = "# Title\n\npara **b**\n\n- a\n- b\n\n```py\nx = 1\n\ny\n```\n\n    z\n\n| a |\n|---|\n| 1 |\n"
    blocks = document(text, 40)[1]
    assert [text[block.start : block.end] for block in blocks] == [
        "# Title",
        "para **b**",
        "- a\n- b",
        "```py\nx = 1\n\ny\n```",
        "    z",
        "| a |\n|---|\n| 1 |",
    ]
    rows = lines(text)
    assert rows[blocks[3].first : blocks[3].first + blocks[3].rows] == [
        "╭ py ──────────────────────────────────╮",
        "│ x = 1",
        "│",
        "│ y",
        "╰──────────────────────────────────────╯",
    ]


@pytest.mark.parametrize(
    ("kind", "source", "code"),
    [
        ("fence", "```py\na\n\n  b\n```", "a\n\n  b"),
        ("fence", "~~~~\n~~~\n~~~~~", "~~~"),  # a shorter row of tildes is code
        ("fence", "```\na\n", "a\n"),  # not closed
        ("fence", "```", ""),
        ("code_block", "    a\n\n      b\n\tc", "a\n\n  b\nc"),
    ],
)
def test_code_is_copied_without_its_fence(kind: str, source: str, code: str) -> None:
    assert code_of(kind, source) == code


def test_every_ink_is_known_to_the_painter() -> None:
    mixed = "# **a** `b` [*c*](d)\n\n| **a** *b* ~~c~~ | `d` |\n|--|--|\n| ***x*** | [`y`](z) |\n\n> **- `q`**"
    for text in (*CASES.values(), mixed, "```python\nx = 1\n```"):
        for row in document(text, 50)[0]:
            for run in runs_of(row):
                name, _, marks = run.ink.partition("/")
                assert name in COLORS
                assert set(marks) <= set("bis")


@pytest.mark.parametrize("name", CASES)
def test_every_run_shows_the_source_that_it_names(name: str) -> None:
    text = CASES[name]
    for row in document(text, 50)[0]:
        for run in runs_of(row):
            if run.start >= 0 and run.end - run.start == len(run.text) and "─" not in run.text:
                assert text[run.start : run.end].replace("\t", " ") == run.text.replace("\t", " ")
