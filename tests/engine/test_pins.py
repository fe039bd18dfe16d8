"""Pinned prefixes: computed beside the chats, kept on disk, of use to every chat that begins so; one end on every
path."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
import tiny
from driver import Driver

from kvchat.backend.protocol import Pin, Pinned, Pinning, ReadAhead, ReadingAhead, Title, Warm
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.kv.pinned import held
from kvchat.kv.store import PAGE_TOKENS

FEW = Sampling(temperature=0, max_tokens=4)
SYSTEM = "You keep bees and know a lot about them. " * 24
NAME = "01PREFIX"
CLOCK = 1_000_000.0


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


def pin(driver: Driver, system: str = SYSTEM, prefix: str = NAME, name: str = "p") -> Pinned:
    driver.engine.pin(Pin(name, prefix, system, CLOCK))
    (told,) = [event for event in driver.until(Pinned) if isinstance(event, Pinned)]
    return told


def new_chat(driver: Driver, system: str = SYSTEM) -> Driver:
    return Driver(driver.engine, driver.events, [PromptMessage("system", system)], driver.turns + 100)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "jamba", "lfm2swa", "qwen35", "deepseek2"])
def test_a_first_answer_after_a_restart_computes_what_follows_the_prefix(start, tmp_path, kind):
    model = tiny.build(kind, tmp_path)
    told = pin(start(model))
    assert told.failure is None
    assert told.tokens == told.computed > PAGE_TOKENS
    (found,) = held(tmp_path / "a" / "kv")
    assert (found.pin.tokens, found.missing, found.bytes) == (told.tokens, 0, told.size)
    assert (found.pin.namespace, told.last_key in found.pin.keys) == (told.namespace, True)
    for text in ("A question", "7 others"):
        chat = new_chat(start(model))
        usage = chat.ask(text, sampling=FEW, clock=CLOCK).usage
        assert usage.reused == told.tokens
        assert usage.computed == usage.prompt_tokens - told.tokens


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "jamba"])
def test_the_tail_stays_that_of_the_prefix_when_chats_go_on_behind_it(start, tmp_path, kind):
    model = tiny.build(kind, tmp_path)
    driver = start(model)
    told = pin(driver)
    before = held(tmp_path / "a" / "kv")
    for text in ("A question", "7 others"):
        chat = new_chat(driver)
        chat.ask(text, sampling=FEW, clock=CLOCK)
        chat.ask("And then?", sampling=FEW, clock=CLOCK)
    assert held(tmp_path / "a" / "kv") == before
    usage = new_chat(start(model)).ask("Something new", sampling=FEW, clock=CLOCK).usage
    assert usage.reused >= told.tokens  # and what is like in another chat


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "jamba"])
def test_it_is_pinned_by_itself_where_a_chat_began_so_before(start, tmp_path, kind):
    """What the chat computed is not computed again, and its own tokens are not pinned."""
    model = tiny.build(kind, tmp_path)
    driver = start(model)
    new_chat(driver).ask("A question", sampling=FEW, clock=CLOCK)
    told = pin(driver)
    assert told.failure is None
    if kind in ("llama", "gemma3"):
        assert told.computed == 0
    (found,) = held(tmp_path / "a" / "kv")
    assert found.missing == 0
    usage = new_chat(start(model)).ask("7 others", sampling=FEW, clock=CLOCK).usage
    assert usage.reused >= told.tokens


def test_the_answer_is_the_one_without_a_pin(start, smollm2):
    """In the configuration in which equality is promised."""
    exact = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"}
    plain = new_chat(start(smollm2, "plain", **exact)).ask("How many bees?", clock=CLOCK)
    driver = start(smollm2, **exact)
    assert pin(driver).failure is None
    driver.engine.close()
    pinned = new_chat(start(smollm2, **exact)).ask("How many bees?", clock=CLOCK)
    assert pinned.usage.pages > 0
    assert pinned.ids == plain.ids


def test_the_chat_that_is_open_stays_in_memory(start, smollm2):
    driver = start(smollm2, parallel=2)
    driver.ask("What is a bee?")
    assert pin(driver).failure is None
    usage = driver.ask("And a wasp?").usage
    assert (usage.cut, usage.pages) == (None, 0)
    assert usage.resident == usage.reused > 0


def test_a_turn_goes_first_and_the_rest_is_computed_after_it(start, smollm2):
    driver = start(smollm2, context=2048)
    system = SYSTEM * 3
    driver.engine.pin(Pin("p", NAME, system, CLOCK))
    while not isinstance(told := driver.until(Pinning)[-1], Pinning) or told.done == 0:
        pass
    answer = driver.ask("What is a bee?")
    assert not any(isinstance(event, Pinned) for event in answer.events)
    assert answer.finished.reason in ("stop", "length")
    (told,) = [event for event in driver.until(Pinned) if isinstance(event, Pinned)]
    assert told.failure is None
    usage = new_chat(start(smollm2, context=2048), system).ask("How many bees?", clock=CLOCK).usage
    assert usage.reused == told.tokens


def test_what_else_is_done_beside_goes_first_and_spoils_nothing(start, smollm2):
    """A draft is read in the cells, another chat is warmed, a title is made, while the prefix is computed."""
    driver = start(smollm2, context=2048, parallel=2)
    driver.ask("What is a bee?")
    past = tuple(token for message in driver.messages for token in message.ids or ())
    system = SYSTEM * 5
    driver.engine.pin(Pin("p", NAME, system, CLOCK))
    driver.until(Pinning)
    draft = (*driver.messages, PromptMessage("user", "And how many legs does a wasp have, if it has any at all?"))
    for number in range(3):
        driver.engine.read_ahead(ReadAhead(f"r{number}", draft, done=True))
        driver.until(Pinning)
        driver.engine.warm(Warm(f"w{number}", past))
        driver.until(Pinning)
    driver.engine.title(Title("t", tuple(driver.messages)))
    (told,) = [event for event in driver.until(Pinned) if isinstance(event, Pinned)]
    assert told.failure is None
    usage = new_chat(start(smollm2, context=2048), system).ask("How many bees?", clock=CLOCK).usage
    assert (usage.reused, usage.cut) == (told.tokens, None)


def test_one_that_was_read_for_a_draft_is_pinned(start, tmp_path):
    """In the same cells: what no message had yet is wanted on disk now."""
    driver = start(tiny.build("llama", tmp_path), parallel=1)
    draft = (PromptMessage("system", SYSTEM), PromptMessage("user", "How many?"))
    driver.engine.read_ahead(ReadAhead("r", draft, done=True, clock=CLOCK))
    while (told := driver.until(ReadingAhead)[-1]).there < told.tokens:
        pass
    pinned = pin(driver)
    assert (pinned.failure, pinned.computed) == (None, 0)
    (found,) = held(tmp_path / "a" / "kv")
    assert (found.pin.tokens, found.missing) == (pinned.tokens, 0)


def test_a_cancelled_pin_pins_nothing(start, smollm2, tmp_path):
    driver = start(smollm2, context=2048)
    driver.engine.pin(Pin("p", NAME, SYSTEM * 6, CLOCK))
    driver.until(Pinning)
    driver.engine.cancel("p")
    (told,) = [event for event in driver.until(Pinned) if isinstance(event, Pinned)]
    assert (told.tokens, told.failure) == (0, None)
    assert held(tmp_path / "a" / "kv") == []
    assert driver.ask("What is a bee?").finished.reason in ("stop", "length")


def test_pins_are_made_one_after_the_other(start, smollm2, tmp_path):
    driver = start(smollm2)
    for number in (1, 2, 3):
        driver.engine.pin(Pin(f"p{number}", f"0{number}", f"{number}. {SYSTEM}", CLOCK))
    ends = [driver.until(Pinned)[-1].turn for _ in range(3)]
    assert ends == ["p1", "p2", "p3"]
    assert {each.pin.prefix for each in held(tmp_path / "a" / "kv")} == {"01", "02", "03"}


def test_one_that_is_too_long_is_told_before_it_is_computed(start, smollm2, tmp_path):
    driver = start(smollm2, context=256)
    driver.engine.pin(Pin("p", NAME, SYSTEM * 6, CLOCK))
    events = driver.until(Pinned)
    told = events[-1]
    assert not any(isinstance(event, Pinning) for event in events)
    assert told.failure is not None
    assert "the context holds 256" in told.failure.message
    assert "--ctx-size" in told.failure.hint


def test_without_a_store_it_says_so(start, smollm2):
    told = pin(start(smollm2, kv_folder=None))
    assert told.failure is not None
    assert "nothing is kept on disk" in told.failure.message


def test_a_budget_that_is_too_small_is_told_and_pins_nothing(start, smollm2, tmp_path):
    told = pin(start(smollm2, kv_budget=2 << 20))
    assert told.failure is not None
    assert "budget" in told.failure.message
    assert held(tmp_path / "a" / "kv") == []


def test_another_cache_type_is_computed_for_itself(start, smollm2, tmp_path):
    """Exact rows, and not transcoded ones: they will be used more than once."""
    driver = start(smollm2)
    first = pin(driver)
    driver.engine.configure(replace(driver.engine.config, type_k="q8_0", type_v="q8_0"))
    driver.ready()
    second = pin(driver)
    assert (second.type_k, second.computed) == ("q8_0", second.tokens)
    assert first.namespace != second.namespace
    assert len(held(tmp_path / "a" / "kv")) == 2
    usage = new_chat(driver).ask("How many bees?", clock=CLOCK).usage
    assert (usage.reused, usage.transcoded) == (second.tokens, None)


def test_one_that_is_being_computed_goes_on_in_another_configuration(start, smollm2):
    driver = start(smollm2, context=2048)
    driver.engine.pin(Pin("p", NAME, SYSTEM * 3, CLOCK))
    driver.until(Pinning)
    driver.engine.configure(replace(driver.engine.config, type_k="q8_0", type_v="q8_0"))
    (told,) = [event for event in driver.until(Pinned) if isinstance(event, Pinned)]
    assert (told.failure, told.type_k, told.computed) == (None, "q8_0", told.tokens)


def test_an_engine_that_dies_owes_the_end(start, smollm2, tmp_path):
    driver = start(smollm2, context=2048)
    driver.engine.pin(Pin("p", NAME, SYSTEM * 6, CLOCK))
    driver.until(Pinning)
    assert driver.engine.pid is not None
    os.kill(driver.engine.pid, signal.SIGKILL)
    (told,) = [event for event in driver.until(Pinned) if isinstance(event, Pinned)]
    assert told.failure is not None
    assert "SIGKILL" in told.failure.message
    assert held(tmp_path / "a" / "kv") == []


def test_without_an_engine_it_ends_at_once(start, smollm2):
    driver = start(smollm2)
    driver.engine.close()
    told = pin(driver)
    assert told.failure is not None
