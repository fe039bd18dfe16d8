"""Summaries: made beside the chat's cells, shared where they can be, one end on every path."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
from driver import Driver

from kvchat.backend.local import Engine
from kvchat.backend.protocol import EngineDied, Summarize, Summarized, Summarizing, Warm
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.engine.summaries import question, summary_from

FEW = Sampling(temperature=0, max_tokens=8)
ITEMS = 50  # sentences that leave little room in a context of 512
STORY = "Once there was a cell that remembered every key it was given, and " * 3
FACTS = (
    "My name is Ada, I live in Lisbon and I keep seven bees.",
    "I want to paint the hive green before June.",
    "Which colour do bees like?",
)


@pytest.fixture
def start(tmp_path):
    drivers: list[Driver] = []

    def start(model, home="a", **config):
        drivers.append(Driver.start(tmp_path / home, model, **config))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


def summarize(chat: Driver, messages: int, most: int = 24, name: str = "s", **more: object) -> Summarized:
    chat.engine.summarize(Summarize(name, tuple(chat.messages[:messages]), most, **more))
    told = chat.until(Summarized)[-1]
    assert isinstance(told, Summarized)
    return told


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "jamba", "lfm2swa", "qwen35"])
def test_the_chat_goes_on_as_if_no_summary_had_been_made(start, tmp_path, kind):
    model = tiny.build(kind, tmp_path)
    quiet, busy = start(model, "quiet"), start(model, "busy")
    for chat in (quiet, busy):
        for text in (STORY, "And then?"):
            chat.ask(text, sampling=FEW)
    told = summarize(busy, 2, 8)
    assert told.failure is None
    answers = [chat.ask("And at the end?", sampling=FEW) for chat in (quiet, busy)]
    assert answers[0].ids == answers[1].ids
    assert answers[0].usage.reused == answers[1].usage.reused > 0
    assert answers[1].usage.pages_saved == answers[0].usage.pages_saved


def test_smollm2_writes_one_and_reads_only_the_question(start, smollm2):
    chat = start(smollm2)
    for text in FACTS:
        chat.ask(text)
    part = sum(len(message.ids) for message in chat.messages[:4])
    told = summarize(chat, 4, 64)
    assert told.failure is None and told.text
    assert told.shared == part  # all that the chat had of it
    assert 0 < told.tokens <= 64
    answer = chat.ask("And what do they eat?")
    assert answer.usage.resident == answer.usage.reused > part  # the chat's cells stayed


def test_nothing_of_a_summary_is_saved(start, smollm2, tmp_path):
    chat = start(smollm2)
    for text in FACTS[:2]:
        chat.ask(text)
    before = {path: path.stat().st_size for path in (tmp_path / "a" / "kv" / "pages").rglob("*")}
    summarize(chat, 2)
    chat.engine.close()
    assert {path: path.stat().st_size for path in (tmp_path / "a" / "kv" / "pages").rglob("*")} == before


def test_a_turn_goes_first_and_the_summary_goes_on_after_it(start, smollm2):
    """It says what it says without the turn: greedy, of the same tokens in the same cells."""
    chat = start(smollm2)
    for text in FACTS[:2]:
        chat.ask(text)
    alone = summarize(chat, 2, 48)
    chat.engine.summarize(Summarize("again", tuple(chat.messages[:2]), 48))
    seen = chat.until(Summarizing)
    assert seen[-1].done < seen[-1].total
    answer = chat.ask(FACTS[2])
    assert not any(isinstance(event, Summarized) for event in answer.events)
    assert answer.usage.resident == answer.usage.reused > 0
    told = chat.until(Summarized)[-1]
    assert told.turn == "again" and told.failure is None
    shared = len(alone.text) // 2  # a batch of another shape rounds otherwise, so the ends may differ
    assert told.text[:shared] == alone.text[:shared]


def test_a_cancelled_one_ends_at_once_and_says_nothing(start, smollm2):
    chat = start(smollm2)
    chat.ask(STORY * 4, sampling=FEW)
    chat.ask("And then?", sampling=FEW)
    chat.engine.summarize(Summarize("s", tuple(chat.messages[:2]), 400))
    chat.until(Summarizing)
    chat.engine.cancel("s")
    assert chat.until(Summarized)[-1] == Summarized("s")
    assert chat.ask("And at the end?", sampling=FEW).usage.reused > 0


def test_one_at_a_time(start, smollm2):
    chat = start(smollm2)
    chat.ask(FACTS[0])
    chat.ask(FACTS[1])
    chat.engine.summarize(Summarize("first", tuple(chat.messages[:2]), 400))
    chat.engine.summarize(Summarize("second", tuple(chat.messages[:2]), 16))
    ends = [chat.until(Summarized)[-1] for _ in range(2)]
    assert [end.turn for end in ends] == ["first", "second"]
    assert ends[0].failure is not None and ends[1].failure is None


def test_an_engine_that_dies_owes_its_end(start, smollm2):
    chat = start(smollm2)
    chat.ask(FACTS[0])
    chat.ask(FACTS[1])
    chat.engine.summarize(Summarize("s", tuple(chat.messages[:2]), 400))
    chat.until(Summarizing)
    assert isinstance(chat.engine, Engine) and chat.engine._child is not None
    chat.engine._child.process.kill()
    seen = chat.until(Summarized)
    assert any(isinstance(event, EngineDied) for event in seen)
    assert seen[-1].failure is not None and "killed" in seen[-1].failure.message
    chat.ready()
    assert chat.ask(FACTS[2]).usage.reused > 0


def test_without_an_engine(smollm2, tmp_path):
    chat = Driver.start(tmp_path, smollm2)
    chat.ready()
    chat.engine.close()
    chat.engine.summarize(Summarize("s", (PromptMessage("user", "a"), PromptMessage("assistant", "b")), 16))
    assert chat.until(Summarized)[-1].failure is not None


def filled(chat: Driver) -> None:
    """Three turns, after which there is no room for a question, let alone for a summary."""
    for text in FACTS[:2]:
        chat.ask(text, sampling=replace(FEW, max_tokens=24))
    answer = chat.ask(" ".join(f"Item {number} is red." for number in range(ITEMS)), sampling=Sampling(temperature=0))
    assert 512 - answer.usage.cells < 80, answer.usage.cells


@pytest.mark.parametrize("types", [("f16", "off"), ("q8_0", "on")], ids=["f16", "q8_0"])
def test_a_full_context_gives_up_its_end_and_has_it_back(start, smollm2, types):
    kind, flash = types
    chat = start(smollm2, context=512, type_k=kind, type_v=kind, flash_attention=flash)
    filled(chat)
    part = sum(len(message.ids) for message in chat.messages[:4])
    told = summarize(chat, 4, 48)
    assert told.failure is None and told.shared == part
    past = tuple(token for message in chat.messages for token in message.ids)
    chat.engine.warm(Warm("w", past))
    answer = chat.ask(None, continue_reply=True, sampling=replace(FEW, max_tokens=1))  # all that was there is
    assert answer.usage.reused >= len(past) - 1
    assert answer.usage.computed <= 1


def test_what_does_not_fit_is_refused(start, smollm2):
    chat = start(smollm2, context=512)
    filled(chat)
    told = summarize(chat, len(chat.messages), 48)
    assert told.failure is not None and "no room" in told.failure.message


def test_a_chat_that_is_not_in_the_cells_is_read_from_disk(start, smollm2):
    first = start(smollm2)
    for text in FACTS:
        first.ask(text)
    first.engine.close()
    again = start(smollm2)
    again.messages = list(first.messages)
    told = summarize(again, 4, 32)
    assert told.failure is None
    assert told.shared == sum(len(message.ids) for message in first.messages[:4])


def test_ids_that_the_vocabulary_does_not_have_are_forgotten(start, smollm2):
    chat = start(smollm2)
    chat.ask(FACTS[0])
    foreign = tuple(replace(message, ids=(10**6,)) for message in chat.messages[:2])
    chat.engine.summarize(Summarize("s", foreign, 16))
    told = chat.until(Summarized)[-1]
    assert told.failure is None and told.shared == 0


def test_what_left_is_not_read(start, smollm2):
    """A chat whose first turn has left: the summary shares what is there, and reads nothing of the rest."""
    chat = start(smollm2, context=512)
    log = []
    for number in range(9):
        text = f"Round {number}: " + " ".join(f"item {n} is red." for n in range(8))
        answer = chat.ask(text, overflow="sinks", evictions=tuple(log))
        log += [event.eviction for event in answer.events if type(event).__name__ == "Evicted"]
    assert log
    told = summarize(chat, 12, 24, evictions=tuple(log))
    assert told.failure is None and told.shared > 0
    ids = sum(len(message.ids) for message in chat.messages[:12])
    assert told.shared < ids
    answer = chat.ask("And now?", overflow="sinks", evictions=tuple(log))
    assert answer.usage.cut is None and answer.usage.reused > 400  # all of it, though the end had to be brought back


def test_the_words_of_the_question_fit_to_the_room():
    assert "at most 20 words" in question(16)
    assert "at most 300 words" in question(512)


@pytest.mark.parametrize(
    ("answer", "whole", "text"),
    [
        (" Ada keeps bees.\n", True, "Ada keeps bees."),
        ("Ada keeps bees. She wants", False, "Ada keeps bees."),
        (
            "Ada. She wants to paint the hive in green before Ju",
            False,
            "Ada. She wants to paint the hive in green before Ju",
        ),
        ("Ada keeps 3.5 bees and", False, "Ada keeps 3.5 bees and"),
        ("蜂は七匹いる。色は緑で", False, "蜂は七匹いる。色は緑で"),
        ("", False, ""),
    ],
)
def test_what_is_taken_of_an_answer(answer, whole, text):
    assert summary_from(answer, whole=whole) == text
