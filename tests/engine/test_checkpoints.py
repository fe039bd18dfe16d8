"""Recurrent states: where they are kept, how a chat goes back to one, and what happens when one is bad or missing."""

from __future__ import annotations

import os

import pytest
import tiny
from driver import Driver

from kvchat.backend.protocol import PromptProgress, TextDelta
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.engine.saving import marks, surplus
from kvchat.kv.matching import Checkpoint
from kvchat.kv.overview import chain_pages, chains

KINDS = ("mamba", "jamba", "lfm2swa", "qwen35")
FEW = Sampling(temperature=0, max_tokens=8)
STORY = "Once there was a cell that remembered every key it was given, and " * 4


@pytest.fixture
def start(tmp_path):
    drivers: list[Driver] = []

    def start(kind, **config):
        drivers.append(Driver.start(tmp_path, tiny.build(kind, tmp_path), **({"context": 4096} | config)))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


def checkpoints(home):
    """Positions after which a state lies on disk, by the file that holds it."""
    found = {}
    for chain in chains(home / "kv"):
        for row in chain_pages(home / "kv", chain.chain).checkpoints:
            found[next((home / "kv" / "pages").rglob(row.key.hex()))] = row.position + row.tokens
    return found


def go_on(chat, other):
    other.messages = list(chat.messages)
    return other


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_string_costs_the_answer_once_and_the_next_turn_nothing(start, kind):
    """What was decoded beyond the stop string cannot be taken out of a recurrent state."""
    chat = start(kind)
    free = chat.ask(STORY, sampling=Sampling(temperature=0, max_tokens=24))
    stop = free.text[10:13]
    chat.messages.clear()
    stopped = chat.ask(STORY, sampling=Sampling(temperature=0, max_tokens=24, stop=(stop,)))
    assert stopped.finished.reason == "stop"
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.usage.cells == stopped.usage.prompt_tokens + len(stopped.ids)
    messages = list(chat.messages)
    second = chat.ask("And then?", sampling=FEW)
    assert second.usage.computed == len(second.segments[-1])
    chat.engine.close()
    again = start(kind)
    again.messages = messages
    third = again.ask("Why so?", sampling=FEW)
    assert third.usage.checkpoint == stopped.usage.cells
    assert third.usage.computed == len(third.segments[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_cancel_while_the_prompt_is_read_keeps_the_past(start, kind):
    chat = start(kind)
    first = chat.ask(STORY, sampling=FEW)
    messages = list(chat.messages)

    def cancel(event):
        if isinstance(event, PromptProgress):
            chat.engine.cancel(f"t{chat.turns}")

    cancelled = chat.ask(STORY * 12, meanwhile=cancel, sampling=FEW)
    assert cancelled.finished.reason == "cancelled"
    chat.messages = messages
    answer = chat.ask("And then?", sampling=FEW)
    assert answer.usage.resident + answer.usage.checkpoint >= first.usage.cells
    assert answer.usage.computed == len(answer.segments[-1]) + 1
    assert answer.usage.cut is None


@pytest.mark.parametrize("kind", KINDS)
def test_cancel_in_an_answer_keeps_it(start, kind):
    chat = start(kind)

    def cancel(event):
        if isinstance(event, TextDelta):
            chat.engine.cancel("t1")

    half = chat.ask(STORY, meanwhile=cancel, sampling=Sampling(temperature=0))
    assert half.finished.reason == "cancelled"
    answer = chat.ask("And then?", sampling=FEW)
    assert answer.usage.resident == half.usage.cells
    assert answer.usage.computed <= len(answer.segments[-1]) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_going_back_without_a_store(start, kind):
    chat = start(kind, kv_folder=None)
    chat.ask(STORY, sampling=FEW)
    before = list(chat.messages)
    second = chat.ask("And then?", sampling=FEW)
    chat.messages.pop()
    again = chat.ask(None, sampling=FEW)
    assert again.usage.computed == 1
    assert again.ids == second.ids
    chat.messages = before
    edited = chat.ask("Why so?", sampling=FEW)
    assert edited.usage.resident >= edited.usage.prompt_tokens - len(edited.segments[-1]) - 1
    assert edited.usage.cut is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_engine_loses_only_the_answer(start, kind):
    chat = start(kind)
    first = chat.ask(STORY, sampling=FEW)

    deltas = []

    def kill(event):
        deltas.append(isinstance(event, TextDelta))
        if sum(deltas) == 8 and deltas[-1]:  # the disk has had a quarter of a second
            os.kill(chat.engine.pid, 9)

    killed = chat.ask(STORY, meanwhile=kill, sampling=Sampling(temperature=0))
    assert killed.finished.reason == "died"
    chat.messages.pop()
    again = go_on(chat, start(kind)).ask(None, sampling=FEW)
    assert again.usage.checkpoint >= first.usage.cells
    assert again.usage.computed == 1
    assert again.usage.cut is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_bad_checkpoint_is_a_miss(start, tmp_path, kind, damage):
    chat = start(kind)
    first = chat.ask(STORY, sampling=FEW)
    chat.engine.close()
    newest = max(checkpoints(tmp_path), key=checkpoints(tmp_path).get)
    if damage == "gone":
        newest.unlink()
    else:
        raw = bytearray(newest.read_bytes())
        raw[-100] ^= 1
        newest.write_bytes(raw)
    answer = go_on(chat, start(kind)).ask("And then?", sampling=FEW)
    assert answer.usage.checkpoint == first.usage.prompt_tokens - 1
    assert answer.usage.cut == ("corrupt page" if damage == "flipped" else "missing page")
    assert answer.finished.reason == "length"


@pytest.mark.parametrize("kind", ["mamba", "jamba"])
def test_a_long_prompt_is_shared_up_to_a_checkpoint_on_its_way(start, kind):
    chat = start(kind)
    document = STORY * 18
    first = chat.ask(document + "Which?", sampling=FEW)
    assert first.usage.prompt_tokens > 2200
    other = start(kind)
    second = other.ask(document + "What was it called?", sampling=FEW)
    assert second.usage.checkpoint == 2048
    other.messages = [PromptMessage("user", document + "What was it called?")]
    fresh = start(kind, kv_folder=None)
    fresh.messages = list(other.messages)
    assert fresh.ask(None, sampling=FEW).ids == second.ids


def test_a_small_budget_has_room_for_the_newest_state(start):
    """Older ones of the same chat go. A state of this model takes 78 KB, so that not even four fit."""
    messages: list[PromptMessage] = []
    before = 0
    for turn in range(8):
        chat = start("mamba", kv_budget=300_000)
        chat.messages = messages
        answer = chat.ask(f"Question {turn}?", sampling=FEW)
        assert answer.usage.save_problem is None
        assert answer.usage.cut is None
        assert answer.usage.checkpoint == before
        before, messages = answer.usage.cells, chat.messages
        chat.engine.close()


def test_a_chat_keeps_a_bounded_number(start, tmp_path):
    chat = start("jamba")
    for turn in range(12):
        answer = chat.ask(f"Question {turn}?", sampling=FEW)
    ends = sorted(checkpoints(tmp_path).values())
    assert len(ends) == 8 + 2  # kept when the last turn began, and its own
    assert ends[-1] == answer.usage.cells
    assert ends[-2] == answer.usage.prompt_tokens - 1
    assert ends[0] < answer.usage.cells / 3  # the beginning is covered too
    (chain,) = chains(tmp_path / "kv")
    assert chain.checkpoints == 10
    assert chain.checkpoint_bytes == sum(path.stat().st_size for path in checkpoints(tmp_path))


def test_where_a_prompt_is_marked():
    """Before its last token, and at multiples of the interval: 2,048, or an eighth of a very long prompt."""
    assert marks(0, 300) == [299]
    assert marks(299, 300) == []
    assert marks(0, 1) == []
    assert marks(100, 5000) == [2048, 4096, 4999]
    assert marks(2048, 4097) == [4096]
    assert marks(0, 80_000) == [*range(10_000, 80_000, 10_000), 79_999]


def test_which_checkpoints_go():
    def kept(ends, size=1):
        made = [Checkpoint(bytes([i]), b"", b"", end, size, 0.0) for i, end in enumerate(ends)]
        gone = surplus(made)
        return [each.end for each in made if each not in gone]

    assert kept(range(10, 90, 10)) == [*range(10, 90, 10)]
    assert kept([10, 20, 21, 30, 40, 50, 60, 70, 80]) == [10, 20, 30, 40, 50, 60, 70, 80]
    assert kept([100, 200, 300, 400], size=2**29) == [300, 400]
    assert kept([100, 200, 300, 400], size=2**31) == [300, 400]
