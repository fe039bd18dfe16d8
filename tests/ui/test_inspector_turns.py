"""The table of turns and the plots: what a turn cost, and what it would have cost without a cache."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from rich.cells import cell_len

from kvchat.backend.values import Usage
from kvchat.chats.types import Message
from kvchat.ui.inspector_layout import Panel, pages
from kvchat.ui.inspector_turns import CHARTS, NOTHING_YET, TurnRow, chart_lines, drafted, table_lines, turn_rows

FIRST = Usage(prompt_tokens=100, computed=100, ttft_seconds=1.0, decode_tokens=40, decode_seconds=2.0, cells=140)
SECOND = Usage(
    prompt_tokens=1500,
    reused=1400,
    resident=1000,
    pages=400,
    computed=100,
    ttft_seconds=0.5,
    saved_seconds=7.0,
    decode_tokens=30,
    decode_seconds=1.0,
    cut="edited",
    cells=1530,
)
FAILED = Usage(prompt_tokens=1600, reused=1600, resident=1600, cells=1600)


def answer(name: str, usage: Usage | None, finish: str = "stop") -> Message:
    stored = None if usage is None else json.dumps(asdict(usage))
    return Message(name, "chat", None, "assistant", "", 1.0, finish, "m", stored)


ANSWERS = (
    answer("a", FIRST),
    answer("none", None, "died"),
    answer("b", SECOND, "length"),
    answer("c", FAILED, "cancelled"),
)
ROWS = turn_rows(ANSWERS, {"a", "c"})


def plain(rows: tuple[TurnRow, ...], width: int, height: int = 10, first: int = 0) -> list[str]:
    return [line.plain for line in table_lines(rows, width, height, first)]


def test_turns_are_those_that_the_engine_reported_on() -> None:
    assert [(row.number, row.shown) for row in ROWS] == [(1, True), (2, False), (3, True)]


def test_without_a_cache() -> None:
    """The first token would have come later by what the reused tokens took when they were computed."""
    assert [row.first_without for row in ROWS] == [1.0, 7.5, None]
    assert [row.speed for row in ROWS] == [20.0, 30.0, None]


def test_a_wide_table_has_it_all() -> None:
    lines = [line.split() for line in plain(ROWS, 116)]
    assert lines[0] == ["#", "prompt", "reused", "from", "computed", "first", "tok/s", "saved"]
    assert lines[1] == ["3", "1,600", "1,600", "memory", "0", "-", "-", "-", "stopped"]
    assert lines[2][:4] == ["2", "1,500", "1,400", "memory+pages"]
    assert lines[2][4:10] == ["100", "0.50", "s", "30.0", "7.0", "s"]
    assert lines[2][10:] == ["cut:", "edited,", "token", "limit,", "other", "branch"]
    assert lines[3] == ["1", "100", "0", "-", "100", "1.00", "s", "20.0", "-"]


def test_what_left_is_noted() -> None:
    usage = replace(FIRST, overflow="shift", evicted=1280, evictions=2, reasoning_evicted=214)
    line = plain(turn_rows([answer("a", usage)], {"a"}), 140)[1]
    assert line.endswith("let 1,280 go, reasoning left 214")


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (90, "# prompt reused from computed first tok/s saved"),
        (66, "# prompt reused from computed first tok/s saved"),
        (58, "# reused from computed first tok/s saved"),
        (36, "# reused computed first saved"),
    ],
)
def test_narrower_tables_leave_out_what_is_known_otherwise(width: int, columns: str) -> None:
    lines = plain(ROWS, width)
    assert " ".join(lines[0].split()) == columns
    assert max(map(cell_len, lines)) <= width


def test_where_words_have_no_room_the_glyphs_of_the_bar_stand() -> None:
    assert "█▓" in plain(ROWS, 66)[2]
    assert "memory+pages" in plain(ROWS, 90)[2]


def test_scrolling_leaves_out_the_newest() -> None:
    assert [line.split()[0] for line in plain(ROWS, 116, height=2, first=1)] == ["#", "2"]


def test_columns_stay_where_they_are_while_it_scrolls() -> None:
    assert plain(ROWS, 116)[2] == plain(ROWS, 116, first=1)[1]


# ------------------------------------------------------------------ drafts

DRAFTED = replace(FIRST, draft_kind="ngram", draft_proposed=40, draft_accepted=30, draft_speedup=1.5)
LOSING = replace(SECOND, draft_kind="both", draft_proposed=10, draft_accepted=0, draft_speedup=0.98)
WITH_DRAFTS = turn_rows(
    (answer("a", DRAFTED), answer("b", LOSING), answer("c", FIRST), answer("d", FAILED)), set("abcd")
)


def test_drafts_have_a_column_where_there_were_any() -> None:
    assert not drafted(ROWS)
    assert drafted(WITH_DRAFTS)
    lines = [line.split() for line in plain(WITH_DRAFTS, 116)]
    assert lines[0] == ["#", "prompt", "reused", "from", "computed", "first", "tok/s", "draft", "saved"]
    assert lines[1][6:9] == ["-", "-", "-"]  # a turn without an answer
    assert lines[2][7:9] == ["20.0", "-"]
    assert lines[3][7:9] == ["30.0", "0%"]
    assert lines[4][7:9] == ["20.0", "75%"]
    assert "draft" not in plain(WITH_DRAFTS, 36)[0]
    assert max(cell_len(line) for width in range(30, 120) for line in plain(WITH_DRAFTS, width) if width > 40) < 120


def test_the_lines_of_the_plot_of_drafts() -> None:
    """A turn in which nothing was drafted ran as plain decoding does, one without an answer has no point."""
    plain_decoding, accepted, speedup = CHARTS["drafts"].series(WITH_DRAFTS)
    assert plain_decoding.points == ((1, 1.0), (2, 1.0), (3, 1.0))
    assert accepted.points == ((1, 0.75), (2, 0.0))
    assert speedup.points == ((1, 1.5), (2, 0.98), (3, 1.0))
    unknown = turn_rows((answer("a", replace(DRAFTED, draft_speedup=0.0)),), {"a"})
    assert CHARTS["drafts"].series(unknown)[2].points == ()


@pytest.mark.parametrize("width", [60, 80, 108, 120, 140, 200])
@pytest.mark.parametrize("height", [18, 22, 34, 48])
def test_every_chart_is_on_one_page(width: int, height: int) -> None:
    known: dict[Panel, int] = {"context": 6, "store": 8, "memory": 10}
    for more in (False, True):
        found = [panel for page in pages(width, height, known, drafted=more) for row in page for panel in row.panels]
        expected = {"context", "store", "memory", "turns", "first", "speed", "tokens", *(["drafts"] if more else [])}
        assert (len(found), set(found)) == (len(expected), expected)


def test_no_turns() -> None:
    assert plain((), 80) == [NOTHING_YET]
    assert [line.plain for line in chart_lines(CHARTS["speed"], (), 40, 7)] == [NOTHING_YET]


def test_the_lines_of_the_plots() -> None:
    """A turn without a first token has no point in the first two; every prompt would have been computed whole."""
    without, first = CHARTS["first"].series(ROWS)
    assert (without.points, first.points) == (((1, 1.0), (2, 7.5)), ((1, 1.0), (2, 0.5)))
    (speed,) = CHARTS["speed"].series(ROWS)
    assert speed.points == ((1, 20.0), (2, 30.0))
    whole, reused, computed = CHARTS["tokens"].series(ROWS)
    assert whole.points == ((1, 100), (2, 1500), (3, 1600))
    assert reused.points == ((1, 0), (2, 1400), (3, 1600))
    assert computed.points == ((1, 100), (2, 100), (3, 0))


def test_the_plots_say_since_when_they_know() -> None:
    assert "as computed then" in CHARTS["first"].below


def test_a_chat_of_one_turn() -> None:
    """Both marks stand on the same place: nothing was reused, so nothing would have been other."""
    lines = [line.plain for line in chart_lines(CHARTS["first"], ROWS[:1], 40, 7)]
    assert sum(line.count("●") + line.count("○") for line in lines) == 1
