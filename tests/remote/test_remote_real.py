"""Against real servers on loopback: what they had cached is told, cancel stops them, a chat goes there and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_servers import get, llama_server, post, python_server
from remote_driver import Talk

from kvchat.backend.protocol import Ready
from kvchat.backend.remote_wire import Patience
from kvchat.backend.values import Sampling

SLOW = Patience(connect=10.0, models=30.0, silence=120.0)
QUESTIONS = (
    "Name three colours.",
    "Which of them is the sky?",
    "And which one is grass?",
    "What is a river?",
    "Name a big one.",
    "Where does it end?",
    "What is rain?",
    "Who needs it?",
    "What is snow?",
    "Thank you. Say goodbye.",
)


@pytest.fixture(scope="module")
def server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(smollm2, tmp_path_factory.mktemp("llama-server") / "log") as url:
        yield url


@pytest.fixture
def talk(server: str) -> Iterator[Talk]:
    talk = Talk(f"{server}/v1", patience=SLOW)
    assert isinstance(talk.start(), Ready)
    yield talk
    talk.engine.close()


def test_what_llama_server_says_of_itself(server: str, smollm2: Path) -> None:
    talk = Talk(f"{server}/v1", patience=SLOW)
    ready = talk.start()
    talk.engine.close()
    assert isinstance(ready, Ready)
    assert ready.model.name == smollm2.stem
    assert ready.cache.context == 4096
    assert "(llama-server) answers" in ready.notes[0]


def test_ten_turns_read_only_what_is_new(talk: Talk, server: str) -> None:
    """What the server had is all of the past but the token that was sampled last, which it never read; where a reply
    is other tokens when it comes back as text, all of the prompt before it."""
    prompt = past = exact = 0
    exact_reply = False
    for question in QUESTIONS:
        text, finished = talk.ask(question, sampling=Sampling(temperature=0, max_tokens=12))
        usage = finished.usage
        assert usage.reused + usage.computed == usage.prompt_tokens
        if exact_reply:
            exact += 1
            assert usage.reused == past
        assert usage.reused >= prompt
        assert finished.failure is None
        assert usage.cut is None
        prompt, past = usage.prompt_tokens, usage.prompt_tokens + usage.decode_tokens - 1
        ids = post(f"{server}/tokenize", {"content": text})["tokens"]
        exact_reply = len(ids) == usage.decode_tokens - (finished.reason == "stop")
    assert exact >= 5


def test_an_edited_question_is_named(talk: Talk) -> None:
    talk.ask("Tell me about the sea.")
    talk.ask("And about ships.")
    kept = talk.messages[:2]
    talk.messages[:] = kept
    _, finished = talk.ask("And about islands.")
    assert finished.usage.cut == "edited"
    assert 0 < finished.usage.reused < finished.usage.prompt_tokens


def test_cancel_stops_the_server(talk: Talk, server: str) -> None:
    turn = talk.submit("Count to ten thousand.", sampling=Sampling(temperature=0))
    begun = talk.until_text()
    assert get(f"{server}/slots")[0]["is_processing"]
    talk.engine.cancel(turn)
    text, finished = talk.end(begun)
    assert finished.reason == "cancelled"
    assert text
    deadline = time.monotonic() + 60
    while get(f"{server}/slots")[0]["is_processing"]:
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.05)
    again, finished = talk.ask("Stop. Name a colour.")
    assert again
    assert finished.usage.reused > 0


def test_a_reply_goes_on_where_it_stopped(talk: Talk) -> None:
    text, finished = talk.ask("Count from one to twenty in words.", sampling=Sampling(temperature=0, max_tokens=8))
    assert finished.reason == "length"
    before = finished.usage
    whole, finished = talk.ask(continue_reply=True, sampling=Sampling(temperature=0, max_tokens=8))
    assert finished.reason in ("length", "stop")
    assert finished.usage.reused >= before.prompt_tokens
    assert text not in whole, "only what is new comes"


def kvchat(*words: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "kvchat", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        stdin=subprocess.DEVNULL,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_chat_goes_to_a_server_and_back(server: str, smollm2: Path) -> None:
    """Its text goes along. What was computed here is found again; of the rest, what the server wrote is read."""
    here, there = ("-m", smollm2, "-t", 1), ("--remote", server)
    short = ("--temp", 0, "-n", 8)
    first = kvchat("ask", *here, *short, "Name three colours.")
    second = kvchat("ask", "-c", *there, *short, "And three animals.")
    third = kvchat("ask", "-c", *here, *short, "And three trees.")
    fourth = kvchat("ask", "-c", *there, *short, "And three rivers.")
    known = first["prompt"]["tokens"] + first["decode"]["tokens"] - 1
    assert second["chat"] == first["chat"]
    assert second["remote"] == {"host": server.removeprefix("http://"), "leaves": False}
    assert second["prompt"]["tokens"] > first["prompt"]["tokens"]
    assert third["remote"] is None
    assert third["prompt"]["from"]["pages"] == known
    assert third["prompt"]["computed"] == third["prompt"]["tokens"] - known
    assert fourth["prompt"]["reused"] >= second["prompt"]["tokens"]
    messages: Any = kvchat("chats", "show", first["chat"])
    texts = [message["text"] for message in messages]
    assert texts[1::2] == [each["text"] for each in (first, second, third, fourth)]


def test_the_server_of_llama_cpp_python(smollm2: Path, tmp_path: Path) -> None:
    """It says nothing of tokens; turns, their past and cancel work all the same."""
    with python_server(smollm2, tmp_path / "log") as url:
        talk = Talk(f"{url}/v1", patience=SLOW)
        assert isinstance(talk.start(), Ready)
        text, finished = talk.ask("Name a colour.", sampling=Sampling(temperature=0, max_tokens=8))
        assert text
        assert finished.failure is None
        assert finished.usage.reused == finished.usage.computed == 0
        turn = talk.submit("Count to ten thousand.", sampling=Sampling(temperature=0))
        begun = talk.until_text()
        talk.engine.cancel(turn)
        _, finished = talk.end(begun)
        assert finished.reason == "cancelled"
        again, finished = talk.ask("Name another.", sampling=Sampling(temperature=0, max_tokens=8))
        assert again
        assert finished.failure is None
        talk.engine.close()
