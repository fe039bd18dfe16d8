"""The parts without a screen: wrapping, status line, commands, pastes, graphemes, wording, inbox, positions."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import asdict, replace

import pytest
from rich.cells import cell_len
from textual import events
from wcwidth import iter_graphemes

from kvchat.backend.protocol import Loading, Warmed
from kvchat.backend.values import Usage
from kvchat.chats.types import Message
from kvchat.clean import normal
from kvchat.ui import slash
from kvchat.ui.graphemes import boundary_after, boundary_before
from kvchat.ui.inbox import Inbox
from kvchat.ui.paste import SafePasteParser
from kvchat.ui.positions import Positions
from kvchat.ui.status import StatusState, status_line
from kvchat.ui.undo import Undo
from kvchat.ui.wording import age, duration, entries, footer, source, warmed
from kvchat.ui.wrap import shown, source_offset, wrap

# ------------------------------------------------------------------ wrap


@pytest.mark.parametrize(
    ("text", "width", "rows"),
    [
        ("", 10, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("one  two", 4, ["one", "two"]),  # white space at a break belongs to no row
        ("  indented text", 10, ["  indented", "text"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("a abcdefgh", 4, ["a", "abcd", "efgh"]),  # a long word begins in a row of its own
        ("a\n\nb", 10, ["a", "", "b"]),
        ("键值缓存", 5, ["键值", "缓存"]),  # two cells each: a half does not fit
        ("键值。缓存", 4, ["键", "值。", "缓存"]),  # a full stop never begins a row
        ("值（缓存）", 4, ["值", "（缓", "存）"]),  # a bracket never ends one
        ("한국어 문장", 8, ["한국어", "문장"]),  # Korean breaks at spaces
        ("ab👩‍💻👩‍💻", 4, ["ab👩‍💻", "👩‍💻"]),  # never within a grapheme
        ("\tx", 10, ["    x"]),
        ("ab\tx", 10, ["ab  x"]),  # to the next multiple of four
        ("⚠️⚠️⚠️", 2, ["⚠⚠", "⚠"]),  # one cell each, as all terminals draw it
    ],
)
def test_wrap(text: str, width: int, rows: list[str]) -> None:
    assert [shown(text, row) for row in wrap(text, width)] == rows


def test_wrap_any_text() -> None:
    """No row is too wide, nothing but white space is lost, and a text that grows is wrapped as the whole one is."""
    rng = random.Random(11)
    pieces = [
        "a",
        " ",
        "  ",
        "word",
        "longwordlonger",
        "\n",
        "键",
        "，",
        "（",
        "한",
        "국",
        "👩‍💻",
        "⚠️",
        "\t",
        "e\u0301",
        "    ",
    ]
    for _ in range(1_500):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 40)))
        width = rng.randint(1, 14)
        rows = wrap(text, width)
        for row in rows:
            assert cell_len(shown(text, row).rstrip(" ")) <= max(width, 4), (text, width)  # 4: a tab that is alone
        kept = {index for row in rows for index in range(*row)}
        assert all(character in " \n\t" for index, character in enumerate(text) if index not in kept)
        grown, growing = "", []
        for grapheme in iter_graphemes(text):
            grown += grapheme
            growing += wrap(grown, width, growing.pop().start if growing else 0)
        assert growing == rows, (text, width)


def test_source_offset_behind_tabs_and_past_the_end() -> None:
    text = "ab\tcd"
    row = wrap(text, 20)[0]
    assert [source_offset(text, row, column) for column in (-1, 0, 1, 2, 3, 4, 5, 6, 9)] == [0, 0, 1, 2, 2, 3, 4, 5, 5]


def test_source_offset_behind_what_is_not_drawn() -> None:
    text = "1\ufe0f\u20e3\u26a0\ufe0fx"
    row = wrap(text, 20)[0]
    assert shown(text, row) == "1\u26a0x"
    assert [source_offset(text, row, column) for column in (0, 1, 2, 3)] == [0, 3, 5, 6]


# ------------------------------------------------------------------ status

FULL = StatusState("idle", "Qwen3-4B-Q4_K_M", "q8_0", "q4_0", 2113, 8192, 812, 768, "pages", 0.42, 34.1)


def test_status_line_in_full() -> None:
    text = status_line(FULL, 200).plain
    assert text.startswith(
        "○ Qwen3-4B-Q4_K_M  K q8_0 V q4_0  ctx ━━────── 2.1k/8.2k  reused 768 of 812 (pages)  first 0.42 s  34.1 t/s"
    )
    assert text.endswith("34.1 t/s")


@pytest.mark.parametrize(
    ("width", "kept", "dropped"),
    [
        (120, ["2.1k/8.2k", "reused 768 of 812 (pages)", "first 0.42 s"], []),
        (95, ["2.1k/8.2k", "reused 768"], ["first"]),
        (88, ["26%", "reused 768"], ["2.1k"]),
        (64, ["Qwen3-4B-Q4_K_M", "q8_0/q4_0", "━", "26%", "hit 95%", "34.1 t/s"], ["reused"]),
        (50, ["Qwen3", "q8_0/q4_0", "26%", "34.1 t/s"], ["hit"]),
        (40, ["Qwen3", "q8_0/q4_0", "26%", "34.1 t/s"], ["━"]),
        (20, ["○", "26%", "34.1 t/s"], ["q8_0"]),
    ],
)
def test_status_line_drops_in_order(width: int, kept: list[str], dropped: list[str]) -> None:
    text = status_line(FULL, width).plain
    assert [part for part in kept if part not in text] == []
    assert [part for part in dropped if part in text] == []


@pytest.mark.parametrize(
    ("width", "kept", "dropped"),
    [
        (200, ["34.1 t/s  draft 71%", "first 0.42 s"], []),
        (120, ["2.1k/8.2k", "draft 71%"], []),
        (95, ["26%", "reused 768", "draft 71%"], ["2.1k"]),
        (76, ["hit 95%", "34.1 t/s  draft 71%"], ["reused"]),
        (64, ["hit 95%", "34.1 t/s"], ["draft"]),
        (50, ["34.1 t/s"], ["draft", "hit"]),
    ],
)
def test_drafts_in_the_status_line_go_before_the_hits(width: int, kept: list[str], dropped: list[str]) -> None:
    text = status_line(replace(FULL, drafted=0.714), width).plain
    assert [part for part in kept if part not in text] == []
    assert [part for part in dropped if part in text] == []


def test_where_nothing_was_drafted_nothing_is_said_of_it() -> None:
    assert "draft" not in status_line(FULL, 200).plain
    assert "draft 0%" in status_line(replace(FULL, drafted=0.0), 200).plain


@pytest.mark.parametrize("width", range(1, 201))
def test_status_line_never_wraps(width: int) -> None:
    states = [
        FULL,
        replace(FULL, drafted=1.0),
        replace(FULL, phase="reading", progress=0.61, speed=212.0, ttft=None, model="键值缓存量化" * 8),
        replace(FULL, phase="generating", used=9999, type_v="q8_0"),
        StatusState("loading", progress=0.4),
        StatusState("failed"),
    ]
    for state in states:
        text = status_line(state, width).plain
        assert cell_len(text) <= width
        assert "\n" not in text


def test_status_line_while_reading() -> None:
    state = replace(FULL, phase="reading", progress=0.61, speed=212.3, ttft=None)
    assert "◔ " in status_line(state, 120).plain
    assert "reading 61% 212 t/s" in status_line(state, 120).plain
    assert "61%" in status_line(state, 24).plain


# ------------------------------------------------------------------ commands


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("hello", slash.Say("hello")),
        (" /new", slash.Say(" /new")),
        ("//new", slash.Say("/new")),
        ("/new", slash.Command("/new", "")),
        ("/new  be brief \n", slash.Command("/new", "be brief")),
        ("/new\nbe\nbrief", slash.Command("/new", "be\nbrief")),
        ("/contniue", slash.Unknown("/contniue", "/continue")),
        ("/usr/bin/env is a path", slash.Unknown("/usr/bin/env", "")),
        ("/", slash.Unknown("/", "")),
    ],
)
def test_slash(text: str, meant: object) -> None:
    assert slash.read(text) == meant


# ------------------------------------------------------------------ paste


def test_normal_paste() -> None:
    assert normal("a\r\nb\rc\x1b[31mred\x1b[0m\x1b]0;t\x07\x9b1m\x00\ttab") == "a\nb\ncred1m\ttab"


def feed(*reads: str) -> list[tuple[str, str]]:
    parser = SafePasteParser()
    found = []
    for read in reads:
        for message in parser.feed(read):
            if isinstance(message, events.Paste):
                found.append(("paste", message.text))
            elif isinstance(message, events.Key):
                found.append(("key", message.key))
    return found


@pytest.mark.parametrize(
    ("reads", "found"),
    [
        (["\x1b[200~a\rb\x1b[201~\r"], [("paste", "a\nb"), ("key", "enter")]),
        (["\x1b[200~a\x1b[31m\r", "b\x1b[201~c"], [("paste", "a\nb"), ("key", "c")]),
        (["x\x1b[200~one\x1b[201~\x1b[200~two\x1b[201~"], [("key", "x"), ("paste", "one"), ("paste", "two")]),
        (["\x1b[200~a\x1b[20", "1~b"], [("paste", "a"), ("key", "b")]),  # the end in two pieces
        (["\x1b[20", "0~a\x1b[31m\r", "b\x1b[201~c"], [("paste", "a\nb"), ("key", "c")]),  # the beginning, too
        ([*"x\x1b[200~a\rb\x1b[201~c"], [("key", "x"), ("paste", "a\nb"), ("key", "c")]),
        (["\x1b[2", "4~", "\x1b", "[A"], [("key", "f12"), ("key", "up")]),
        (["\x1b[2", "4~\x1b[200~abcdef\x1b[2", "01~"], [("key", "f12"), ("paste", "abcdef")]),
        (["\x1b[A"], [("key", "up")]),
    ],
)
def test_pastes_come_whole(reads: list[str], found: list[tuple[str, str]]) -> None:
    assert feed(*reads) == found


def test_a_paste_without_an_end_does_not_take_the_keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = SafePasteParser()
    assert list(parser.feed("\x1b[200~half")) == []
    assert list(parser.tick()) == []
    monkeypatch.setattr("kvchat.ui.paste.LONGEST_WAIT", -1.0)
    assert [message.text for message in parser.tick() if isinstance(message, events.Paste)] == ["half"]
    assert [message.key for message in parser.feed("x") if isinstance(message, events.Key)] == ["x"]


def test_a_paste_whose_beginning_came_in_two_pieces_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first piece alone would be the key Escape and letters when nothing follows it soon."""
    parser = SafePasteParser()
    assert list(parser.feed("\x1b[20")) == []
    assert list(parser.feed("0~a")) == []
    monkeypatch.setattr("textual._parser.get_time", lambda: 1e12)
    assert list(parser.tick()) == []
    assert [message.text for message in parser.feed("b\x1b[201~") if isinstance(message, events.Paste)] == ["ab"]


def test_the_pieces_of_a_large_paste_are_joined_once() -> None:
    """To join them with each read made a paste of 12 MB take twice as long."""
    parser = SafePasteParser()
    for read in ("\x1b[200~", "a", "b"):
        assert list(parser.feed(read)) == []
    assert parser._held == ["\x1b[200~", "a", "b"]


# ------------------------------------------------------------------ graphemes


@pytest.mark.parametrize(
    ("text", "column", "before", "after"),
    [
        ("abc", 1, 0, 2),
        ("a👩‍💻b", 4, 1, 5),
        ("a👩‍💻b", 1, 0, 4),
        ("e\u0301x", 2, 0, 3),
        ("🇰🇷🇯🇵", 2, 0, 4),
        ("한국", 1, 0, 2),
        ("", 0, 0, 0),
        ("x" * 1000 + "👩‍💻", 1003, 1000, 1003),
    ],
)
def test_graphemes(text: str, column: int, before: int, after: int) -> None:
    assert boundary_before(text, column) == before
    assert boundary_after(text, column) == after


# ------------------------------------------------------------------ wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (59, "now"),
        (60, "1m"),
        (3599, "59m"),
        (7200, "2h"),
        (86400 * 6, "6d"),
        (86400 * 21, "3w"),
        (4e8, "12y"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    assert age(seconds) == text


def reply(finish: str | None, usage: Usage | None = None) -> Message:
    stored = None if usage is None else json.dumps(asdict(usage) | {"of_a_later_version": 1})
    return Message("m", "c", None, "assistant", "text", 0.0, finish, "model", stored)


def test_footer_of_a_finished_answer() -> None:
    usage = Usage(800, 768, 32, 700, 68, 0, "edited", decode_tokens=12, decode_seconds=0.2, ttft_seconds=0.15)
    assert footer(reply("stop", usage), resumable=True) == (
        "12 tokens · 60.0 tok/s · first 0.15 s · reused 768 of 800 from memory+pages · cut: edited"
    )


def test_footer_of_an_answer_with_drafts() -> None:
    usage = Usage(decode_tokens=90, decode_seconds=1.5, ttft_seconds=0.4, draft_kind="model", draft_proposed=70)
    usage = replace(usage, draft_accepted=50, draft_speedup=1.349)
    text = "90 tokens · 60.0 tok/s · drafts 50 of 70 (draft model), 1.35 times plain · first 0.40 s"
    assert footer(reply("stop", usage), resumable=True) == text
    unknown = replace(usage, draft_kind="\x1b[31mevil", draft_speedup=0.0)  # from a damaged file
    assert "drafts 50 of 70 · first" in footer(reply("stop", unknown), resumable=True)


@pytest.mark.parametrize(
    ("finish", "text"),
    [
        ("stop", ""),
        ("cancelled", "stopped: /continue goes on"),
        (None, "interrupted: /continue goes on"),
        ("died", "the engine died: /continue goes on"),
        ("length", "stopped at the token limit: /continue goes on"),
        ("context", "the context is full: /overflow says what may leave, then /continue goes on"),
    ],
)
def test_footer_of_an_answer_that_was_cut_short(finish: str | None, text: str) -> None:
    assert footer(reply(finish), resumable=True) == text
    assert "/continue" not in footer(reply(finish), resumable=False)


def test_footer_of_a_message_that_did_not_fit() -> None:
    """Nothing was read, so no numbers; going on could not work."""
    usage = Usage(prompt_tokens=1_430, cells=300, excess=1_175)
    assert footer(reply("context", usage), resumable=True) == "not answered: 1,175 tokens too long for the context"


def test_only_the_last_answer_can_go_on() -> None:
    shown_entries = entries([reply("cancelled"), replace(reply("cancelled"), id="n")], None, lambda _: ())
    assert [entry.footer for entry in shown_entries] == ["stopped", "stopped: /continue goes on"]


# ------------------------------------------------------------------ inbox and positions


def test_inbox_wakes_once_per_batch_and_keeps_the_order() -> None:
    inbox = Inbox()
    woken = []
    inbox.post(Loading(0.0))  # before anybody listens
    inbox.listen(lambda: woken.append(1))
    threads = [threading.Thread(target=lambda: [inbox.post(Loading(n / 100)) for n in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inbox.take()) == 401
    assert woken == [1]
    inbox.post(Loading(0.1))
    inbox.post(Loading(0.2))
    assert woken == [1, 1]
    assert inbox.take() == [Loading(0.1), Loading(0.2)]
    inbox.ignore()
    inbox.post(Loading(0.3))
    assert woken == [1, 1]


def test_positions() -> None:
    positions = Positions()
    positions.reset([3, 4, 5])
    assert [positions.at(line) for line in (-1, 0, 2, 3, 6, 7, 11, 99)] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert positions.set(1, 10) == 6
    assert (positions.total, positions.top(2), positions.exact(0), positions.exact(1)) == (18, 13, False, True)
    positions.add(2)
    assert (positions.total, positions.at(18), positions.exact(3)) == (20, 3, True)


# ------------------------------------------------------------------ what is told ahead of a turn, and undone


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(), ""),
        (Usage(pages=9), "pages"),
        (Usage(resident=3, pages=9), "memory+pages"),
        (Usage(pages=9, transcoded="f16", transcoded_tokens=9), "f16 pages"),
        (Usage(resident=3, pages=9, transcoded="f16", transcoded_tokens=9), "memory+f16 pages"),
        (Usage(pages=9, transcoded="q8_0", transcoded_tokens=4), "pages+q8_0 pages"),
        (Usage(resident=9, transcoded="q8_0", transcoded_tokens=9), "memory+q8_0 pages"),  # they came between turns
        (Usage(checkpoint=9, transcoded="q8_0", transcoded_tokens=9), "checkpoint+q8_0 pages"),
    ],
)
def test_where_reused_tokens_came_from(usage: Usage, words: str) -> None:
    assert source(usage) == words


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Warmed("t", 1234, 1234, 1234, 0.05, None), "1,234 tokens back from pages in 0.05 s"),
        (Warmed("t", 1234, 1233, 1000, 0.0, None), "1,233 tokens back from pages in 0.01 s"),  # never "in 0.00 s"
        (Warmed("t", 1234, 512, 512, 0.2, None), "512 of 1,234 tokens back from pages in 0.20 s"),
        (
            Warmed("t", 1234, 1234, 1234, 0.05, None, transcoded="f16", transcoded_tokens=1234),
            "1,234 tokens back from f16 pages in 0.05 s",
        ),
        (
            Warmed("t", 1234, 1234, 1234, 0.05, None, transcoded="q8_0/q4_0", transcoded_tokens=34),
            "1,234 tokens back from pages and q8_0/q4_0 pages in 0.05 s",
        ),
        (
            Warmed("t", 900, 900, 0, 0.05, None, checkpoint=900, transcoded="f16", transcoded_tokens=900),
            "900 tokens back from f16 pages in 0.05 s",
        ),
        (Warmed("t", 40, 40, 0, 0.0, None), "40 tokens in memory"),
        (Warmed("t", 40, 0, 0, 0.0, "model"), "nothing kept: 40 tokens to compute (model)"),
        (Warmed("t", 0, 0, 0, 0.0, None), ""),
    ],
)
def test_warmed(event: Warmed, text: str) -> None:
    assert warmed(event) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (0.62, "0.6 s"), (9.94, "9.9 s"), (12.4, "12 s"), (119, "119 s"), (240, "4 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_undo_holds_the_last_thing_for_a_while() -> None:
    now = [0.0]
    undone: list[str] = []
    undo = Undo(lambda: now[0])
    assert not undo.take()
    undo.offer(lambda: undone.append("first"))
    undo.offer(lambda: undone.append("second"), seconds=10)
    now[0] = 9.9
    assert undo.take()
    assert not undo.take()
    undo.offer(lambda: undone.append("third"), seconds=10)
    now[0] = 20.0
    assert not undo.take()
    assert undone == ["second"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/mo", ""),
        ("/cache q8", "/cache [K] [V]: cache types: f16, bf16, q8_0, q4_0"),
        ("/undo", "/undo: take back the last deletion, the last summary, or what left a full context last"),
        ("/nothing like it", ""),
        ("//etc", ""),
    ],
)
def test_a_command_is_explained_while_it_is_typed(text: str, told: str) -> None:
    assert slash.explain(text) == told
