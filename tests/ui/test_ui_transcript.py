"""The transcript: what stands where, follow, lazy measuring, widths, selection."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.geometry import Offset, Region
from textual.selection import Selection
from textual.strip import Strip

from kvchat.ui.entry import Entry, Kind, Line
from kvchat.ui.painter import Painter
from kvchat.ui.theme import VARIABLES
from kvchat.ui.transcript import Transcript


class Host(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript(["welcome"])

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES


def view(transcript: Transcript) -> list[str]:
    size = transcript.size
    return [strip.text.rstrip() for strip in transcript.render_lines(Region(0, 0, size.width, size.height))]


def user(number: int, text: str) -> Entry:
    return Entry(f"u{number}", "user", text, heading="you 14:02")


def answer(number: int, text: str, footer: str = "", live: bool = False) -> Entry:
    return Entry(f"a{number}", "assistant", text, heading="Model 14:02", footer=footer, live=live)


async def test_lines_of_a_short_chat() -> None:
    async with Host().run_test(size=(80, 14)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        assert view(transcript)[0] == "  welcome"
        transcript.show([user(1, "Hello\nthere"), answer(2, "General *Kenobi*.", footer="3 tokens")])
        await pilot.pause()
        assert view(transcript)[:9] == [
            "  ▌ you 14:02",
            "  ▌ Hello",
            "  ▌ there",
            "",
            "    Model 14:02",
            "    General Kenobi.",
            "    3 tokens",
            "",
            "",
        ]


async def test_a_live_answer_has_a_caret_and_loses_it() -> None:
    async with Host().run_test(size=(80, 10)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, "", live=True)])
        await pilot.pause()
        assert view(transcript)[1] == "    ▍"
        transcript.append("a1", "one ")
        transcript.append("a1", "two\n\nthree")
        await pilot.pause()
        assert view(transcript)[1:4] == ["    one two", "", "    three▍"]
        transcript.finish("a1", "done")
        await pilot.pause()
        assert view(transcript)[1:5] == ["    one two", "", "    three", "    done"]


async def test_emoji_are_drawn_in_one_cell_and_copied_as_they_were_written() -> None:
    text = "a \u26a0\ufe0f 1\ufe0f\u20e3 b"
    async with Host().run_test(size=(80, 10)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([Entry("a1", "assistant", text, heading="\u26a0\ufe0f model")])
        await pilot.pause()
        assert view(transcript)[:2] == ["    \u26a0 model", "    a \u26a0 1 b"]
        assert transcript.get_selection(Selection(Offset(0, 1), Offset(11, 1))) == (text, "\n")
        assert transcript.get_selection(Selection(Offset(6, 1), Offset(7, 1))) == ("\u26a0\ufe0f", "\n")


async def test_streaming_in_any_pieces_gives_the_same_lines_as_the_whole_text() -> None:
    text = (
        "Plain words, 键值缓存的误差（量化）。한국어 문장입니다\n\n\tcode = '👩‍💻'\n" + "long" * 30 + "\n- item\n" * 3
    )
    rng = random.Random(7)
    async with Host().run_test(size=(48, 40)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, text)])
        await pilot.pause()
        expected = view(transcript)
        for _ in range(6):
            transcript.show([answer(1, "", live=True)])
            position = 0
            while position < len(text):
                size = rng.randint(1, 9)
                transcript.append("a1", text[position : position + size])
                position += size
            transcript.finish("a1", "")
            await pilot.pause()
            assert view(transcript) == expected


async def test_follow_is_released_by_scrolling_up_and_taken_up_at_the_end() -> None:
    async with Host().run_test(size=(60, 12)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, "\n".join(f"line {n}" for n in range(50)), live=True)])
        await pilot.pause()
        assert view(transcript)[-2].startswith("    line 49") or "line 49" in "\n".join(view(transcript))
        transcript.scroll_up(animate=False)
        await pilot.pause()
        before = view(transcript)
        for n in range(20):
            transcript.append("a1", f"\nmore {n}")
        await pilot.pause()
        after = view(transcript)
        assert after[:-1] == before[:-1]  # the last line now holds the pill
        assert "↓ new" in after[-1]
        transcript.to_end()
        await pilot.pause()
        assert "more 19" in "\n".join(view(transcript))
        assert "↓ new" not in "\n".join(view(transcript))
        transcript.append("a1", "\nthe end")
        await pilot.pause()
        assert "the end" in "\n".join(view(transcript))


async def test_an_entry_that_is_added_is_followed() -> None:
    async with Host().run_test(size=(60, 12)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, "line\n" * 50)])
        await pilot.pause()
        transcript.add(user(2, "a question"))
        transcript.note("a note\nof two lines")
        await pilot.pause()
        assert "a question" in "\n".join(view(transcript))
        assert [line.strip() for line in view(transcript)[-4:]] == ["", "· a note", "of two lines", ""]


async def test_five_thousand_messages_page_up_exactly() -> None:
    rng = random.Random(3)
    texts = [" ".join("word" * rng.randint(1, 3) for _ in range(rng.randint(1, 120))) for _ in range(5_000)]
    async with Host().run_test(size=(80, 20)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(n, f"{n} {text}") for n, text in enumerate(texts)])
        await pilot.pause()
        assert sum(item._width > 0 for item in transcript._items) < 60  # only what is near the end was wrapped
        pages = [view(transcript)]
        for _ in range(30):
            transcript.scroll_page_up(animate=False)
            await pilot.pause()
            pages.append(view(transcript))
        # Overlap-free pages, joined from the top, are consecutive lines of the full rendering.
        joined = [line for page in reversed(pages) for line in page]
        headings = [line for line in joined if line.startswith("    Model")]
        numbers = [int(line.split()[0]) for before, line in pairwise(joined) if before.startswith("    Model")]
        assert len(headings) > 30
        assert numbers == list(range(numbers[0], 5_000))


@pytest.mark.parametrize("width", [20, 21, 40, 59, 60, 80, 200])
async def test_no_line_is_wider_than_the_window(width: int) -> None:
    text = "键值缓存量化的误差 👩‍💻⚠️🇰🇷 한국어 문장 plain text\twith tab\n" * 3
    async with Host().run_test(size=(width, 30)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([user(1, text), answer(2, text, footer=text)])
        transcript.note(text, "warning")
        await pilot.pause()
        size = transcript.size
        for strip in transcript.render_lines(Region(0, 0, size.width, size.height)):
            assert strip.cell_length == size.width
            assert cell_len(strip.text) == size.width


async def test_resize_keeps_the_entry_in_view() -> None:
    async with Host().run_test(size=(100, 20)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(n, f"start of {n} " + "word " * 100) for n in range(100)])
        await pilot.pause()
        for _ in range(10):
            transcript.scroll_page_up(animate=False)
            await pilot.pause()
        wanted = next(line.split()[2] for line in view(transcript) if "start of" in line)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        shown = [line.split()[2] for line in view(transcript) if "start of" in line]
        assert not transcript.follow
        assert any(abs(int(number) - int(wanted)) <= 1 for number in shown)


async def test_copy_takes_the_source_and_not_the_wrapping() -> None:
    question, text = "why?", "word " * 30 + "end\n\n\tindented 键值 text"
    async with Host().run_test(size=(60, 30)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([user(1, question), answer(2, text)])
        await pilot.pause()

        def copied(start: Offset | None, end: Offset | None) -> str:
            found = transcript.get_selection(Selection(start, end))
            return found[0] if found else ""

        assert copied(None, None) == question + "\n\n" + text
        lines = view(transcript)
        row = next(y for y, line in enumerate(lines) if "indented" in line)
        begin = lines[row].index("键")
        assert copied(Offset(begin, row), Offset(begin + 2, row)) == "键值"
        assert copied(Offset(4, 1), Offset(7, 1)) == "why"
        assert copied(Offset(2, 0), Offset(9, 0)) == ""  # a heading is not part of the source


async def test_selection_is_drawn() -> None:
    async with Host().run_test(size=(60, 10)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([user(1, "键值 abc")])
        await pilot.pause()
        plain = transcript.render_lines(Region(0, 1, 59, 1))[0]
        transcript.screen.selections = {transcript: Selection(Offset(4, 1), Offset(6, 1))}
        await pilot.pause()
        chosen = transcript.render_lines(Region(0, 1, 59, 1))[0]
        assert chosen.text == plain.text
        styles = {segment.text: segment.style for segment in Strip(chosen)}
        assert "键值" in styles
        assert styles["键值"] != styles[" abc"]


async def test_what_a_terminal_would_obey_is_visible_or_gone() -> None:
    evil = "a\x1b]0;title\x07b\x9b2Jc\u202ed\x00e\r\nf"
    async with Host().run_test(size=(60, 30)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([Entry("1", "user", evil, heading=evil, footer=evil), answer(2, "", live=True)])
        transcript.append("a2", evil)
        transcript.finish("a2", evil)
        transcript.note("[bold]no markup[/]" + evil)
        await pilot.pause()
        text = "\n".join(view(transcript))
        assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in text)
        assert "␛]0;title" in text
        assert "[bold]no markup[/]" in text


def copied(transcript: Transcript, start: tuple[int, int] | None, end: tuple[int, int] | None) -> str:
    """The source between two characters of the transcript, `(column, line)`."""
    selection = Selection(None if start is None else Offset(*start), None if end is None else Offset(*end))
    found = transcript.get_selection(selection)
    return found[0] if found else ""


async def test_a_selection_of_markdown_is_its_source() -> None:
    text = "# Title\n\nSome **bold** words &amp; `code`.\n\n- one\n- two *three*\n\n```py\nx = 1\n\n\ty\n```\n\nend"
    async with Host().run_test(size=(60, 30)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, text)])
        await pilot.pause()
        rows = view(transcript)

        def at(shown: str) -> tuple[int, int]:
            row = next(y for y, line in enumerate(rows) if shown in line)
            return rows[row].index(shown), row

        bold, title, two, code = at("bold"), at("Title"), at("two"), at("x = 1")
        assert copied(transcript, bold, (bold[0] + 4, bold[1])) == "bold"
        assert copied(transcript, (bold[0] + 2, bold[1]), (bold[0] + 7, bold[1])) == "ld** wo"
        amp = at("&")
        assert copied(transcript, amp, (amp[0] + 1, amp[1])) == "&amp;"
        assert copied(transcript, title, (title[0] + 5, title[1])) == "# Title"  # the whole block
        assert copied(transcript, at("itle"), bold) == "itle\n\nSome "
        assert copied(transcript, two, (two[0] + 9, two[1])) == "two *three"
        assert copied(transcript, at("one"), (60, two[1])) == "- one\n- two *three*"
        tab = at("    y")
        assert copied(transcript, code, (60, tab[1])) == "x = 1\n\n\ty"  # code from inside comes without its fence
        assert copied(transcript, at("two"), (60, tab[1])) == "two *three*\n\n```py\nx = 1\n\n\ty\n```"
        assert copied(transcript, at("py"), (60, at("end")[1])) == "```py\nx = 1\n\n\ty\n```\n\nend"
        assert copied(transcript, None, None) == text


async def test_folded_reasoning_is_not_copied_and_unfolds_for_all() -> None:
    text = "<think>\nhmm\n</think>\n\nYes."
    async with Host().run_test(size=(60, 30)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, text), answer(2, text), answer(3, "No.")])
        await pilot.pause()
        assert view(transcript)[1:4] == ["    ▸ thought · 1 word", "", "    Yes."]
        assert copied(transcript, None, (60, 3)).strip() == "Yes."
        transcript.fold("a2", True)
        await pilot.pause()
        assert view(transcript)[5:10] == ["    Model 14:02", "    ▾ thought · 1 word", "      hmm", "", "    Yes."]
        transcript.fold_all()
        transcript.add(answer(4, text))
        await pilot.pause()
        assert "\n".join(view(transcript)).count("▾ thought") == 3
        assert copied(transcript, None, (60, 4)).strip() == text
        transcript.fold_all()
        await pilot.pause()
        assert "\n".join(view(transcript)).count("▸ thought") == 3


async def test_while_markdown_streams_only_its_last_rows_are_painted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    paint = Painter._draw
    count = 0

    def counting(self: Painter, kind: Kind, line: Line, marked: bool) -> Strip:
        nonlocal count
        count += 1
        return paint(self, kind, line, marked)

    monkeypatch.setattr(Painter, "_draw", counting)
    text = "First **one**.\n\n" + "- item with words\n" * 10 + "\n```py\n" + "x = 1  # note\n" * 10 + "```\n\nend"
    async with Host().run_test(size=(60, 40)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, "", live=True)])
        await pilot.pause()
        count = appends = 0
        for end in range(0, len(text), 4):
            transcript.append("a1", text[end : end + 4])
            view(transcript)
            appends += 1
        assert count <= 3 * appends
        transcript.finish("a1", "done")
        await pilot.pause()
        rows = view(transcript)
        assert rows[1:4] == ["    First one.", "", "    • item with words"]
        assert "▍" not in "".join(rows)


async def test_an_answer_that_is_resized_while_it_streams_ends_as_the_whole() -> None:
    text = "<think>\na b c\n</think>\n\n| a | b |\n|---|---|\n" + "| some words | more of them |\n" * 9 + "\nend of it"
    async with Host().run_test(size=(100, 40)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, "", live=True)])
        for number, end in enumerate(range(0, len(text), 20)):
            transcript.append("a1", text[end : end + 20])
            await pilot.resize_terminal(100 - 9 * (number % 8), 40)
            await pilot.pause()
        transcript.finish("a1", "")
        await pilot.resize_terminal(50, 40)
        await pilot.pause()
        got = view(transcript)
        transcript.show([answer(1, text)])
        await pilot.pause()
        assert [re.sub(r" for [\d.]+ s", "", line) for line in got] == view(transcript)


async def test_a_mark_moves_over_blocks_and_brings_them_into_view() -> None:
    text = "\n\n".join(f"paragraph {n}\n" + "line\n" * 6 for n in range(9))
    async with Host().run_test(size=(60, 12)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([user(1, "one\n\ntwo"), answer(2, text, footer="3 tokens")])
        await pilot.pause()

        def marked() -> list[str]:
            return [line[4:] for line in view(transcript) if line.startswith("  ▌")]

        transcript.mark("a2", 3)
        await pilot.pause()
        assert marked() == ["paragraph 3", *["line"] * 6]
        transcript.mark("a2", -1)
        await pilot.pause()
        assert marked() == ["paragraph 8", *["line"] * 6, "3 tokens"]
        assert transcript.marked is not None
        assert transcript.marked[0].block_text(transcript.marked[1]) == "paragraph 8\n" + "line\n" * 5 + "line"
        transcript.mark("u1")
        await pilot.pause()
        assert marked() == ["you 14:02", "one", "", "two"]
        transcript.mark(None)
        await pilot.pause()
        assert transcript.marked is None


@pytest.mark.parametrize("width", [20, 33, 80])
async def test_markdown_fills_every_row_of_cells(width: int) -> None:
    table, code = "| 键 | b |\n|--|--:|\n| 值值值 | 1 |", "```py\n\tx = '键值' # ⚠️ long long long\n```"
    text = f"# 键值\n\n> - `한국어` **문장** 👩‍💻⚠️🇰🇷\n\n{table}\n\n{code}"
    async with Host().run_test(size=(width, 40)) as pilot:
        transcript = pilot.app.query_one(Transcript)
        transcript.show([answer(1, f"<think>{text}</think>\n\n{text}")])
        transcript.fold_all()
        await pilot.pause()
        size = transcript.size
        for strip in transcript.render_lines(Region(0, 0, size.width, size.height)):
            assert cell_len(strip.text) == size.width
