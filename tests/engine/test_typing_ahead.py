"""Prefill while the person types, on the real engine: what is read, what the turn says of it, what never is written."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from driver import Driver

from kvchat.backend.protocol import (
    EngineDied,
    ReadAhead,
    ReadingAhead,
    Ready,
    Restored,
    Summarize,
    Summarized,
    Title,
    Titled,
    Warm,
    Warmed,
)
from kvchat.backend.values import Hardware, PromptMessage, Sampling
from kvchat.formats.page import decode_header, pack_ids
from kvchat.kv.store import PAGE_TOKENS

EXACT = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"}  # with Q4_1 weights no batch changes a bit
FEW = Sampling(temperature=0, max_tokens=8)
FIRST = "Once a cell remembered every key that it was ever given, and so it knew each word that came before it. "
QUESTION = "Tell me what the cell did when the morning came and all of the keys were gone from the great hall"


class Typist:
    """Writes messages in the chat of a driver."""

    def __init__(self, chat: Driver) -> None:
        self.chat = chat
        self._count = 0

    def writes(self, text: str, *, done: bool = False, **how: object) -> ReadingAhead:
        """The last thing that is told of a draft."""
        told = self.begins(text, done=done, **how)
        is_read = told.tokens - told.there >= (1 if done else 16)
        while is_read and told.there < told.tokens and not told.why:
            told = self._next(told.turn)
        return told

    def begins(self, text: str, *, done: bool = False, **how: object) -> ReadingAhead:
        """The first thing that is told of a draft."""
        self._count += 1
        command = ReadAhead(f"a{self._count}", (*self.chat.messages, PromptMessage("user", text)), done=done)
        self.chat.engine.read_ahead(replace(command, **how))
        return self._next(command.turn)

    def _next(self, turn: str) -> ReadingAhead:
        told = self.chat.until(ReadingAhead)[-1]
        return told if told.turn == turn else self._next(turn)


def pages(home: Path) -> dict[str, bytes]:
    """What each page holds, by its name."""
    found = {}
    for path in (home / "kv").rglob("*"):
        if path.is_file() and len(path.name) == 64:
            raw = path.read_bytes()
            found[path.name] = raw[decode_header(raw).payload_offset :]
    return found


def holds(home: Path, ids: tuple[int, ...]) -> bool:
    """Whether these ids lie one after the other in any file."""
    needle = pack_ids(ids)
    return any(needle in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_a_draft_is_read_and_the_turn_computes_the_rest(start):
    chat = start()
    typist = Typist(chat)
    told = typist.writes(QUESTION)
    assert told.there == told.read == told.tokens
    usage = chat.ask(QUESTION + ", please.").usage
    assert (usage.resident, usage.ahead, usage.ahead_wasted) == (told.read, told.read, 0)
    assert usage.computed == usage.prompt_tokens - told.read
    assert usage.reused == usage.resident + usage.pages
    follow = typist.writes("And after that, what did the keys do in the long hall without any of the cells?", done=True)
    answer = chat.ask("And after that, what did the keys do in the long hall without any of the cells?")
    assert answer.usage.ahead == follow.read
    assert next(event for event in answer.events if isinstance(event, Restored)).ahead == follow.read
    assert answer.usage.computed < 12  # the end of the turn and the beginning of the reply


def test_words_are_read_in_groups_and_the_last_one_when_the_draft_has_rested(start):
    typist = Typist(start())
    first = typist.writes("Tell")
    assert (first.read, first.tokens) == (first.there, first.there)  # the beginning of the prompt
    assert typist.begins("Tell me").read == first.read
    assert typist.begins("Tell me what").read == first.read
    rested = typist.writes("Tell me what", done=True)
    assert rested.read == rested.tokens > first.read


def test_an_edit_takes_back_what_it_changes(start):
    chat = start()
    typist = Typist(chat)
    before = typist.writes(QUESTION, done=True)
    other = QUESTION.replace("great hall", "small house by the sea, where nobody had ever seen one")
    after = typist.writes(other, done=True)
    assert after.there == after.tokens
    assert 0 < after.wasted < before.read
    usage = chat.ask(other).usage
    assert (usage.ahead, usage.ahead_wasted) == (after.read, after.wasted)
    assert chat.ask("Why?").usage.ahead_wasted == 0


@pytest.fixture
def two_homes(tmp_path, smollm2):
    drivers = []

    def begin(name):
        drivers.append(Driver.start(tmp_path / name, smollm2, **EXACT))
        drivers[-1].ready()
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.engine.close()


def test_answers_and_rows_are_those_of_a_chat_that_was_not_read_ahead(two_homes, tmp_path):
    typed, plain = two_homes("typed"), two_homes("plain")
    typist = Typist(typed)
    questions = (FIRST * 3 + "Why?", QUESTION + "?", "And what came of it in the end, if anything did come of it?")
    for question in questions:
        half = len(question) // 2
        typist.writes(question[:half] + " something that is deleted again, all of it, because it was wrong", done=True)
        typist.writes(question[: half + 12])
        typist.writes(question, done=True)
        one, other = typed.ask(question), plain.ask(question)
        assert one.usage.ahead > 0 < one.usage.ahead_wasted
        assert other.usage.ahead == other.usage.ahead_wasted == 0
        assert (one.ids, one.segments) == (other.ids, other.segments)
    typed.engine.close()
    plain.engine.close()
    assert pages(tmp_path / "typed") == pages(tmp_path / "plain")


def test_a_turn_goes_first_and_nothing_but_the_chunk_is_lost(start):
    chat = start(context=4096)
    paste = FIRST * 90
    told = Typist(chat).begins(paste)
    answer = chat.ask(paste + "Why?")
    assert answer.finished.reason == "length"
    assert answer.usage.ahead < told.tokens
    assert answer.usage.ahead_wasted <= 64
    assert answer.usage.ahead + answer.usage.computed == answer.usage.prompt_tokens
    chat.ask("And now?")  # the draft is not read any more
    assert chat.events.empty()


def test_while_a_turn_goes_on_nothing_is_read(start):
    chat = start()
    drafts = iter([True])

    def type_meanwhile(event):
        if isinstance(event, Restored) and next(drafts, False):
            message = PromptMessage("user", QUESTION)
            chat.engine.read_ahead(ReadAhead("a", (message,), done=True))

    answer = chat.ask("Hello.", meanwhile=type_meanwhile)
    assert not any(isinstance(event, ReadingAhead) for event in answer.events)
    assert chat.ask("And then?").usage.ahead == 0


# ---------------------------------------------------------------------- what is written


SECRET = "zebra quartz violin nebula walnut " * 30


def secret_ids(told_by: Driver) -> tuple[int, ...]:
    """Ids in the middle of the secret, as the chat that sends it has them."""
    told_by.ask(SECRET)
    ids = told_by.messages[0].ids
    return ids[len(ids) // 2 : len(ids) // 2 + 6]


def test_a_draft_is_never_written(tmp_path, smollm2, two_homes):
    ids = secret_ids(two_homes("other"))
    home = tmp_path / "typed"
    chat = two_homes("typed")
    assert holds(tmp_path / "other", ids)
    chat.ask(FIRST * 3)
    typist = Typist(chat)
    assert typist.writes(SECRET, done=True).read > 100
    assert not holds(home, ids)
    chat.engine.configure(replace(chat.engine.config, type_k="f16", type_v="f16"))  # saves what the cells hold
    chat.ready()
    assert typist.writes(SECRET, done=True).read > 100
    chat.engine.warm(Warm("w", tuple(token for message in chat.messages for token in message.ids)))
    chat.until(Warmed)
    chat.engine.title(Title("t", tuple(chat.messages)))
    assert typist.writes(SECRET + "once more", done=True).wasted < 8
    chat.engine.close()
    assert not holds(home, ids)


def test_a_draft_in_front_of_another_chat_is_never_written(tmp_path, two_homes):
    ids = secret_ids(two_homes("other"))
    chat = two_homes("typed")
    typist = Typist(chat)
    assert typist.writes(SECRET, done=True).read > 100
    answer = chat.ask("Something else.")
    assert answer.usage.ahead_wasted > 100
    chat.engine.close()
    assert not holds(tmp_path / "typed", ids)


def test_a_draft_is_not_written_when_the_engine_is_killed(tmp_path, two_homes):
    ids = secret_ids(two_homes("other"))
    chat = two_homes("typed")
    chat.ask(FIRST)
    typist = Typist(chat)
    assert typist.writes(SECRET, done=True).read > 100
    os.kill(chat.engine.pid, signal.SIGKILL)
    chat.until(Ready)
    assert chat.ask("And then?").usage.ahead == 0
    assert not holds(tmp_path / "typed", ids)


def test_a_draft_is_not_written_where_a_full_context_lets_go(tmp_path, smollm2, two_homes):
    ids = secret_ids(two_homes("other"))
    chat = Driver.start(tmp_path / "typed", smollm2, context=512)
    chat.ready()
    chat.ask(FIRST * 8, overflow="shift")
    told = Typist(chat).writes(SECRET[:250], done=True, overflow="shift")
    assert told.read > 40
    usage = chat.ask(FIRST * 12, overflow="shift").usage
    assert usage.evicted > 0
    assert usage.ahead_wasted > 30
    chat.engine.close()
    assert not holds(tmp_path / "typed", ids)


def test_what_was_read_is_written_once_it_is_sent(tmp_path, two_homes):
    chat = two_homes("typed")
    Typist(chat).writes(SECRET, done=True)
    ids = secret_ids(chat)
    chat.engine.close()
    assert holds(tmp_path / "typed", ids)


# ---------------------------------------------------------------------- where it does without


def test_without_kv_what_was_read_counts_all_the_same(start, tmp_path):
    chat = start()
    chat.ask(FIRST, keep_kv=False)
    told = Typist(chat).writes(QUESTION, done=True, keep_kv=False)
    assert told.read == told.tokens  # the past, too
    usage = chat.ask(QUESTION, keep_kv=False).usage
    assert (usage.resident, usage.ahead) == (told.read, told.read)
    assert usage.computed == usage.prompt_tokens - told.read
    assert chat.ask("Why?", keep_kv=False).usage.reused == 0
    chat.engine.close()
    assert pages(tmp_path) == {}


def test_an_incognito_draft_uses_what_is_in_memory_and_leaves_nothing(start, tmp_path):
    chat = start()
    first = chat.ask(FIRST, incognito=True)
    told = Typist(chat).writes(QUESTION, done=True, incognito=True)
    assert told.read == told.tokens - first.usage.cells
    usage = chat.ask(QUESTION, incognito=True).usage
    assert (usage.ahead, usage.computed) == (told.read, usage.prompt_tokens - told.there)
    chat.engine.close()
    assert pages(tmp_path) == {}


def test_a_context_is_built_anew_behind_a_draft_whose_beginning_is_on_disk(tmp_path):
    """Of the same words, sent before: the store has more pages of them than this chat may write yet."""
    chat = Driver.start(tmp_path, tiny.build("llama", tmp_path))
    chat.ready()
    chat.ask(FIRST * 4, sampling=FEW)
    chat.messages.clear()
    told = Typist(chat).writes(FIRST * 4 + QUESTION, done=True)
    assert told.there - told.read > PAGE_TOKENS
    chat.engine.configure(replace(chat.engine.config, type_k="q8_0", type_v="q8_0"))
    assert not any(isinstance(event, EngineDied) for event in chat.until(Ready))
    chat.engine.close()


def test_what_is_made_beside_the_chat_fits_into_small_batches(tmp_path):
    chat = Driver.start(tmp_path, tiny.build("llama", tmp_path), hardware=Hardware(batch=32))
    chat.ready()
    chat.ask(FIRST, sampling=FEW)
    told = Typist(chat).writes(QUESTION, done=True)
    assert told.there == told.tokens
    chat.engine.title(Title("t", tuple(chat.messages)))
    assert isinstance(chat.until(Titled, EngineDied)[-1], Titled)
    chat.engine.summarize(Summarize("s", tuple(chat.messages), most=4))
    ended = chat.until(Summarized, EngineDied)[-1]
    assert isinstance(ended, Summarized)
    assert ended.failure is None
    chat.engine.close()


def test_what_is_kept_nowhere_else_stays(start):
    chat = start(kv_folder=None)
    chat.ask(FIRST * 3)
    typist = Typist(chat)
    follow = typist.writes(QUESTION, done=True)
    assert follow.there == follow.tokens
    first = chat.messages[0].ids
    other = typist.begins(QUESTION, done=True, messages=(PromptMessage("user", "An edit of the first message"),))
    while not other.why and other.there < other.tokens:
        other = typist._next(other.turn)
    assert other.why == "what is in memory is kept nowhere else"
    assert chat.messages[0].ids == first
    assert chat.ask(QUESTION).usage.ahead == follow.read


@pytest.mark.parametrize("kind", ["mamba", "jamba", "lfm2"])
def test_a_state_that_cannot_be_taken_back_is_left_alone(tmp_path, kind):
    chat = Driver.start(tmp_path, tiny.build(kind, tmp_path))
    chat.ready()
    chat.ask(FIRST)
    told = Typist(chat).writes(QUESTION, done=True)
    assert (told.tokens, told.read, told.why) == (0, 0, "the state of this model cannot be taken back")
    assert chat.ask(QUESTION).usage.ahead == 0
    chat.engine.close()


def test_a_context_that_is_nearly_full_is_left_alone(start):
    chat = start(context=512)
    told = Typist(chat).writes(FIRST * 25, done=True)
    assert (told.read, told.why) == (0, "the context is nearly full")
    shifted = Typist(chat).writes(FIRST * 19, done=True, overflow="shift")
    assert (shifted.read, shifted.why) == (0, "the context is nearly full")


def test_a_window_is_read_as_far_as_it_can_be_taken_back(tmp_path):
    model = tiny.build("gemma3", tmp_path)
    chat = Driver.start(tmp_path, model, context=4096)
    chat.ready()
    chat.ask(FIRST * 2, sampling=FEW)
    past = sum(len(message.ids) for message in chat.messages)
    typist = Typist(chat)
    told = typist.writes(FIRST * 16 + QUESTION, done=True)
    assert told.why == "the rest could not be taken back from the sliding window"
    assert past < told.there < told.tokens
    other = typist.writes("Something else that is short, but not too short to be read", done=True)
    assert other.there == other.tokens  # and the past is still there
    assert other.restored == 0
    chat.engine.close()


def test_of_a_window_that_was_read_ahead_pages_are_as_whole_as_of_one_that_was_not(tmp_path):
    model = tiny.build("gemma3", tmp_path)
    question, answers, kept = FIRST * 3 + QUESTION, [], []
    for name in ("typed", "plain"):
        chat = Driver.start(tmp_path / name, model, context=2048)
        chat.ready()
        chat.ask(FIRST * 2, sampling=FEW)
        if name == "typed":
            Typist(chat).writes(FIRST + "and then it was put otherwise", done=True)
            told = Typist(chat).writes(question, done=True)
            assert told.there == told.tokens
            assert told.wasted > 0
        answers.append(chat.ask(question, sampling=FEW))
        chat.engine.close()
        kept.append({page: len(rows) for page, rows in pages(tmp_path / name).items()})
    assert answers[0].usage.ahead == told.read > 200
    assert answers[0].segments[:-1] == answers[1].segments[:-1]
    both = kept[0].keys() & kept[1].keys()
    assert len(both) > answers[0].usage.prompt_tokens // 128
    assert {page: kept[0][page] for page in both} == {page: kept[1][page] for page in both}


def test_reasoning_that_leaves_with_the_message_is_waited_for(tmp_path):
    chat = Driver.start(tmp_path, tiny.build("qwen3", tmp_path))
    chat.ready()
    thought = "<think>\nThe question has an answer.\n</think>\n\nYes."
    chat.messages = [PromptMessage("user", FIRST), PromptMessage("assistant", thought)]
    chat.ask("Why?", sampling=FEW)
    told = Typist(chat).writes(QUESTION, done=True)
    assert (told.read, told.why) == (0, "something has to leave the context first")
    usage = chat.ask(QUESTION, sampling=FEW).usage
    assert usage.reasoning_evicted > 0
    assert usage.ahead == 0
    chat.engine.close()


def test_off_means_off(tmp_path, smollm2):
    chat = Driver.start(tmp_path, smollm2, read_ahead=False)
    chat.ready()
    chat.engine.read_ahead(ReadAhead("a", (PromptMessage("user", QUESTION),), done=True))
    assert chat.ask(QUESTION).usage.ahead == 0
    chat.engine.configure(replace(chat.engine.config, read_ahead=True))  # the context stays as it is
    chat.ready()
    chat.messages.clear()
    told = Typist(chat).writes(QUESTION, done=True)
    assert told.there == told.tokens
    assert told.read == 0
    chat.engine.close()
