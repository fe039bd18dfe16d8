"""Every kind of memory in real engine processes: what is kept comes back in another one, and is counted honestly."""

import pytest
import tiny
from driver import Driver

from kvchat.backend.protocol import Forecast, Forecasted, Warm, Warmed
from kvchat.backend.values import PromptMessage, Sampling

KINDS = ("llama", "gemma3", "gpt-oss", "mamba", "rwkv7", "jamba", "lfm2", "lfm2swa", "qwen35", "deepseek2")
CHECKPOINTED = ("mamba", "rwkv7", "jamba", "lfm2", "lfm2swa", "qwen35")
FEW = Sampling(temperature=0, max_tokens=8)
STORY = "Once there was a cell that remembered every key it was given, and " * 5


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


def test_the_table_is_complete():
    assert set(KINDS) <= set(tiny.KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_comes_back_in_another_process(start, kind):
    chat, ready = start(kind)
    assert ready.cache.pages
    first = chat.ask(STORY, sampling=FEW)
    chat.engine.close()
    again, _ = start(kind)
    again.messages = list(chat.messages)
    answer = again.ask("And then?", sampling=FEW)
    assert answer.usage.cut is None
    source = answer.usage.checkpoint if kind in CHECKPOINTED else answer.usage.pages
    assert source == answer.usage.reused == first.usage.cells
    assert answer.usage.computed == len(answer.segments[-1]) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_foretold_and_warmed_is_what_the_turn_finds(start, kind):
    chat, _ = start(kind)
    first = chat.ask(STORY, sampling=FEW)
    chat.engine.close()
    again, _ = start(kind)
    again.messages = list(chat.messages)
    past = tuple(token for message in again.messages for token in message.ids)
    question = (*again.messages, PromptMessage("user", "And then?"))
    again.engine.forecast(Forecast("f", question))
    before = again.until(Forecasted)[-1]
    again.engine.warm(Warm("w", past))
    warmed = again.until(Warmed)[-1]
    again.engine.forecast(Forecast("g", question))
    after = again.until(Forecasted)[-1]
    answer = again.ask("And then?", sampling=FEW)
    loaded = warmed.checkpoint if kind in CHECKPOINTED else warmed.pages
    assert loaded == warmed.reused == before.pages + before.checkpoint == first.usage.cells
    assert before.cut is None and warmed.cut is None
    assert after.resident == answer.usage.resident == warmed.reused
    assert before.computed == after.computed == answer.usage.computed


@pytest.mark.parametrize("kind", KINDS)
def test_going_back_gives_what_a_fresh_engine_gives(start, kind):
    """A window or a recurrent state cannot go back by itself; the engine must notice, whatever llama.cpp returns."""
    chat, _ = start(kind)
    chat.ask(STORY, sampling=FEW)
    beginning = list(chat.messages)
    for _ in range(3):
        chat.ask(STORY[:120], sampling=FEW)
    chat.messages = list(beginning)
    edited = chat.ask("What was it called?", sampling=FEW)
    fresh, _ = start(kind, kv_folder=None)
    fresh.messages = list(beginning)
    expected = fresh.ask("What was it called?", sampling=FEW)
    assert expected.usage.computed == expected.usage.prompt_tokens
    assert edited.usage.reused + edited.usage.computed == edited.usage.prompt_tokens
    assert edited.usage.reused >= edited.usage.prompt_tokens - len(edited.segments[-1]) - 1
    assert edited.ids == expected.ids
