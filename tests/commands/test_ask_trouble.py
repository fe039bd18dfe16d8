"""`kvchat ask` when something goes wrong, or when somebody has heard enough."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from asking import Asked, Terminal, kept
from fake_backend import delta, finished, make_ready, prompt_events, turn_events
from scripted_engine import Script, ScriptedEngine, answer

from kvchat.backend.protocol import EngineDied, Event, Generate, LoadFailed, Loading
from kvchat.backend.values import Failure, Usage
from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.config import Settings
from kvchat.errors import KvchatError, UsageError
from kvchat.paths import Paths

# ------------------------------------------------------------------ what can go wrong


def test_notes_of_the_engine_are_said_once(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    ready = replace(make_ready(), notes=("extra buffers are off",))
    died = EngineDied("the engine was killed by SIGILL", (), True)
    engine.begin = [died, ready, ready]
    asked = ask("x")
    assert asked.code == 0
    assert asked.out.getvalue() == "Hello there.\n"
    assert asked.err.getvalue() == (
        "note: the engine was killed by SIGILL, and is started again\nnote: extra buffers are off\n"
    )


def test_what_was_found_out_before_is_not_said_again(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    known = "llama.cpp's extra CPU buffers (AMX, repacked weights): off, because the engine was killed by SIGILL"
    engine.begin = [replace(make_ready(), notes=(known, "the context is longer than what it was trained for"))]
    asked = Asked()
    asked.err = Terminal()
    said = ask("x", asked=asked).err.getvalue()
    assert "SIGILL" not in said
    assert "note: the context is longer" in said  # for whoever watches
    assert ask("x").err.getvalue() == ""
    wanted = Settings(flash_attention="on", given=frozenset({"flash_attn"}))
    assert "SIGILL" in ask("x", settings=wanted).err.getvalue()  # something is not as it was asked for


def test_a_model_that_cannot_be_loaded(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    engine.begin = [LoadFailed(Failure("first.gguf is truncated", "download it again"))]
    with pytest.raises(KvchatError) as caught:
        ask("Are you there?")
    assert (caught.value.message, caught.value.hint) == ("first.gguf is truncated", "download it again")
    assert kept(paths)[0].text == "Are you there?"  # no word is lost


def died_in_the_middle(request: Generate) -> Iterator[Event]:
    yield from (*prompt_events(request), delta(request, "Once upon"))
    yield finished(request, "died", Failure("the engine was killed by SIGKILL", "a hint of the engine"))
    yield EngineDied("the engine was killed by SIGKILL", (), True)


def test_an_engine_that_dies_leaves_what_had_come(
    ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths
) -> None:
    engine.script = died_in_the_middle
    asked = Asked()
    with pytest.raises(KvchatError, match="SIGKILL") as caught:
        ask("Tell me", asked=asked)
    assert asked.out.getvalue() == "Once upon\n"
    assert f"kvchat ask --resume --chat {kept(paths)[-1].chat}" in caught.value.hint
    assert (kept(paths)[-1].text, kept(paths)[-1].finish) == ("Once upon", "died")


def test_resume_goes_on_with_the_same_message(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    engine.script = died_in_the_middle
    with pytest.raises(KvchatError):
        ask("Tell me")
    engine.script = answer(" a time.")
    shown = json.loads(ask(resume=True, json=True).out.getvalue())
    assert shown["text"] == "Once upon a time."
    assert engine.requests[-1].continue_reply is True
    assert [m.text for m in kept(paths)] == ["Tell me", "Once upon a time."]


def test_resume_takes_no_question_and_reads_no_stdin(ask: Callable[..., Asked]) -> None:
    with pytest.raises(UsageError, match="--resume"):
        ask("x", resume=True)


def test_nothing_to_resume(ask: Callable[..., Asked]) -> None:
    ask("x")
    with pytest.raises(KvchatError, match="no unfinished answer"):
        ask(resume=True)


def test_kv_that_could_not_be_saved_is_said(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    def script(request: Generate) -> Iterator[Event]:
        yield delta(request, "Yes")
        yield replace(finished(request), usage=Usage(save_problem="the disk is full"))

    engine.script = script
    asked = ask("x")
    assert asked.code == 0
    assert "the disk is full" in asked.err.getvalue()


def test_a_full_context_is_said(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    engine.script = lambda request: iter(turn_events(request, ["Half"], "context"))
    asked = ask("x")
    assert asked.code == 0
    assert "context of 4096 tokens is full" in asked.err.getvalue()


def test_the_policy_that_filled_a_context_is_no_way_on(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    engine.script = lambda request: iter(turn_events(request, ["Half"], "context"))
    shift = Settings(overflow="shift")
    assert "--overflow sinks or prune lets" in ask("x", settings=shift).err.getvalue()  # no whole turn can leave
    more = ask("y", settings=shift, continue_last=True).err.getvalue()
    assert "--overflow sinks, prune or summarize lets" in more


def test_chats_that_cannot_be_opened(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    paths.chats_db.mkdir()
    with pytest.raises(KvchatError):
        ask("x")
    assert engine.requests == []  # nothing is computed for words that are not kept


@pytest.mark.parametrize("as_json", [False, True])
def test_an_answer_that_cannot_be_saved_is_on_stdout_and_an_error(
    ask: Callable[..., Asked], paths: Paths, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    def full(*_: object) -> None:
        raise NotSavedError("the disk is full", "free some space")

    monkeypatch.setattr(ChatStore, "finish", full)
    asked = Asked()
    with pytest.raises(KvchatError, match=r"could not be saved in its chat: the disk is full") as caught:
        ask("x", asked=asked, json=as_json)
    assert (caught.value.exit_code, caught.value.hint) == (1, "free some space")
    written = asked.out.getvalue()
    assert (json.loads(written)["text"] if as_json else written) == ("Hello there." if as_json else "Hello there.\n")
    assert "note: the disk is full" in asked.err.getvalue()
    assert kept(paths)[-1].finish is None


def test_a_model_that_takes_long_to_load(
    ask: Callable[..., Asked], engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who watches is told, once."""
    engine.begin = [Loading(0.25), Loading(0.5), make_ready(name="first")]
    monkeypatch.setattr("kvchat.commands.turn.SLOW_LOAD", 0.0)
    asked = Asked()
    asked.err = Terminal()
    assert ask("x", asked=asked).err.getvalue().splitlines()[0] == "note: the model is being loaded (25%)"
    assert asked.err.getvalue().count("is being loaded") == 1
    assert ask("x").err.getvalue() == ""


# ------------------------------------------------------------------ interrupts


def interrupted(engine: ScriptedEngine, *signals: signal.Signals) -> Script:
    """A script in which somebody sends the signals after the first word."""

    def script(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "Once"))
        for each in signals:
            os.kill(os.getpid(), each)
            assert engine.cancelled.wait(30)
        if len(signals) == 1:
            yield finished(request, "cancelled")

    return script


def test_json_of_an_interrupted_answer(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    engine.script = interrupted(engine, signal.SIGINT)
    asked = ask("x", json=True)
    assert asked.code == 130
    shown = json.loads(asked.out.getvalue())
    assert (shown["finish"], shown["text"]) == ("cancelled", "Once")


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_had_come(
    ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths, which: signal.Signals
) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    engine.script = interrupted(engine, which)
    asked = ask("Tell me")
    assert (asked.code, asked.out.getvalue()) == (130, "Once\n")
    assert (kept(paths)[-1].text, kept(paths)[-1].finish) == ("Once", "cancelled")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_second_interrupt_ends_at_once(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    engine.script = interrupted(engine, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ask("Tell me")
    assert engine.closed
    assert kept(paths)[-1].text == "Once"


def test_an_interrupt_while_the_model_loads(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    def load() -> Iterator[Event]:
        yield Loading(0.1)
        while not kept(paths):
            pass  # until the question is on disk
        os.kill(os.getpid(), signal.SIGINT)

    engine.begin = load()  # type: ignore[assignment]
    asked = ask("Tell me")
    assert (asked.code, asked.out.getvalue()) == (130, "")
    assert kept(paths)[0].text == "Tell me"
    assert engine.requests == []


class Full(io.StringIO):
    """A stdout that takes so many pieces."""

    def __init__(self, pieces: int, error: OSError) -> None:
        super().__init__()
        self.pieces = pieces
        self.error = error

    def write(self, text: str) -> int:
        self.pieces -= 1
        if self.pieces < 0:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")])
def test_an_answer_that_nobody_takes_is_stopped_and_kept(
    ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths, error: OSError
) -> None:
    def script(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "One"), delta(request, " two"))
        assert engine.cancelled.wait(30)
        yield finished(request, "cancelled")

    engine.script = script
    asked = Asked()
    asked.out = Full(1, error)
    with pytest.raises(OSError) as caught:
        ask("Tell me", asked=asked)
    assert caught.value is error
    assert kept(paths)[-1].text == "One two"
