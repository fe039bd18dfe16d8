"""`kvchat ask --overflow summarize`: a full context is summarized without a question, and the answer goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pytest
from asking import Asked, kept
from fake_backend import delta, finished, make_ready, prompt_events, text_ids
from scripted_engine import ScriptedEngine

from kvchat.backend.protocol import EngineDied, Event, Generate, Summarize, Summarized, Summarizing
from kvchat.backend.values import Failure
from kvchat.config import Settings
from kvchat.paths import Paths

CONTEXT = 600
LONG = "word " * 30
SUMMARIZE = Settings(overflow="summarize", given=frozenset({"overflow"}))
SHORT = "Two turns about words."


@pytest.fixture(autouse=True)
def small(engine: ScriptedEngine) -> None:
    engine.begin = [make_ready(name="first", context=CONTEXT)]
    engine.script = script
    engine.summarized = summarized


def script(request: Generate) -> Iterator[Event]:
    """The context is full when there are so many tokens; an answer that goes on comes to its end."""
    tokens = sum(len(text_ids(message.text)) for message in request.messages)
    yield from (*prompt_events(request), delta(request, "more." if request.continue_reply else "Some "))
    yield finished(request, "context" if tokens > 450 and not request.continue_reply else "stop")


def summarized(command: Summarize) -> Iterable[Event]:
    return [Summarizing(command.turn, 1, 2), Summarized(command.turn, SHORT, 20)]


def fill(ask: Callable[..., Asked]) -> None:
    ask(LONG)
    ask(LONG, continue_last=True)


def test_the_answer_goes_on_in_the_same_line(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    fill(ask)
    asked = ask(LONG, continue_last=True, settings=SUMMARIZE)
    assert (asked.code, asked.out.getvalue()) == (0, "Some more.\n")
    assert engine.requests[-1].continue_reply
    assert engine.requests[-1].messages[0].text.endswith(SHORT)
    assert len(engine.requests[-1].messages) < 1 + 6


def test_json_tells_what_was_done(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    fill(ask)
    told = json.loads(ask(LONG, continue_last=True, settings=SUMMARIZE, json=True).out.getvalue())
    assert (told["text"], told["finish"]) == ("Some more.", "stop")
    (summary,) = told["overflow"]["summaries"]
    assert told["overflow"]["policy"] == "summarize"
    assert (summary["text"], summary["tokens_after"]) == (SHORT, 20)
    turn = 2 + len(LONG) + len("Some ")  # the made-up tokens of each of the first turns
    assert summary["tokens_before"] == turn * summary["messages"] // 2
    assert len(kept(paths)) == 6  # all messages are in the chat


def test_the_chat_keeps_it(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    fill(ask)
    ask(LONG, continue_last=True, settings=SUMMARIZE)
    engine.script = lambda request: iter([*prompt_events(request), finished(request)])
    ask("short", continue_last=True)
    assert engine.requests[-1].messages[0].text.endswith(SHORT)


def test_no_summary_is_a_note_and_the_end(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    fill(ask)
    engine.summarized = lambda command: [Summarized(command.turn, failure=Failure("it cannot be had", "try again"))]
    asked = ask(LONG, continue_last=True, settings=SUMMARIZE)
    assert asked.out.getvalue() == "Some \n"
    assert "no summary: it cannot be had (try again)" in asked.err.getvalue()
    assert "the context of 600 tokens is full" in asked.err.getvalue()
    assert kept(paths)[-1].finish == "context"


def test_the_engine_dies_meanwhile(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    fill(ask)
    engine.summarized = lambda command: [
        EngineDied("the engine was killed by SIGKILL", (), restarting=False),
        Summarized(command.turn, failure=Failure("the engine was killed by SIGKILL")),
    ]
    asked = ask(LONG, continue_last=True, settings=SUMMARIZE)
    assert "no summary: the engine was killed by SIGKILL" in asked.err.getvalue()


def test_one_turn_that_fills_the_context_by_itself(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    asked = ask(LONG * 4, settings=SUMMARIZE)
    assert "no summary: there is nothing that a summary could stand for" in asked.err.getvalue()
    assert not engine.summaries


def test_stop_does_not_summarize(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    fill(ask)
    asked = ask(LONG, continue_last=True)
    assert not engine.summaries and "--overflow shift, sinks, prune or summarize" in asked.err.getvalue()


def test_an_empty_summary_of_the_model(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    fill(ask)
    engine.summarized = lambda command: [Summarized(command.turn, "", 1)]
    asked = ask(LONG, continue_last=True, settings=SUMMARIZE)
    assert "the model wrote no summary" in asked.err.getvalue()
