"""`kvchat ask --n`: several answers in one stream or one object, and how they end."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from asking import Asked, kept
from fake_backend import delta, finished, make_ready, prompt_events, turn_events
from scripted_engine import ScriptedEngine

from kvchat.backend.protocol import Event, Generate, TurnFinished
from kvchat.backend.values import Failure, Sampling, Usage
from kvchat.chats.store import ChatStore
from kvchat.cli import main
from kvchat.commands.several import count_of
from kvchat.config import Settings
from kvchat.errors import INTERRUPTED, KvchatError, UsageError
from kvchat.paths import Paths

SEEDED = Settings(sampling=Sampling(seed=7))


class Several(ScriptedEngine):
    """Plays the turns of the test one event after the other: `order` says from which request the next one is. Without
    it, those of each request as soon as it comes."""

    def __init__(self) -> None:
        super().__init__([make_ready(name="first")], lambda request: iter(turn_events(request, ["a"])))
        self.texts: list[list[str]] = [["one ", "first"], ["two"], ["three\n"]]
        self.order: list[int] = []
        self.ends: dict[int, Callable[[Generate], TurnFinished]] = {}
        self.stopped: list[str] = []
        self.wait_for_stop = False
        self._lock = threading.Lock()

    def submit(self, request: Generate) -> None:
        with self._lock:
            self.requests.append(request)
            count = len(self.requests)
        if count % len(self.texts) == 0:
            threading.Thread(target=self._play_all, args=(self.requests[-len(self.texts) :],)).start()

    def cancel(self, turn: str) -> None:
        self.stopped.append(turn)
        request = next(each for each in self.requests if each.turn == turn)
        self.post(finished(request, "cancelled"))

    def _play_all(self, requests: list[Generate]) -> None:
        plays = [self._events(number, request) for number, request in enumerate(requests)]
        for number in self.order:
            self.post(next(plays[number]))
        if self.wait_for_stop:
            return
        for play in plays:
            for event in play:
                self.post(event)

    def _events(self, number: int, request: Generate) -> Iterator[Event]:
        yield from prompt_events(request)
        yield from (delta(request, text) for text in self.texts[number])
        yield self.ends.get(number, finished)(request)


PROMPT = 4  # events before the first text


@pytest.fixture
def engine() -> Several:
    return Several()


def answers(paths: Paths) -> list[tuple[str, str | None]]:
    """All answers of the last chat on disk."""
    store = ChatStore(paths.chats_db)
    chat = store.latest()
    assert chat is not None
    branch = store.branch(chat.id, chat.head)
    found = [store.path(each)[-1] for each in branch.siblings[branch.messages[-1].id]]
    store.close()
    return [(message.text, message.finish) for message in found]


def test_one_after_the_other_with_a_line_before_each(ask: Callable[..., Asked], engine: Several, paths: Paths) -> None:
    asked = ask("Who?", count=3, settings=SEEDED)
    assert asked.code == 0
    assert asked.out.getvalue() == (
        "--- 1/3, seed 7 ---\none first\n\n--- 2/3, seed 8 ---\ntwo\n\n--- 3/3, seed 9 ---\nthree\n"
    )
    assert asked.err.getvalue() == ""
    assert answers(paths) == [("one first", "stop"), ("two", "stop"), ("three\n", "stop")]
    assert [m.text for m in kept(paths)] == ["Who?", "one first"]
    first, *others = engine.requests
    assert [each.alternative_of for each in engine.requests] == [None, first.turn, first.turn]
    assert all(each.messages == first.messages for each in others)


def test_they_come_in_their_order_however_they_are_made(ask: Callable[..., Asked], engine: Several) -> None:
    """The third is ready before the first has begun, the second while the first is written."""
    engine.order = [2] * (PROMPT + 2) + [0] * (PROMPT + 1) + [1] * (PROMPT + 2) + [0]
    assert ask("x", count=3, settings=SEEDED).out.getvalue() == (
        "--- 1/3, seed 7 ---\none first\n\n--- 2/3, seed 8 ---\ntwo\n\n--- 3/3, seed 9 ---\nthree\n"
    )


def test_the_first_streams(ask: Callable[..., Asked], engine: Several) -> None:
    asked, seen = Asked(), threading.Event()
    write = asked.out.write
    asked.out.write = lambda text: seen.set() if "one" in text else None or write(text)  # type: ignore[method-assign, return-value]
    events = engine._events

    def waiting(number: int, request: Generate) -> Iterator[Event]:
        for event in events(number, request):
            if number == 0 and event == delta(request, "first"):
                assert seen.wait(30)
            yield event

    engine._events = waiting  # type: ignore[method-assign]
    assert ask("x", count=3, asked=asked, settings=SEEDED).code == 0
    assert seen.is_set()


def test_one_object_with_all_of_them(ask: Callable[..., Asked], engine: Several, paths: Paths) -> None:
    usage = Usage(prompt_tokens=20, reused=19, shared=19, computed=1, decode_tokens=4, decode_seconds=2.0)
    engine.ends[1] = lambda request: TurnFinished(request.turn, "length", usage)
    asked = ask("Who?", count=3, json=True, settings=SEEDED)
    assert asked.code == 0
    assert asked.out.getvalue().count("\n") == 1
    told = json.loads(asked.out.getvalue())
    assert (told["text"], told["finish"], told["message"]) == ("one first", "stop", kept(paths)[-1].id)
    assert [each["text"] for each in told["alternatives"]] == ["one first", "two", "three\n"]
    assert told["alternatives"][0]["message"] == told["message"]
    assert told["alternatives"][0]["prompt"] == told["prompt"]
    second = told["alternatives"][1]
    assert {key: second[key] for key in ("finish", "seed", "temperature")} == {
        "finish": "length",
        "seed": 8,
        "temperature": 0.8,
    }
    assert (second["prompt"]["reused"], second["prompt"]["from"]["shared"], second["prompt"]["computed"]) == (19, 19, 1)
    assert second["decode"]["tokens_per_second"] == 2.0


def test_one_answer_has_no_list(ask: Callable[..., Asked], engine: Several) -> None:
    engine.texts = [["one"]]
    told = json.loads(ask("x", json=True, count=1).out.getvalue())
    assert "alternatives" not in told
    assert engine.requests[0].alternative_of is None


def test_in_a_chat_that_is_there(ask: Callable[..., Asked], engine: Several, paths: Paths) -> None:
    ask("Who?", count=3, settings=SEEDED)
    ask("Why?", count=3, continue_last=True, settings=SEEDED)
    assert [m.text for m in engine.requests[-1].messages] == ["Who?", "one first", "Why?"]
    assert [m.text for m in kept(paths)] == ["Who?", "one first", "Why?", "one first"]


def test_greedy_answers_are_the_same_and_that_is_said(ask: Callable[..., Asked]) -> None:
    asked = ask("x", count=3, settings=Settings(sampling=Sampling(temperature=0.0)))
    assert asked.code == 0
    assert "at temperature 0 all of them are the same" in asked.err.getvalue()


def test_one_that_failed(ask: Callable[..., Asked], engine: Several, paths: Paths) -> None:
    """The others are answers; the exit says that one is none."""
    engine.texts[1] = []
    engine.ends[1] = lambda request: finished(request, "error", Failure("no room for it", "wait"))
    asked = Asked()
    with pytest.raises(KvchatError, match="1 of 3 answers failed: no room for it") as told:
        ask("x", count=3, asked=asked, settings=SEEDED)
    assert "kept with the chat" in told.value.hint
    assert asked.out.getvalue() == (
        "--- 1/3, seed 7 ---\none first\n\n--- 2/3, seed 8 ---\n\n--- 3/3, seed 9 ---\nthree\n"
    )
    assert answers(paths) == [("one first", "stop"), ("", "error"), ("three\n", "stop")]


def test_an_engine_that_died(ask: Callable[..., Asked], engine: Several, paths: Paths) -> None:
    for number in range(3):
        engine.ends[number] = lambda request: finished(request, "died", Failure("the engine was killed"))
    asked = Asked()
    with pytest.raises(KvchatError, match="all answers failed: the engine was killed"):
        ask("x", count=3, json=True, asked=asked, settings=SEEDED)
    assert [each["finish"] for each in json.loads(asked.out.getvalue())["alternatives"]] == ["died"] * 3
    assert answers(paths) == [("one first", "died"), ("two", "died"), ("three\n", "died")]


def test_a_full_context(ask: Callable[..., Asked], engine: Several) -> None:
    def full(request: Generate) -> TurnFinished:
        return replace(finished(request), reason="context")

    engine.ends[1] = full
    asked = ask("x", count=3, settings=SEEDED)
    assert asked.code == 0
    assert "the context of 4096 tokens is full, so answer 2 ends here" in asked.err.getvalue()


def test_an_interrupt_stops_all(ask: Callable[..., Asked], engine: Several, paths: Paths) -> None:
    engine.order, engine.wait_for_stop = [0] * (PROMPT + 1) + [1] * (PROMPT + 1), True
    asked = Asked()
    write = asked.out.write

    def interrupting(text: str) -> int:
        if "one " in text:
            os.kill(os.getpid(), signal.SIGINT)
        return write(text)

    asked.out.write = interrupting  # type: ignore[method-assign]
    assert ask("x", count=3, asked=asked, settings=SEEDED).code == INTERRUPTED
    assert sorted(engine.stopped) == sorted(request.turn for request in engine.requests)
    assert [finish for _, finish in answers(paths)] == ["cancelled"] * 3
    assert answers(paths)[0][0] == "one "


@pytest.mark.parametrize("text", ["0", "17", "x", "-1", "", "2.5"])
def test_a_number_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError, match="--n"):
        count_of(text)


def test_not_with_an_answer_that_goes_on(ask: Callable[..., Asked], paths: Paths, engine: Several) -> None:
    engine.closed = True
    with pytest.raises(UsageError, match="--resume goes on with one answer"):
        ask(resume=True, count=3)
    assert not paths.chats_db.exists()


def test_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "--n", "0", "x"]) == 2
    assert "--n" in capsys.readouterr().err
    assert main(["chats", "ls", "--n", "3"]) == 2
