"""Several turns through the engine process: what its client sees of them, in order and at the end."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from kvchat.backend.protocol import (
    EngineDied,
    Forecast,
    Forecasted,
    Generate,
    Ready,
    Restored,
    TextDelta,
    TurnFinished,
    Warm,
    Warmed,
)
from kvchat.backend.values import PromptMessage, Sampling

STORY = " ".join(f"Item {i} is a thing of its own." for i in range(40))
LONG = Sampling(temperature=0, max_tokens=120)


def request(turn, text, **more):
    more = {"sampling": LONG, "draft": "off"} | more
    return Generate(turn, (PromptMessage("user", text),), **more)


def events_until(driver, done, timeout=60):
    """Everything that comes until `done` of all that came is true."""
    seen = []
    while not done(seen):
        seen.append(driver.events.get(timeout=timeout))
    return seen


def finished(events):
    return {event.turn: event for event in events if isinstance(event, TurnFinished)}


def both_write(events):
    return {event.turn for event in events if isinstance(event, TextDelta)} >= {"a", "b"}


def test_two_answers_are_written_at_the_same_time(start):
    driver = start()
    driver.engine.submit(request("a", "Count to a hundred."))
    driver.engine.submit(request("b", "Name the months."))
    events = events_until(driver, lambda seen: len(finished(seen)) == 2)
    order = [event.turn for event in events if isinstance(event, TextDelta)]
    assert order.index("b") < len(order) - 1 - order[::-1].index("a")  # b begins before a is done
    assert {turn: event.usage.beside for turn, event in finished(events).items()} == {"a": 1, "b": 1}


def test_what_is_asked_beside_a_running_answer_is_answered(start):
    driver = start()
    told = driver.ask(STORY)
    past = tuple(token for message in driver.messages for token in message.ids)
    driver.engine.submit(request("a", "Count to a hundred."))
    events_until(driver, lambda seen: any(isinstance(event, TextDelta) for event in seen))
    driver.engine.warm(Warm("w", past))
    driver.engine.forecast(Forecast("f", (*driver.messages, PromptMessage("user", "And?"))))
    events = events_until(driver, lambda seen: finished(seen) and any(isinstance(each, Forecasted) for each in seen))
    warmed = next(event for event in events if isinstance(event, Warmed))
    forecast = next(event for event in events if isinstance(event, Forecasted))
    kinds = [type(event) for event in events]
    assert kinds.index(Warmed) < kinds.index(Forecasted) < kinds.index(TurnFinished)
    assert warmed.reused == forecast.resident == told.usage.cells  # the last token of the answer was not decoded
    again = driver.ask("And?")
    assert again.usage.computed == again.usage.prompt_tokens - told.usage.cells


def test_another_configuration_waits_for_all_turns(start):
    driver = start()
    driver.engine.submit(request("a", "Count to a hundred."))
    driver.engine.submit(request("b", "Name the months."))
    events_until(driver, both_write)
    driver.engine.configure(replace(driver.engine.config, type_k="q8_0", type_v="q8_0"))
    events = events_until(driver, lambda seen: any(isinstance(event, Ready) for event in seen))
    assert {turn: event.usage.beside for turn, event in finished(events).items()} == {"a": 1, "b": 1}
    assert all(event.failure is None for event in finished(events).values())


def test_a_killed_engine_ends_every_turn_once(start):
    driver = start()
    driver.engine.submit(request("a", "Count to a hundred."))
    driver.engine.submit(request("b", "Name the months."))
    driver.engine.submit(request("c", STORY))
    events_until(driver, both_write)
    os.kill(driver.engine.pid, signal.SIGKILL)
    events = events_until(driver, lambda seen: any(isinstance(event, Ready) for event in seen))
    died = [event for event in events if isinstance(event, EngineDied)]
    ends = [event for event in events if isinstance(event, TurnFinished)]
    assert len(died) == 1
    assert sorted(event.turn for event in ends) == ["a", "b", "c"]
    assert {event.reason for event in ends} == {"died"}


def test_a_chat_that_waits_goes_on_from_its_pages(start):
    """One place: the second turn waits, and takes the cells of the first; what that had is on disk."""
    driver = start(parallel=1)
    first = driver.ask(STORY)
    driver.engine.submit(request("a", "Count to a hundred."))
    driver.engine.submit(Generate("b", (*driver.messages, PromptMessage("user", "And?")), sampling=LONG, draft="off"))
    events = events_until(driver, lambda seen: len(finished(seen)) == 2)
    ends = finished(events)
    restored = {event.turn: event for event in events if isinstance(event, Restored)}
    assert list(ends) == ["a", "b"]
    assert restored["b"].reused == first.usage.cells
    assert restored["b"].pages > restored["b"].resident  # the beginning of both is the same
    assert ends["b"].usage.beside == 0


def test_chats_that_keep_nothing_stay_in_their_cells(start):
    """Nothing would bring them back, so they do not give their cells up for each other."""
    driver = start(kv_folder=None)
    driver.ask(STORY)
    driver.engine.submit(request("other", "Name the months."))
    events_until(driver, finished)
    again = driver.ask("And?")
    assert again.usage.resident >= again.usage.prompt_tokens - again.usage.computed > 300
