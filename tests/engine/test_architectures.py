"""Every kind of memory chats, counts honestly, and keeps on disk what can be kept."""

import pytest
import tiny
from driver import Driver

from kvchat.backend.values import Sampling

PAGED = ("llama", "mqa", "mha", "deepseek2", "stablelm32", "stablelm96", "stablelm128")
OTHERS = tuple(kind for kind in tiny.KINDS if kind not in PAGED)
FEW = Sampling(temperature=0, max_tokens=8)
STORY = "Once there was a cell that remembered every key it was given, and " * 5  # bytes are tokens here


@pytest.fixture
def start(tmp_path):
    drivers = []

    def start(kind, **config):
        model = tiny.build(kind, tmp_path)
        drivers.append(Driver.start(tmp_path, model, **config))
        return drivers[-1], drivers[-1].ready()

    yield start
    for driver in drivers:
        driver.engine.close()


def test_the_tables_are_complete():
    assert set(PAGED) | set(OTHERS) == set(tiny.KINDS)
    assert {"gemma3", "mamba", "jamba", "lfm2"} <= set(OTHERS)


@pytest.mark.parametrize("kind", PAGED)
def test_plain_kv_comes_back_in_another_process(start, kind):
    chat, ready = start(kind)
    assert ready.cache.pages
    first = chat.ask(STORY, sampling=FEW)
    chat.engine.close()
    again, _ = start(kind)
    again.messages = list(chat.messages)
    answer = again.ask("And then?", sampling=FEW)
    assert answer.usage.cut is None
    assert answer.usage.pages == first.usage.cells
    assert answer.usage.computed == len(answer.segments[-1]) + 1
    assert answer.usage.cache_bytes == answer.usage.cells * ready.model.kv_bytes_per_token


@pytest.mark.parametrize("kind", OTHERS)
def test_other_memories_reuse_what_is_resident_and_say_what_is_lost(start, kind):
    chat, ready = start(kind)
    assert not ready.cache.pages
    first = chat.ask(STORY, sampling=FEW)
    second = chat.ask("And then?", sampling=FEW)
    assert second.usage.resident == first.usage.cells
    assert second.usage.computed == len(second.segments[-1]) + 1
    assert second.usage.cut is None
    assert second.usage.pages_saved == 0
    chat.engine.close()
    again, _ = start(kind)
    again.messages = list(chat.messages)
    third = again.ask("And then?", sampling=FEW)
    assert third.usage.cut == "architecture"
    assert third.usage.computed == third.usage.prompt_tokens


@pytest.mark.parametrize("kind", OTHERS)
def test_going_back_gives_what_a_fresh_engine_gives(start, kind):
    """A window or a recurrent state cannot go back; the engine must notice, whatever llama.cpp returns."""
    chat, _ = start(kind)
    chat.ask(STORY, sampling=FEW)
    beginning = list(chat.messages)
    for _ in range(3):
        chat.ask(STORY, sampling=FEW)
    chat.messages = list(beginning)
    edited = chat.ask("What was it called?", sampling=FEW)
    fresh, _ = start(kind)
    fresh.messages = list(beginning)
    expected = fresh.ask("What was it called?", sampling=FEW)
    assert edited.usage.reused + edited.usage.computed == edited.usage.prompt_tokens
    assert edited.ids == expected.ids
