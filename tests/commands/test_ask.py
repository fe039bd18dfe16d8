"""`kvchat ask` with a scripted engine and the real conversation and store: answers, JSON, chats and models."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from asking import Asked, Terminal, kept
from fake_backend import delta, finished, make_ready, prompt_events
from scripted_engine import ScriptedEngine, answer

from kvchat.backend.protocol import Event, Generate
from kvchat.backend.values import Failure, Sampling, Usage
from kvchat.commands.ask import LARGEST_INPUT
from kvchat.config import Settings
from kvchat.errors import KvchatError, UsageError
from kvchat.paths import Paths

# ------------------------------------------------------------------ an answer


def test_the_answer_and_nothing_else_on_stdout(ask: Callable[..., Asked], paths: Paths) -> None:
    asked = ask("Who", "is", "there?")
    assert (asked.code, asked.out.getvalue(), asked.err.getvalue()) == (0, "Hello there.\n", "")
    assert [(m.role, m.text, m.finish) for m in kept(paths)] == [
        ("user", "Who is there?", ""),
        ("assistant", "Hello there.", "stop"),
    ]


def test_text_streams(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    """The first piece is on stdout while the second is not yet made."""
    asked, seen = Asked(), threading.Event()
    asked.out.write = lambda text: seen.set() or io.StringIO.write(asked.out, text)  # type: ignore[method-assign, func-returns-value]

    def script(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "one"))
        assert seen.wait(30)
        yield from (delta(request, " two"), finished(request))

    engine.script = script
    assert ask("x", asked=asked).out.getvalue() == "one two\n"


def test_a_pipe_gets_what_the_model_wrote_a_terminal_nothing_to_obey(
    ask: Callable[..., Asked], engine: ScriptedEngine
) -> None:
    engine.script = answer("red: \x1b[31m", "!\n")
    assert ask("x").out.getvalue() == "red: \x1b[31m!\n"  # no second line feed
    asked = Asked()
    asked.out = Terminal()
    assert ask("x", asked=asked).out.getvalue() == "red: ␛[31m!\n"


def test_stdin_comes_before_the_question(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    asked = Asked()
    asked.stdin = io.StringIO("first line\nsecond line\n\n")
    ask("Sum", "up:", asked=asked)
    assert engine.requests[0].messages[-1].text == "first line\nsecond line\n\nSum up:"


def test_stdin_alone_is_a_question(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    asked = Asked()
    asked.stdin = io.StringIO("Why?\n")
    ask(asked=asked)
    assert engine.requests[0].messages[-1].text == "Why?"


@pytest.mark.parametrize("stdin", [Terminal(), io.StringIO(), io.StringIO(" \n")])
def test_no_question(ask: Callable[..., Asked], paths: Paths, stdin: io.StringIO) -> None:
    asked = Asked()
    asked.stdin = stdin
    with pytest.raises(UsageError, match="no question"):
        ask(asked=asked)
    assert not paths.chats_db.exists()


def test_endless_stdin(ask: Callable[..., Asked]) -> None:
    asked = Asked()
    asked.stdin = io.StringIO("y" * (LARGEST_INPUT + 1))
    with pytest.raises(KvchatError, match="million characters"):
        ask("x", asked=asked)


def test_settings_reach_the_engine(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=5, stop=("END",))
    ask("x", settings=Settings(context=512, type_k="q8_0", sampling=sampling, history="exact", system="Be brief."))
    (config,), (request,) = engine.configs, engine.requests
    assert (config.context, config.type_k, config.kv_folder) == (512, "q8_0", str(paths.kv_folder))
    assert (request.sampling, request.history, request.keep_kv) == (sampling, "exact", True)
    assert [(m.role, m.text) for m in request.messages] == [("system", "Be brief."), ("user", "x")]


def test_what_drafts_reaches_the_engine(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    """By name or by path; the chat keeps the draft model, and what one command line says holds for that one only."""
    second = str(paths.models_folder / "second.gguf")
    ask("x", settings=Settings(model="first", model_draft="second", draft="model"))
    assert (engine.configs[0].draft_path, engine.requests[0].draft) == (second, "model")
    ask("more", continue_last=True, settings=Settings(draft="off", given=frozenset({"draft"})))
    assert (engine.configs[1].draft_path, engine.requests[1].draft) == (second, "off")
    none = Settings(model_draft=None, given=frozenset({"model_draft"}))
    ask("more", continue_last=True, settings=none)
    assert (engine.configs[2].draft_path, engine.requests[2].draft) == (None, "auto")
    ask("more", continue_last=True)
    assert engine.configs[3].draft_path == second


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        (Settings(draft="model"), "only a draft model is to draft, and there is none", "--model-draft"),
        (Settings(model_draft="thrid"), "the draft model: there is no model 'thrid'", "there are: first, second"),
        (Settings(model_draft="/no/such.gguf"), "the draft model: there is no file '/no/such.gguf'", "check the path"),
    ],
)
def test_a_draft_model_that_is_not_there(
    ask: Callable[..., Asked], engine: ScriptedEngine, settings: Settings, message: str, hint: str
) -> None:
    """Told before anything is started; the question is in no chat."""
    engine.closed = True
    with pytest.raises(KvchatError) as told:
        ask("x", settings=settings)
    assert (told.value.message, hint in told.value.hint) == (message, True)
    assert engine.requests == []


def test_no_kv_neither_restores_nor_saves(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    ask("x", settings=Settings(kv=False))
    assert engine.configs[0].kv_folder is None
    assert engine.requests[0].keep_kv is False


# ------------------------------------------------------------------ JSON


def test_json_has_the_names_of_the_contract(ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths) -> None:
    usage = Usage(
        prompt_tokens=800,
        reused=768,
        computed=32,
        pages=768,
        restore_seconds=0.01,
        prefill_seconds=0.12,
        decode_tokens=12,
        decode_seconds=0.2,
        ttft_seconds=0.15,
        cells=812,
        cache_bytes=18708480,
        pages_saved=1,
        bytes_saved=1013760,
        draft_kind="both",
        draft_proposed=12,
        draft_accepted=9,
        draft_steps=4,
        draft_seconds=0.0123456789,
        draft_speedup=1.31249,
        draft_note="paused for a while",
    )

    def script(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), delta(request, "Four"), replace(finished(request), usage=usage))

    engine.script = script
    asked = ask("2 + 2?", json=True)
    question, reply = kept(paths)
    assert asked.code == 0
    assert asked.out.getvalue().count("\n") == 1
    assert json.loads(asked.out.getvalue()) == {
        "chat": question.chat,
        "message": reply.id,
        "text": "Four",
        "finish": "stop",
        "prefix": None,
        "model": {
            "name": "first",
            "architecture": "llama",
            "attention": "GQA",
            "fingerprint": "0" * 32,
            "kv_bytes_per_token": 23040,
            "adapters": [],
        },
        "cache": {"type_k": "f16", "type_v": "f16", "context": 4096, "cells": 812, "bytes": 18708480},
        "prompt": {
            "tokens": 800,
            "reused": 768,
            "computed": 32,
            "cut": None,
            "from": {"resident": 0, "shared": 0, "pages": 768, "checkpoint": 0},
            "transcoded": None,
            "transcoded_tokens": 0,
            "restore_seconds": 0.01,
            "prefill_seconds": 0.12,
        },
        "decode": {"tokens": 12, "seconds": 0.2, "tokens_per_second": 60.0, "ttft_seconds": 0.15},
        "draft": {
            "kind": "both",
            "proposed": 12,
            "accepted": 9,
            "steps": 4,
            "seconds": 0.012346,
            "speedup": 1.312,
            "note": "paused for a while",
        },
        "overflow": None,
        "remote": None,
        "saved": {"pages": 1, "bytes": 1013760, "problem": None},
    }


def test_json_of_a_failure_is_no_json(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    engine.script = lambda request: iter(
        [finished(request, "error", Failure("the context is smaller than the prompt", "use --ctx-size"))]
    )
    asked = Asked()
    with pytest.raises(KvchatError) as caught:
        ask("x", asked=asked, json=True)
    assert (caught.value.message, caught.value.hint) == ("the context is smaller than the prompt", "use --ctx-size")
    assert asked.out.getvalue() == ""


@pytest.mark.parametrize(("trained", "larger"), [(4096, " --ctx-size 2048"), (0, " --ctx-size 2048"), (900, "")])
def test_a_question_that_does_not_fit(
    ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths, trained: int, larger: str
) -> None:
    """It stays in the chat, and can be asked again in a larger context, if the model knows one."""
    usage = Usage(prompt_tokens=1_200, excess=177)

    def script(request: Generate) -> Iterator[Event]:
        failure = Failure("the conversation is 177 tokens too long", "a hint for nobody")
        yield replace(finished(request, "context", failure), usage=usage)

    engine.begin, engine.script = [make_ready(name="first", context=trained)], script
    with pytest.raises(KvchatError, match="177 tokens too long") as caught:
        ask("A long question")
    question, reply = kept(paths)
    assert (question.text, reply.text, reply.finish) == ("A long question", "", "context")
    again = f"kvchat ask --resume --chat {question.chat}{larger}"
    assert (again in caught.value.hint) == bool(larger)
    assert "shorter question" in caught.value.hint
    assert caught.value.hint.endswith(", or --overflow sinks or prune lets some go")
    engine.begin, engine.script = [make_ready(name="first")], answer("Now it fits.")
    ask(chat=question.chat, resume=True)
    assert [message.text for message in kept(paths)] == ["A long question", "Now it fits."]


# ------------------------------------------------------------------ which chat, which model


def test_continue_goes_on_with_the_last_chat(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    chat = json.loads(ask("one", json=True).out.getvalue())["chat"]
    assert json.loads(ask("two", json=True, continue_last=True).out.getvalue())["chat"] == chat
    past = engine.requests[-1].messages
    assert [(m.role, m.text) for m in past] == [("user", "one"), ("assistant", "Hello there."), ("user", "two")]
    assert past[0].ids is not None  # the engine need not tokenize the past again
    assert past[1].ids is not None
    assert past[2].ids is None


def test_without_continue_a_chat_is_new(ask: Callable[..., Asked]) -> None:
    chats = {json.loads(ask("x", json=True).out.getvalue())["chat"] for _ in range(2)}
    assert len(chats) == 2


def test_chat_by_a_part_of_its_title(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    ask("All about caches")
    ask("Something else")
    ask("more", chat="caches")
    assert engine.requests[-1].messages[0].text == "All about caches"


@pytest.mark.parametrize("options", [{"continue_last": True}, {"chat": "01J"}, {"resume": True}])
def test_no_chat_to_go_on_with(ask: Callable[..., Asked], engine: ScriptedEngine, options: dict[str, object]) -> None:
    with pytest.raises(KvchatError, match="no chats yet"):
        ask(*([] if "resume" in options else ["x"]), **options)
    assert engine.configs == []  # nothing was loaded for it


def model_flag(name: str) -> Settings:
    return Settings(model=name, given=frozenset({"model"}))


def test_who_decides_about_the_model(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    def used(*, continue_last: bool = False, settings: Settings | None = None, answers: str) -> str:
        engine.begin = [make_ready(name=answers)]
        ask("x", continue_last=continue_last, settings=settings)
        return Path(engine.configs[-1].model_path).stem

    assert used(answers="first") == "first"  # the default
    assert used(settings=model_flag("SECOND"), answers="second") == "second"
    assert used(answers="second") == "second"  # that of the latest chat
    assert used(settings=Settings(model="first"), answers="first") == "first"  # the settings go before that
    assert used(continue_last=True, settings=Settings(model="second"), answers="first") == "first"  # the chat's own
    assert used(continue_last=True, settings=model_flag("second"), answers="second") == "second"
    assert used(continue_last=True, settings=Settings(model="first"), answers="second") == "second"  # is its own now


def test_a_chat_whose_model_was_given_by_path_goes_on(
    ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths, tmp_path: Path
) -> None:
    elsewhere = (paths.models_folder / "second.gguf").rename(tmp_path / "other.gguf")
    engine.begin = [make_ready(name="other")]
    ask("x", settings=model_flag(str(elsewhere)))
    ask("y", continue_last=True)
    assert [config.model_path for config in engine.configs] == [str(elsewhere)] * 2
    elsewhere.unlink()
    with pytest.raises(KvchatError, match="other, is not there any more") as caught:
        ask("z", continue_last=True)
    assert "--model" in caught.value.hint
    ask("z")  # a new chat does not depend on it
    assert Path(engine.configs[-1].model_path).stem == "first"


def test_flags_about_the_cache_are_for_one_turn_of_an_old_chat(
    ask: Callable[..., Asked], engine: ScriptedEngine
) -> None:
    ask("x", settings=Settings(type_v="q8_0", given=frozenset({"cache_type_v"})))  # a new one keeps it
    ask("x", continue_last=True)
    ask("x", continue_last=True, settings=Settings(type_v="q4_0", context=512, given=frozenset({"cache_type_v"})))
    ask("x", continue_last=True, settings=Settings(type_k="q8_0"))  # from the settings file
    assert [(c.type_k, c.type_v, c.context) for c in engine.configs] == [
        ("f16", "q8_0", 0),
        ("f16", "q8_0", 0),
        ("f16", "q4_0", 512),
        ("f16", "q8_0", 0),
    ]


def test_unknown_model_names_the_nearest_and_starts_no_chat(ask: Callable[..., Asked], paths: Paths) -> None:
    with pytest.raises(KvchatError, match="frist") as caught:
        ask("x", settings=Settings(model="frist"))
    assert "first" in caught.value.hint
    assert kept(paths) == ()


def test_another_system_prompt_for_an_old_chat(ask: Callable[..., Asked], engine: ScriptedEngine) -> None:
    ask("one", settings=Settings(system="Be brief."))
    ask("two", continue_last=True)
    assert engine.requests[-1].messages[0].text == "Be brief."
    ask("three", continue_last=True, settings=Settings(system="Be long.", given=frozenset({"system"})))
    ask("four", continue_last=True)
    assert engine.requests[-1].messages[0].text == "Be long."
    ask("five", continue_last=True, settings=Settings(system="", given=frozenset({"system"})))
    assert engine.requests[-1].messages[0].role == "user"
