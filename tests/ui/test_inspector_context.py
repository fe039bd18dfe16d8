"""What is in the context: parts and origins against the counts that engine and ids give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest
from rich.cells import cell_len

from kvchat.backend.protocol import PromptProgress, Restored, Warmed
from kvchat.backend.values import Usage
from kvchat.chats.types import Message, Role
from kvchat.conversation import LiveTurn
from kvchat.ui.context_bar import FREE
from kvchat.ui.inspector_context import ORIGINS, SPEAKERS, ContextView, Part, context_lines, context_view


def said(name: str, role: Role, usage: Usage | None = None) -> Message:
    stored = None if usage is None else json.dumps(asdict(usage))
    return Message(name, "chat", None, role, name, 1.0, "stop", "m", stored)


# The second turn: of 150 tokens, 100 came from memory, 20 from pages, 30 were computed; the answer has 50 in cells.
SECOND = Usage(prompt_tokens=150, reused=120, resident=100, pages=20, computed=30, cells=200)
MESSAGES = (said("u1", "user"), said("a1", "assistant"), said("u2", "user"), said("a2", "assistant", SECOND))
LENGTHS = {"u1": 60, "a1": 60, "u2": 30, "a2": 51}


def view(
    messages: tuple[Message, ...] = MESSAGES,
    lengths: Mapping[str, int] = LENGTHS,
    live: LiveTurn | None = None,
    generated: int = 0,
    warmed: Warmed | None = None,
) -> ContextView:
    return context_view(messages, lengths, live=live, generated=generated, warmed=warmed, reserved=1000, system=False)


def test_after_a_turn() -> None:
    """The last token of an answer that reached its limit is in no cell: 50 of the 51 are."""
    found = view()
    assert found.parts == (Part("user", 60), Part("assistant", 60), Part("user", 30), Part("assistant", 50))
    assert found.origins == (("resident", 100), ("pages", 20), ("computed", 30), ("written", 50))
    assert (found.used, found.reserved, found.when) == (200, 1000, "after the last turn")


def test_ids_that_are_not_stored_yet_are_what_the_prompt_has_beyond_the_others() -> None:
    """150 tokens were read, of which 120 are known: the other 30 are the message's."""
    assert view(lengths={"u1": 60, "a1": 60}).parts == view().parts


def test_messages_of_another_model_are_not_told_apart() -> None:
    """Of 150 tokens that were read, 30 are known; whose the others are, is not."""
    assert view(lengths={"u2": 30}).parts == (Part("unknown", 120), Part("user", 30), Part("assistant", 50))


def test_a_question_that_was_never_read_is_not_in_the_context() -> None:
    assert view((*MESSAGES, said("u3", "user"))) == view()


def test_what_left_is_in_no_part() -> None:
    """Of 150 tokens of the prompt 70 left while 50 were written, 49 of them in cells: 129 are used. The oldest went
    first, so of 100 from memory 30 are there."""
    usage = replace(SECOND, cells=129, decode_tokens=50, overflow="shift", evicted=70, evictions=1)
    lengths = {"u1": 0, "a1": 50, "u2": 30, "a2": 50}
    found = context_view(
        (*MESSAGES[:3], said("a2", "assistant", usage)),
        lengths,
        live=None,
        generated=0,
        warmed=None,
        reserved=1000,
        system=False,
        left=70,
    )
    assert found.parts == (Part("assistant", 50), Part("user", 30), Part("assistant", 49))
    assert found.origins == (("resident", 30), ("pages", 20), ("computed", 30), ("written", 49))
    assert sum(count for _, count in found.origins) == found.used == 129
    assert any("× left 70" in line.plain for line in context_lines(found, 100))


def test_what_left_before_a_reply_went_on_is_not_taken_off_again() -> None:
    """The turn that went on let nothing go: of 150 tokens that it read, and 50 that it wrote, all are there."""
    usage = replace(SECOND, decode_tokens=50, overflow="sinks", evicted=70, evictions=1)
    assert view((*MESSAGES[:3], said("a2", "assistant", usage))).origins == view().origins


def test_what_leaves_while_the_answer_comes() -> None:
    live = LiveTurn("t", "a2", 0.0, "decode", RESTORED, evicted=90, away=40)
    found = view(live=live, generated=10)
    assert found.origins == (("checkpoint", 80), ("computed", 30), ("written", 10))
    assert found.used == 120


def test_a_prompt_that_was_stopped_half_read() -> None:
    """Of 30 tokens to compute, 10 were: 130 cells are used, and there is no answer."""
    usage = Usage(prompt_tokens=150, reused=120, resident=120, computed=10, cells=130)
    found = view((*MESSAGES[:3], said("a2", "assistant", usage)))
    assert found.origins == (("resident", 120), ("computed", 10))
    assert found.used == 130


def test_nothing_is_read_yet() -> None:
    """A new chat, and one whose only turn failed before it was read."""
    for messages in ((), (said("u", "user"), said("a", "assistant", Usage()))):
        found = view(messages)
        assert (found.used, found.parts, found.origins) == (0, (), ())


RESTORED = Restored("t", reused=120, resident=0, pages=0, checkpoint=120, computed=30, seconds=0.1, cut=None)


def test_while_the_prompt_is_read() -> None:
    """A checkpoint brought 120 tokens, 10 of 30 are computed, 20 are not in any cell."""
    live = LiveTurn("t", "a2", 0.0, phase="prefill", restored=RESTORED, progress=PromptProgress("t", 10, 30, 99.0))
    found = view(live=live)
    assert found.origins == (("checkpoint", 120), ("computed", 10), ("missing", 20))
    assert (found.used, found.when) == (130, "now")
    assert found.parts == (Part("user", 60), Part("assistant", 60), Part("user", 30))


def test_while_the_answer_is_written() -> None:
    live = LiveTurn("t", "a2", 0.0, phase="decode", restored=RESTORED)
    found = view(lengths={"u1": 60, "a1": 60}, live=live, generated=7)
    assert found.origins == (("checkpoint", 120), ("computed", 30), ("written", 7))
    assert found.parts == (Part("user", 60), Part("assistant", 60), Part("user", 30), Part("live", 7))
    assert found.used == 157


def test_an_answer_that_goes_on_has_what_it_had() -> None:
    """All 190 tokens so far were read again; 40 of them are the answer's, and 7 are new."""
    restored = Restored("t", reused=180, resident=180, pages=0, checkpoint=0, computed=10, seconds=0.1, cut=None)
    live = LiveTurn("t", "a2", 0.0, phase="decode", restored=restored)
    assert view(live=live, generated=7).parts[-1] == Part("live", 47)


def test_a_turn_that_waits_shows_what_was_there() -> None:
    assert view(live=LiveTurn("t", "a3", 0.0)) == view()


def test_what_was_brought_back_on_opening() -> None:
    """200 of 201 tokens came back, 20 from memory; one is not there."""
    found = view(warmed=Warmed("w", tokens=201, reused=200, pages=180, seconds=0.1, cut=None))
    assert found.origins == (("resident", 20), ("pages", 180), ("missing", 1))
    assert found.used == 200
    assert sum(part.tokens for part in found.parts) == 201


# ------------------------------------------------------------------ in lines


def plain(found: ContextView, width: int, window: int | None = None) -> list[str]:
    return [line.plain for line in context_lines(found, width, window)]


def test_the_bars_and_their_legends() -> None:
    """Forty cells for 200 tokens, five tokens each: 12, 12, 6 and 10 cells of messages; 20, 4, 6 and 10 of origins."""
    lines = plain(view(), 50)
    assert lines[0].startswith("cells     ━━━━")
    assert lines[0].endswith("200 of 1,000 · 20%")
    assert lines[1] == "messages  " + "▀" * 12 + "▄" * 12 + "▀" * 6 + "▄" * 10
    assert lines[2] == "came from " + "█" * 20 + "▓" * 4 + "▒" * 6 + "░" * 10
    assert lines[3] == "▀ you ×2 90   ▄ answers ×2 110"
    for words in ("█ resident 100", "▓ pages 20", "▒ computed 30", "░ answer 50", "· free 800"):
        assert words in "\n".join(lines[4:])
    assert len(lines) == 6  # all of the legend, in two lines
    assert max(map(len, lines)) <= 50
    assert len(plain(view(), 80)) == 5


def test_the_window_is_marked_under_the_tokens_that_it_still_has() -> None:
    """A window that begins at token 150 of 200: the last ten of forty cells."""
    assert plain(view(), 50, window=150)[3] == "window    " + "·" * 30 + "━" * 10


def test_the_system_prompt_is_in_the_ids_of_the_first_message() -> None:
    found = context_view(MESSAGES, LENGTHS, live=None, generated=0, warmed=None, reserved=1000, system=True)
    assert "▀ you ×2 90, system prompt among them" in plain(found, 80)[3]


def with_system(system: bool, tokens: int) -> ContextView:
    usage = replace(SECOND, system_tokens=tokens)
    messages = (*MESSAGES[:3], said("a2", "assistant", usage))
    return context_view(messages, LENGTHS, live=None, generated=0, warmed=None, reserved=1000, system=system)


def test_the_system_prompt_is_a_part_of_its_own() -> None:
    """The engine told that 40 of the first message's 60 tokens are the system prompt: 8 of 40 cells."""
    found = with_system(True, 40)
    assert found.parts == (Part("system", 40), Part("user", 20), *view().parts[1:])
    assert plain(found, 50)[1] == "messages  " + "▌" * 8 + "▀" * 4 + "▄" * 12 + "▀" * 6 + "▄" * 10
    assert plain(found, 80)[3] == "▌ system prompt 40   ▀ you ×2 50   ▄ answers ×2 110"


def test_a_system_prompt_that_the_person_did_not_write_is_the_templates() -> None:
    """And BOS alone is none."""
    assert plain(with_system(False, 19), 100)[3].startswith("▌ the template's system prompt 19   ▀ you ×2 71")
    assert with_system(False, 1) == view()


def test_the_system_prompt_while_a_turn_goes_on_and_when_a_chat_was_opened() -> None:
    live = LiveTurn("t", "a2", 0.0, phase="prefill", restored=RESTORED, system_tokens=40)
    warmed = Warmed("w", tokens=200, reused=200, pages=180, seconds=0.1, cut=None, system_tokens=40)
    for found in (view(live=live), view(warmed=warmed)):
        assert found.parts[:2] == (Part("system", 40), Part("user", 20))


def test_the_system_prompt_is_known_where_messages_are_not_told_apart() -> None:
    usage = replace(SECOND, system_tokens=40)
    found = view((*MESSAGES[:3], said("a2", "assistant", usage)), lengths={"u2": 30})
    assert found.parts == (Part("system", 40), Part("unknown", 80), Part("user", 30), Part("assistant", 50))


def test_a_prompt_that_was_stopped_inside_the_system_prompt() -> None:
    usage = Usage(prompt_tokens=150, computed=10, cells=10, system_tokens=40)
    found = view((*MESSAGES[:1], said("a1", "assistant", usage)), lengths={"u1": 150})
    assert found.parts == (Part("system", 10),)


def test_without_an_engine_no_cells_are_claimed() -> None:
    found = context_view(MESSAGES, LENGTHS, live=None, generated=0, warmed=None, reserved=0, system=False)
    lines = plain(found, 80)
    assert "there is no context now" in lines[0]
    assert "free" not in lines[-1]


def test_everything_differs_in_glyph_and_takes_one_cell() -> None:
    """Legible without colour."""
    for looks in (ORIGINS, SPEAKERS):
        glyphs = [look.glyph for look in looks.values()]
        assert len({*glyphs, FREE.glyph}) == len(glyphs) + 1
        assert {cell_len(glyph) for glyph in glyphs} == {1}


@pytest.mark.parametrize("width", [20, 40, 56, 76, 116, 196])
def test_bars_keep_to_their_width(width: int) -> None:
    assert all(cell_len(line) == width for line in plain(view(), width, window=150)[1:4])
