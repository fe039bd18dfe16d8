"""A server as an engine of the app: turns, cancel, other servers, and the way between this machine and a server."""

from __future__ import annotations

import queue
import threading
from itertools import repeat

import pytest
from fake_backend import make_ready
from remote_driver import Talk
from scripted_server import Reply, Script, ScriptedServer, failing, saying, usage

from kvchat.backend.choices import EngineConfig, Remote
from kvchat.backend.fidelity import Measure, Measured
from kvchat.backend.outlooks import Forecast, Title, Warm
from kvchat.backend.pins import Pin, Pinned
from kvchat.backend.protocol import (
    Event,
    Generate,
    LoadFailed,
    PromptProgress,
    Ready,
    Restored,
    Summarize,
    Summarized,
    TextDelta,
    TurnFinished,
)
from kvchat.backend.switching import SwitchingEngine
from kvchat.backend.values import PromptMessage


def test_what_is_known_of_a_server() -> None:
    with ScriptedServer(saying("Hi"), names=("Qwen/Qwen3-32B",)) as server:
        talk = Talk(server.url)
        ready = talk.start()
        talk.engine.close()
    assert isinstance(ready, Ready)
    assert ready.model.name == "Qwen/Qwen3-32B"
    assert ready.model.path == "remote:lab"
    assert ready.model.text_key == "", "token ids of this machine mean nothing there, nor its there here"
    assert ready.cache.context == 4096
    assert not ready.cache.pages
    assert ready.remote == talk.remote


def test_a_file_is_called_by_its_name() -> None:
    with ScriptedServer(saying("Hi"), owner="llamacpp", names=("/models/Some-Model.Q4_0.gguf",)) as server:
        talk = Talk(server.url)
        ready = talk.start()
        talk.ask("Hello")
        talk.engine.close()
        assert server.seen[0].body["model"] == "/models/Some-Model.Q4_0.gguf"
    assert isinstance(ready, Ready)
    assert ready.model.name == "Some-Model.Q4_0"


def test_turns_are_built_on_what_was_said() -> None:
    answers = [saying("One", ".", usage=usage(10, 2, 0)), saying("Two.", usage=usage(20, 2, 11))]
    with ScriptedServer(*answers) as server:
        talk = Talk(server.url)
        talk.start()
        assert talk.ask("Count.")[0] == "One."
        _, finished = talk.ask("Go on.")
        talk.engine.close()
        assert server.seen[1].said == [("user", "Count."), ("assistant", "One."), ("user", "Go on.")]
    assert (finished.usage.prompt_tokens, finished.usage.reused, finished.usage.computed) == (20, 11, 9)
    assert finished.usage.remote == server.host
    assert finished.reason == "stop"


def test_cancel_closes_the_connection() -> None:
    """The server sees that nobody listens, which is how it stops; what had come is kept."""

    def endless(reply: Reply) -> None:
        reply.begin()
        reply.server.until_left(reply, repeat("word "))

    with ScriptedServer(endless, saying("Next.")) as server:
        talk = Talk(server.url)
        talk.start()
        turn = talk.submit("Go on for ever.")
        begun = talk.until_text()
        talk.engine.cancel(turn)
        text, finished = talk.end(begun)
        assert server.left.wait(60)
        assert talk.ask("And now?")[0] == "Next."
        talk.engine.close()
        assert server.seen[1].said[1] == ("assistant", text)
    assert finished.reason == "cancelled"
    assert finished.failure is None
    assert text.startswith("word ")


def test_cancel_before_the_first_word() -> None:
    held = threading.Event()

    def slow(reply: Reply) -> None:
        held.wait(20)
        reply.begin()

    with ScriptedServer(slow) as server:
        talk = Talk(server.url)
        talk.start()
        turn = talk.submit("Hello")
        talk.engine.cancel(turn)
        text, finished = talk.end()
        held.set()
        talk.engine.close()
    assert (text, finished.reason) == ("", "cancelled")


def test_the_progress_of_a_prompt() -> None:
    def play(reply: Reply) -> None:
        reply.begin()
        for done in (8, 10):
            told = {"total": 10, "cache": 6, "processed": done, "time_ms": 500}
            reply.event({"choices": [{"delta": {}}], "prompt_progress": told})
        reply.delta(content="Read.")
        reply.end(usage(10, 1, 6))

    with ScriptedServer(play, owner="llamacpp") as server:
        talk = Talk(server.url)
        talk.start()
        turn = talk.submit("Read this.")
        events: list[Event] = []
        while not events or not isinstance(events[-1], TurnFinished):
            events.append(talk.events.get(timeout=30))
        talk.engine.close()
    assert events[0] == Restored(turn, 6, 0, 0, 0, 4, 0.0, None)
    assert [event for event in events if isinstance(event, PromptProgress)] == [
        PromptProgress(turn, 2, 4, 4.0),
        PromptProgress(turn, 4, 4, 8.0),
    ]


def test_a_server_that_does_not_know_an_option() -> None:
    """Asked once more without it, and only for that."""
    unknown = failing(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]})
    with ScriptedServer(unknown, saying("Fine.")) as server:
        talk = Talk(server.url)
        talk.start()
        text, finished = talk.ask("Hello")
        talk.engine.close()
        first, second = (seen.body for seen in server.seen)
    assert (text, finished.reason, finished.usage.prompt_tokens) == ("Fine.", "stop", 0)
    assert first.pop("stream_options") == {"include_usage": True}
    assert first == second


def test_nothing_is_asked_but_turns() -> None:
    """Neither drafts nor titles are sent; what cannot be made there is answered."""
    with ScriptedServer(saying("x")) as server:
        talk = Talk(server.url)
        talk.start()
        asked, draft = server.asked, (PromptMessage("user", "a secret draft"),)
        talk.engine.warm(Warm("w", (1, 2)))
        talk.engine.forecast(Forecast("f", draft))
        talk.engine.title(Title("n", draft))
        talk.engine.summarize(Summarize("s", draft, 10))
        talk.engine.measure(Measure("m", (1,), "", (), ()))
        talk.engine.pin(Pin("p", "prefix", "system"))
        answers = [talk.events.get(timeout=60) for _ in range(3)]
        talk.engine.close()
        assert server.asked == asked
    assert [type(event) for event in answers] == [Summarized, Measured, Pinned]
    assert all(event.failure is not None for event in answers)  # type: ignore[union-attr]


def test_incognito_chats_do_not_leave_the_machine_unasked() -> None:
    """They may be read by a server on this machine."""
    with ScriptedServer(saying("Here.")) as server:
        talk = Talk(server.url)
        talk.start()
        assert talk.ask("A secret", incognito=True)[0] == "Here."
        elsewhere = Remote("far", "http://far.example:1/v1")
        talk.engine._reached = EngineConfig("").on(elsewhere)  # as if it had another name
        text, finished = talk.ask("Another secret", incognito=True)
        talk.engine.close()
        assert len(server.seen) == 1
    assert (text, finished.reason) == ("", "error")
    assert finished.failure is not None
    assert "this chat is incognito, and far.example:1 is another machine" in finished.failure.message
    assert "/model remote:far asks" in finished.failure.hint


def test_an_incognito_turn_is_judged_by_the_server_that_would_read_it() -> None:
    """Not by the next one, which is chosen before the turn begins."""
    with ScriptedServer(saying("Here.")) as server:
        talk = Talk(server.url)
        talk.start()
        elsewhere = Remote("far", "http://far.example:1/v1")
        talk.engine._reached = EngineConfig("").on(elsewhere)  # as if it had another name
        chosen = threading.Event()
        talk.engine._loop.call_soon_threadsafe(chosen.wait, 20)
        talk.submit("A secret", incognito=True)
        talk.engine.configure(EngineConfig("").on(talk.remote))
        chosen.set()
        _, finished = talk.end()
        talk.engine.close()
        assert server.seen == []
    assert finished.failure is not None and "far.example:1 is another machine" in finished.failure.message


def test_another_server() -> None:
    with ScriptedServer(saying("First.")) as first, ScriptedServer(saying("Second.")) as second:
        talk = Talk(first.url)
        talk.start()
        talk.ask("Hello")
        talk.engine.configure(EngineConfig("").on(Remote("other", second.url)))
        assert talk.engine.ready is None
        ready = talk.events.get(timeout=30)
        assert isinstance(ready, Ready)
        assert ready.model.path == "remote:other"
        assert talk.ask("And you?")[0] == "Second."
        talk.engine.close()


def test_close_ends_turns_and_is_final() -> None:
    def endless(reply: Reply) -> None:
        reply.begin()
        reply.server.until_left(reply, repeat("word "))

    with ScriptedServer(endless) as server:
        talk = Talk(server.url)
        talk.start()
        talk.submit("Hello")
        begun = talk.until_text()
        talk.engine.close()
        _, finished = talk.end(begun)
        assert server.left.wait(60)
        late = talk.submit("Still there?")
        assert talk.events.get(timeout=60).turn == late  # type: ignore[union-attr]
        talk.engine.close()
    assert finished.reason == "cancelled"


def test_two_turns_at_once() -> None:
    met = threading.Barrier(2, timeout=60)

    def together(text: str) -> Script:
        def play(reply: Reply) -> None:
            met.wait()
            saying(text)(reply)

        return play

    with ScriptedServer(together("One."), together("Two.")) as server:
        talk = Talk(server.url)
        talk.start()
        turns = {talk.submit("a"), talk.submit("b")}
        ended: dict[str, str] = {}
        while len(ended) < 2:
            event = talk.events.get(timeout=30)
            if isinstance(event, TurnFinished):
                ended[event.turn] = event.reason
        talk.engine.close()
    assert ended == dict.fromkeys(turns, "stop")


class Local:
    """An engine of this machine, as far as a switch sees one."""

    made: list[Local] = []  # noqa: RUF012

    def __init__(self, config: EngineConfig, post, *_: object, **__: object) -> None:
        self.config, self.post, self.ready = config, post, None
        self.closed: float | None = None
        Local.made.append(self)

    def start(self) -> None:
        self.ready = make_ready()
        self.post(self.ready)

    def close(self, patience: float = 6.0) -> None:
        self.closed = patience


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> type[Local]:
    monkeypatch.setattr("kvchat.backend.local.Engine", Local)
    monkeypatch.setattr(Local, "made", [])
    return Local


def test_from_this_machine_to_a_server_and_back(local: type[Local], tmp_path) -> None:
    """Each engine is let go without waiting for it, and does not speak for the present one any more."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    here = EngineConfig("/models/a.gguf", type_k="q8_0", type_v="q8_0")
    with ScriptedServer(saying("From afar.")) as server:
        engine = SwitchingEngine(here, events.put, tmp_path, tmp_path / "log")
        engine.start()
        assert events.get(timeout=60) == make_ready()
        there = here.on(Remote("lab", server.url))
        engine.configure(there)
        ready = events.get(timeout=30)
        assert isinstance(ready, Ready)
        assert ready.remote is not None
        assert local.made[0].closed == 0.0
        local.made[0].post(make_ready())
        local.made[0].post(LoadFailed(failure=None))  # type: ignore[arg-type]
        owed = TurnFinished("old", "died", usage=None)  # type: ignore[arg-type]
        local.made[0].post(owed)
        assert events.get(timeout=60) is owed
        engine.submit(Generate("t", (PromptMessage("user", "Hi"),)))
        assert isinstance(events.get(timeout=30), TextDelta)
        assert isinstance(events.get(timeout=30), TurnFinished)
        engine.configure(there.of_model("/models/a.gguf"))
        assert events.get(timeout=60) == make_ready()
        assert local.made[1].config == here, "what was chosen here is as it was"
        engine.close()


def test_a_server_that_is_gone_is_no_reason_to_stay(local: type[Local], tmp_path) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = SwitchingEngine(
        EngineConfig("").on(Remote("lab", "http://127.0.0.1:9/v1")), events.put, tmp_path, tmp_path / "log"
    )
    engine.start()
    assert isinstance(events.get(timeout=30), LoadFailed)
    assert engine.ready is None
    engine.configure(EngineConfig("/models/a.gguf"))
    assert events.get(timeout=60) == make_ready()
    engine.close()
