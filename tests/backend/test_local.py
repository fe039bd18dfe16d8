"""The client against a child that dies in every way: what is owed is paid, once, and the next engine is safer."""

import queue
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kvchat.backend.journal import DRAFT, EXTRA_BUFFERS, FLASH, TYPES, Journal, ladder, read_report
from kvchat.backend.local import Engine
from kvchat.backend.protocol import EngineDied, Generate, LoadFailed, Loading, Ready, Restored, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage

CHILD = Path(__file__).with_name("fake_engine.py")


class Client:
    """An engine whose events are collected."""

    def __init__(self, folder: Path, mode: str, config: EngineConfig) -> None:
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.log = folder / "logs" / "engine.log"
        program = (sys.executable, str(CHILD), mode)
        self.engine = Engine(config, self.events.put, folder / "state", self.log, program)
        self.engine.start()

    def until(self, *kinds):
        seen = []
        while not seen or not isinstance(seen[-1], kinds):
            seen.append(self.events.get(timeout=30))
        return seen

    def ask(self, turn: str) -> None:
        self.engine.submit(Generate(turn, (PromptMessage("user", "hi"),)))


@pytest.fixture
def start(tmp_path):
    clients = []

    def start(mode: str, **config) -> Client:
        model = tmp_path / "model.gguf"
        if not model.exists():
            model.touch()
        clients.append(Client(tmp_path, mode, EngineConfig(str(model), **config)))
        return clients[-1]

    yield start
    for client in clients:
        client.engine.close()


def finished(events):
    return [event for event in events if isinstance(event, TurnFinished)]


def test_a_turn_and_a_quiet_end(start):
    client = start("fine")
    ready = client.until(Ready)[-1]
    assert client.engine.ready == ready
    client.ask("a")
    events = client.until(TurnFinished)
    assert [type(event) for event in events] == [Restored, TextDelta, TurnFinished]
    assert events[-1].reason == "stop"
    client.engine.close()
    assert "goodbye" in client.log.read_text()
    assert client.log.stat().st_mode & 0o777 == 0o600
    assert client.log.parent.stat().st_mode & 0o777 == 0o700


def test_death_by_instruction_before_the_first_decode_starts_without_extra_buffers(start, tmp_path):
    client = start("no-extra-buffers")
    died, ready = client.until(Ready)
    assert isinstance(died, EngineDied)
    assert "SIGILL" in died.cause
    assert died.restarting
    assert died.log == ("last words",)
    assert not ready.cache.extra_buffers
    assert "SIGILL" in ready.notes[0]
    assert EXTRA_BUFFERS in ready.notes[0]
    assert EXTRA_BUFFERS in read_report(tmp_path / "state")[0]


def test_the_next_start_and_other_models_do_not_probe_again(start, tmp_path):
    start("no-extra-buffers").until(Ready)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"x")
    choice = Journal(tmp_path / "state").choose(EngineConfig(str(other)))
    assert not choice.config.extra_buffers
    assert "SIGILL" in choice.notes[0]


def test_a_death_with_one_context_is_no_reason_to_refuse_another(tmp_path):
    journal, config = Journal(tmp_path), EngineConfig(str(tmp_path / "model.gguf"), context=1)
    for _, rung in ladder(config):
        journal.died(rung, "was killed by SIGABRT")
    assert journal.choose(config) is None
    for other in (replace(config, context=0), replace(config, context=4096), replace(config, parallel=2)):
        assert Journal(tmp_path).choose(other).config == other


def test_every_rung_of_the_ladder_is_tried(start):
    client = start("only-plain", type_k="q8_0", type_v="q8_0")
    events = client.until(Ready)
    assert [event.restarting for event in events[:-1]] == [True, True]
    ready = events[-1]
    assert (ready.cache.type_k, ready.cache.type_v, ready.cache.extra_buffers) == ("f16", "f16", False)


def test_ladder_never_asks_for_what_llama_cpp_refuses():
    for type_v in ("f16", "bf16", "q8_0", "q4_0"):
        config = EngineConfig("m", type_v=type_v)
        for _, rung in ladder(config):
            assert not (rung.type_v in ("q8_0", "q4_0") and rung.flash_attention == "off")
    assert [name for name, _ in ladder(EngineConfig("m"))] == ["", EXTRA_BUFFERS, FLASH]
    assert [name for name, _ in ladder(EngineConfig("m", type_v="q8_0"))] == ["", EXTRA_BUFFERS, TYPES]
    assert [name for name, _ in ladder(EngineConfig("m", type_k="q8_0"))] == ["", EXTRA_BUFFERS, FLASH, TYPES]


def test_a_model_that_always_crashes_is_given_up(start, tmp_path):
    events = start("die-in-load").until(LoadFailed)
    assert [event.restarting for event in events[:-1]] == [True, True, False]
    assert "SIGILL" in events[-1].failure.message
    assert events[-1].failure.hint
    assert read_report(tmp_path / "state") == []


def test_a_kill_while_loading_blames_no_configuration(start, tmp_path):
    events = start("killed-in-load").until(LoadFailed)
    assert "out of memory" in events[-1].failure.message
    assert Journal(tmp_path / "state").choose(EngineConfig(str(tmp_path / "model.gguf"))).notes == ()


@pytest.mark.parametrize("mode", ["draft-dies", "draft-is-killed"])
def test_a_draft_model_that_kills_the_engine_is_left_out(start, mode):
    """Once, whatever the engine died of: the model itself stood."""
    client = start(mode, extra_buffers=False, draft_path="draft.gguf")
    died, ready = [event for event in client.until(Ready) if not isinstance(event, Loading)]
    assert died.restarting
    assert died.note.startswith(DRAFT)
    assert ready.draft is None
    assert ready.notes == (died.note,)
    assert client.engine.config.draft_path == "draft.gguf"


def test_one_that_crashed_is_not_tried_again_at_the_next_start(start):
    start("draft-dies", extra_buffers=False, draft_path="draft.gguf").until(Ready)
    (ready,) = start("draft-dies", extra_buffers=False, draft_path="draft.gguf").until(Ready)
    assert ready.draft is None
    assert "SIGILL" in ready.notes[0]


def test_one_that_ran_out_of_memory_is(start):
    start("draft-is-killed", extra_buffers=False, draft_path="draft.gguf").until(Ready)
    ready = start("fine", extra_buffers=False, draft_path="draft.gguf").until(Ready)[-1]
    assert ready.draft is not None
    assert ready.notes == ()


def test_extra_buffers_go_before_the_draft_model(start):
    ready = start("draft-needs-plain-buffers", draft_path="draft.gguf").until(Ready)[-1]
    assert ready.draft is not None
    assert not ready.cache.extra_buffers


def test_a_draft_model_that_dies_when_it_is_chosen(start):
    client = start("draft-dies", extra_buffers=False)
    client.until(Ready)
    client.engine.configure(replace(client.engine.config, draft_path="draft.gguf"))
    ready = client.until(Ready)[-1]
    assert ready.draft is None
    assert DRAFT in ready.notes[0]


@pytest.mark.parametrize("again", ["at once", "after none"])
def test_a_death_in_an_answer_costs_the_draft_model_until_it_is_chosen_again(start, again):
    client = start("die-drafting", extra_buffers=False, draft_path="draft.gguf")
    client.until(Ready)
    client.ask("a")
    events = client.until(Ready)
    assert finished(events)[0].reason == "died"
    assert DRAFT in events[-1].notes[0]
    client.ask("b")
    assert client.until(TurnFinished)[-1].reason == "stop"
    asked = client.engine.config
    client.engine.configure(replace(asked, threads=2))
    assert client.until(Ready)[-1].draft is None
    client.engine.configure(asked if again == "at once" else replace(asked, draft_path=None))
    client.until(Ready)
    client.engine.configure(asked)
    assert client.until(Ready)[-1].draft is not None


def test_what_is_chosen_while_a_dead_engine_is_buried_is_started(tmp_path):
    """Nobody hears that another model could not be loaded, which is not wanted any more."""
    events: queue.SimpleQueue = queue.SimpleQueue()
    first, other = EngineConfig(str(tmp_path / "first.gguf")), EngineConfig(str(tmp_path / "other.gguf"))

    def choose_another(event):
        events.put(event)
        if isinstance(event, EngineDied) and engine.config == first:
            engine.configure(other)

    program = (sys.executable, str(CHILD), "killed-in-load of first.gguf")
    engine = Engine(first, choose_another, tmp_path / "state", tmp_path / "engine.log", program)
    engine.start()
    try:
        died, ready = events.get(timeout=30), events.get(timeout=30)
        assert isinstance(died, EngineDied) and not died.restarting
        assert isinstance(ready, Ready) and ready.model.path == other.model_path
    finally:
        engine.close()


def test_refusal_is_final_and_named(start):
    assert start("refuse").until(LoadFailed)[-1].failure.message == "no"


def test_death_in_an_answer_pays_the_turn_once_and_starts_again(start):
    client = start("die-in-answer")
    client.until(Ready)
    client.ask("a")
    events = client.until(Ready)
    (turn,) = finished(events)
    assert (turn.turn, turn.reason) == ("a", "died")
    assert "SIGABRT" in turn.failure.message
    assert events.index(turn) > next(i for i, event in enumerate(events) if isinstance(event, EngineDied))


def test_queued_turns_are_paid_too(start):
    client = start("die-in-answer")
    client.until(Ready)
    for turn in "abc":
        client.ask(turn)
    assert sorted(event.turn for event in finished(client.until(Ready))) == ["a", "b", "c"]


def test_an_engine_that_keeps_dying_is_not_started_for_ever(start):
    client = start("die-in-answer")
    for turn in "abc":
        client.until(Ready)
        client.ask(turn)
    events = client.until(LoadFailed)
    assert len(finished(events)) == 1
    client.ask("d")
    assert client.until(TurnFinished)[-1].reason == "died"


def test_a_death_while_restoring_makes_the_next_turn_skip_the_store(start):
    client = start("die-in-restore")
    client.until(Ready)
    client.ask("a")
    client.until(Ready)
    client.ask("b")
    events = client.until(TurnFinished)
    assert events[-1].reason == "stop"
    assert next(event for event in events if isinstance(event, Restored)).cut == "no-kv"


def test_cancel_reaches_the_child(start):
    client = start("wait-for-cancel")
    client.until(Ready)
    client.ask("a")
    client.until(TextDelta)
    client.engine.cancel("a")
    assert client.until(TurnFinished)[-1].reason == "cancelled"


def test_a_death_while_measuring_is_not_tried_again(start):
    client = start("die-measuring")
    client.until(Ready)
    died, *_ = client.until(Ready)
    assert isinstance(died, EngineDied)
    assert died.restarting
    client.ask("a")
    assert client.until(TurnFinished)[-1].reason == "stop"
    client.engine.close()
    again = start("die-measuring")
    again.until(Ready)
    again.ask("a")
    assert [type(event) for event in again.until(TurnFinished)] == [Restored, TextDelta, TurnFinished]


def test_a_signal_without_a_name_ends_like_any_other(start):
    client = start("die-by-number")
    for _ in range(3):
        client.until(EngineDied)
    assert "signal 35" in client.until(LoadFailed)[-1].failure.message


def test_close_before_ready_leaves_no_process(start):
    client = start("fine")
    while client.engine.pid is None:
        time.sleep(0.01)
    pid = client.engine.pid
    client.engine.close()
    assert not Path(f"/proc/{pid}").exists()


def test_an_engine_that_loads_has_nothing_to_write_and_is_not_waited_for(start):
    client = start("deaf-in-load")
    while client.engine.pid is None:
        time.sleep(0.01)
    pid = client.engine.pid
    client.engine.close(patience=5.0)  # less than GOODBYE: one that had been ready would be left to itself
    assert not Path(f"/proc/{pid}").exists()


def test_with_little_patience_an_engine_is_left_to_end_by_itself(start):
    """The app does not wait for what is still written; who waits to the end kills what does not end."""
    client = start("deaf")
    client.until(Ready)
    pid = client.engine.pid
    client.engine.close(patience=0.01)
    assert Path(f"/proc/{pid}").exists()
    client.engine.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_turn_without_an_engine_is_still_finished(tmp_path):
    events: queue.SimpleQueue = queue.SimpleQueue()
    engine = Engine(EngineConfig("m"), events.put, tmp_path / "state", tmp_path / "engine.log")
    engine.submit(Generate("a", ()))
    assert events.get(timeout=60).reason == "died"
