"""What the list of chats is made of: groups by the calendar, marks, pieces of text around them, rows of one width."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from rich.cells import cell_len

from kvchat.chats.types import Chat
from kvchat.ui.grouping import grouped
from kvchat.ui.marking import excerpt, marks
from kvchat.ui.sidebar_rows import ChatState, row


def chat(name: str, updated: float = 1.0, pinned_at: float | None = None) -> Chat:
    return Chat(name, name, 1.0, updated, "", 1.0, "", None, pinned_at=pinned_at)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_groups_are_days_of_the_local_calendar(berlin: None) -> None:
    """The clock goes back an hour on 2026-10-25: that day has 25 hours."""
    now = at("2026-10-26T00:30")
    ages = {
        "future": "2026-10-27T10:00",
        "today": "2026-10-26T00:00",
        "an hour ago": "2026-10-25T23:30",
        "25 hours ago": "2026-10-25T00:10",
        "two days": "2026-10-24T23:59",
        "a week": "2026-10-19T00:00",
        "more": "2026-10-18T23:59",
    }
    groups = grouped([chat(name, at(text)) for name, text in ages.items()], now)
    assert [(head, [member.id for member in members]) for head, members in groups] == [
        ("Today", ["future", "today"]),
        ("Yesterday", ["an hour ago", "25 hours ago"]),
        ("Previous 7 days", ["two days", "a week"]),
        ("Older", ["more"]),
    ]


def test_pinned_chats_keep_their_order_whatever_is_used() -> None:
    now = time.time()
    chats = [
        chat("new", now),
        chat("b", now, pinned_at=2.0),
        chat("c", 5.0, pinned_at=3.0),
        chat("a", 9.0, pinned_at=1.0),
    ]
    groups = grouped(chats, now)
    assert [(head, [member.id for member in members]) for head, members in groups] == [
        ("Pinned", ["a", "b", "c"]),
        ("Today", ["new"]),
    ]
    assert grouped([], now) == []


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Café au lait, cafés", "cafe", ["Café", "café"]),
        ("cafe", "CAFÉ", ["cafe"]),
        ("naï\u0308ve", "naive", ["naï\u0308ve"]),  # the accent belongs to the letter
        ("xhello hello", "hello", ["hello"]),  # where a word begins
        ("kv-cache of kv_cache", "cache", ["cache", "cache"]),
        ("请解释注意力机制", "注意力", ["注意力"]),
        ("한국어 캐시", "국어", ["국어"]),
        ("a -> b", "->", ["->"]),
        ("Straße", "strasse", ["Straße"]),
        ("one two three", "two one", ["one", "two"]),
        ("hellohello", "hello hell", ["hello"]),
        ("aaaa", "a aa", ["aa"]),
        ("abc", "x", []),
        ("abc", " ", []),
    ],
)
def test_marks(text: str, query: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in marks(text, query)] == marked


@pytest.mark.parametrize(
    "text", ["before " * 30 + "needle" + " after" * 30, "键值" * 40 + "needle" + "缓存" * 40, "needle" * 9]
)
def test_an_excerpt_shows_the_match(text: str) -> None:
    piece = excerpt(text, "needle" if "before" in text or "needleneedle" in text else "needle值 needle", 26)
    assert "needle" in piece and cell_len(piece) <= 26
    assert excerpt("short", "needle", 26) == "short"


def test_an_excerpt_begins_with_a_whole_word() -> None:
    assert excerpt("nobody knows when a window slides over it", "window", 26) == "…a window slides over it"


@pytest.mark.parametrize(
    "title",
    [
        "",
        "x" * 300,
        "键" * 30,
        "👩‍💻" * 20,
        "⚠️" * 30,
        "1️⃣ one",
        "שלום" * 9,
        "e\u0301" * 40,
        "[b]$x[/]",
        "\x1b[2J\u202e\n\t\x9b",
        "🇰🇷" * 15,
    ],
)
def test_a_row_is_as_wide_as_the_others(title: str) -> None:
    for query in ("", "x"):
        line = row(chat(title), 1000.0, 28, is_open=True, state=ChatState("done"), query=query).plain
        assert cell_len(line) == 28
        assert line.endswith(" 16m") and not set(line) & set("\x1b\u202e\n\t\x9b")


@pytest.mark.parametrize("cells", [28, 12, 6])
def test_what_goes_on_takes_the_place_of_the_age(cells: int) -> None:
    state = ChatState("waiting", "waits", "the context\x1b[2J is full of\nother answers")
    line, *more = row(chat("Trip to Rome"), 1000.0, cells, is_open=False, state=state).plain.split("\n")
    assert line.startswith(" ◔") and line.endswith(" waits")
    assert cell_len(line) == max(cells, 9)  # a glyph, a letter and the words
    assert 0 < len(more) <= 3 and all(cell_len(each) <= cells and "\x1b" not in each for each in more)
