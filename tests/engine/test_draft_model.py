"""A draft model beside the built-in one: what it drafts never changes what is said, and its KV comes and goes with the
chat. Q4_1 weights with a q8_0 cache: there the logits do not depend on the shape of a batch."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from altered import alter
from driver import Driver

from kvchat.backend.protocol import ConfigureFailed, Loading, Ready, TextDelta
from kvchat.backend.values import Sampling
from kvchat.kv.overview import chains

PROBE = Path(__file__).with_name("draft_probe.py")
RESTART = Path(__file__).with_name("draft_restart_probe.py")
LAYERS = 6
SAME = {"type_k": "q8_0", "type_v": "q8_0"}
MODEL = {"draft": "model", "sampling": Sampling(temperature=0, max_tokens=16)}
PLAIN = MODEL | {"draft": "off"}
BYTES = 2 * 3 * 64 // 32 * 34  # of a token in a layer: K and V of three heads of 64, in blocks of q8_0
QUESTIONS = ("Name three colours.", "Count to ten.")
LONG = " ".join(f"Item {i} is a thing of its own." for i in range(16))  # about 150 tokens of SmolLM2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def small(smollm2, folder):
    """The built-in model's first layers, which are soon computed: what is drafted for."""
    return alter(smollm2, folder / "small.gguf", layers=LAYERS)


@pytest.fixture(scope="module")
def poor(smollm2, folder):
    """Fewer of them: a draft model."""
    return alter(smollm2, folder / "poor.gguf", layers=2)


@pytest.fixture(scope="module")
def wrong(smollm2, folder):
    """As certain as the model, and always wrong."""
    return alter(smollm2, folder / "wrong.gguf", layers=LAYERS, wrong=True)


@pytest.fixture(scope="module")
def short(smollm2, folder):
    """The model itself, trained for 100 tokens by its own account."""
    return alter(smollm2, folder / "short.gguf", layers=LAYERS, context=100)


@pytest.fixture
def start(tmp_path: Path, small: Path) -> Iterator[Callable[..., Driver]]:
    """Starts engines on the small model that share one home; they are closed at the end."""
    drivers: list[Driver] = []

    def start(**config: object) -> Driver:
        drivers.append(Driver.start(tmp_path, small, **SAME | config))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


def probe(script: Path, *arguments: object):
    """What it prints; it fails with a reason."""
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def draft_chains(folder: Path):
    return [chain for chain in chains(folder / "kv") if chain.draft]


def again_without(chat: Driver) -> tuple[int, ...]:
    """The last answer once more, without drafts."""
    chat.messages.pop()
    return chat.ask(None, **PLAIN).ids


def wait_until_saved(folder: Path, tokens: int) -> None:
    """The draft model reads and saves while nobody asks; the test's own time limit ends this."""
    while sum(chain.tokens for chain in draft_chains(folder)) < tokens:
        time.sleep(0.05)


# ------------------------------------------------------------------ what it says


@pytest.fixture(scope="module")
def plain(small, tmp_path_factory):
    """The answers to QUESTIONS without drafts."""
    chat = Driver.start(tmp_path_factory.mktemp("plain"), small, **SAME)
    chat.ready()
    answers = [chat.ask(question, **PLAIN).ids for question in QUESTIONS]
    chat.engine.close()
    return answers


# A draft model, and which part of its drafts stands: at least, at most.
@pytest.mark.parametrize(("draft", "least", "most"), [("small", 0.9, 1), ("poor", 0, 1), ("wrong", 0, 0)])
def test_the_answer_is_that_of_the_model_alone(start, request, plain, draft, least, most):
    path = request.getfixturevalue(draft)
    chat = start(draft_path=str(path))
    ready = chat.engine.ready
    assert ready.draft.path == str(path)
    assert ready.draft.cache_bytes == 1024 * BYTES * (2 if draft == "poor" else LAYERS)
    proposed = accepted = 0
    for question, ids in zip(QUESTIONS, plain, strict=True):
        answer = chat.ask(question, **MODEL)
        assert answer.ids == ids
        assert answer.usage.draft_kind == "model"
        proposed += answer.usage.draft_proposed
        accepted += answer.usage.draft_accepted
    assert proposed > 0
    assert least <= accepted / proposed <= most


# Long enough for drafts of all lengths; the second one quotes. Checking costs nothing here, so that all is drafted.
@pytest.mark.parametrize("mode", ["ngram", "model", "auto"])
def test_longer_answers_are_those_of_the_model_alone(start, poor, mode):
    chat = start(draft_path=str(poor), draft_costs=(1.0,) * 16)
    proposed = accepted = 0
    for question in (*QUESTIONS, f"{LONG}\nRepeat this."):
        answers = []
        for draft in ("off", mode):
            chat.messages.clear()
            answers.append(chat.ask(question, draft=draft, sampling=Sampling(temperature=0, max_tokens=40)))
        plain, drafted = answers
        assert drafted.ids == plain.ids
        proposed += drafted.usage.draft_proposed
        accepted += drafted.usage.draft_accepted
    assert 0 < accepted < proposed


def test_beyond_what_it_was_trained_for_nothing_is_drafted(start, short):
    chat = start(draft_path=str(short))
    assert chat.engine.ready.draft.cache_bytes == 256 * BYTES * LAYERS  # llama.cpp has no smaller one
    assert chat.ask("Name three colours.", **MODEL).usage.draft_proposed > 0
    answer = chat.ask(LONG, **MODEL)
    assert answer.usage.prompt_tokens > 100
    assert answer.usage.draft_proposed == 0
    assert answer.ids == again_without(chat)


def test_a_cancel_while_it_reads_the_past(start, poor):
    """Forced, it reads between the tokens of the answer."""
    chat = start(draft_path=str(poor))

    def cancel(event):
        if isinstance(event, TextDelta):
            chat.engine.cancel("t1")

    answer = chat.ask(LONG, meanwhile=cancel, **MODEL | {"sampling": Sampling(temperature=0)})
    assert answer.finished.reason == "cancelled"
    again = chat.ask("Name three colours.", **MODEL)
    assert again.ids == again_without(chat)


def test_questions_that_come_while_it_reads_between_turns(start, poor):
    chat = start(draft_path=str(poor))
    chat.ask(LONG, **MODEL | {"sampling": Sampling(temperature=0, max_tokens=1)})
    for question in QUESTIONS:
        answer = chat.ask(question, **MODEL)
    assert answer.ids == again_without(chat)


# ------------------------------------------------------------------ what is kept


def test_its_kv_is_saved_with_the_chat_and_marked_as_its_own(start, poor, tmp_path):
    chat = start(draft_path=str(poor))
    answer = chat.ask(LONG, **MODEL)
    wait_until_saved(tmp_path, answer.usage.cells)
    (chain,) = draft_chains(tmp_path)
    assert chain.model == "poor"
    assert chain.tokens == answer.usage.cells + 1  # with the last one of the answer, which the model did not compute
    assert {other.model for other in chains(tmp_path / "kv")} == {"poor", chat.engine.ready.model.name}


def test_nothing_of_a_turn_without_kv_is_kept(start, poor, tmp_path):
    chat = start(draft_path=str(poor))
    chat.ask(LONG, keep_kv=False, **MODEL)
    chat.engine.close()
    assert chains(tmp_path / "kv") == []


def test_after_a_restart_it_reads_only_what_is_new(small, poor, tmp_path):
    first, again = probe(RESTART, small, poor, tmp_path)
    assert first["held"] == 0
    assert again["held"] == first["read"] == first["new"] + first["said"]
    assert again["read"] == again["new"] + again["said"]


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "lfm2"])
def test_every_kind_of_memory_follows_the_chat(tmp_path, kind):
    """Random turns, interruptions and restarts: see the probe."""
    model = tiny.build(kind, tmp_path, weights="f32")
    counts = probe(PROBE, tmp_path / "kv", "1", model)[kind]
    assert counts["drafts"] > 20
    assert counts["reopened"] == 3
    assert counts["restored"] > 0


# ------------------------------------------------------------------ choosing one


def test_one_of_another_vocabulary_is_left_out_and_named(start, tmp_path):
    chat = start(draft_path=str(tiny.build("llama", tmp_path)))
    ready = chat.engine.ready
    assert ready.draft is None
    assert ready.notes[0].startswith("draft model llama: ")
    assert "it has 512 tokens, not 49,152" in ready.notes[0]
    answer = chat.ask("Name three colours.", **MODEL)
    assert (answer.finished.reason, answer.usage.draft_kind) == ("length", "off")


@pytest.mark.parametrize("bad", ["no file", "another vocabulary"])
def test_one_that_cannot_be_had_is_refused_and_the_one_before_stays(start, poor, tmp_path, bad):
    chat = start(draft_path=str(poor))
    first = chat.ask("Name three colours.", **MODEL)
    before = chat.engine.config
    path = tmp_path / "gone.gguf" if bad == "no file" else tiny.build("llama", tmp_path)
    chat.engine.configure(replace(before, draft_path=str(path)))
    events = [event for event in chat.until(Ready) if not isinstance(event, Loading)]
    assert isinstance(events[0], ConfigureFailed)
    assert events[0].failure.message.startswith(f"draft model {path.stem}: ")
    assert events[-1].draft.path == str(poor)
    assert chat.engine.config == before
    second = chat.ask("And three animals.", **MODEL)
    assert second.usage.resident == first.usage.cells
    assert second.usage.draft_proposed > 0


def test_another_one_leaves_the_chat_where_it_is(start, poor, wrong):
    chat = start()
    cells = chat.ask("Name three colours.", **MODEL).usage.cells
    pid = chat.engine.pid
    for path in (str(poor), str(wrong), None):
        chat.engine.configure(replace(chat.engine.config, draft_path=path))
        ready = chat.ready()
        assert (ready.draft.path if ready.draft else None) == path
        answer = chat.ask("And three animals.", **MODEL)
        assert answer.usage.resident == cells
        assert (answer.usage.draft_kind == "model") == (path is not None)
        cells = answer.usage.cells
    assert chat.engine.pid == pid


def test_it_comes_along_to_another_cache_type(start, poor):
    chat = start(draft_path=str(poor), type_k="f16", type_v="f16")
    chat.ask("Name three colours.", **MODEL)
    chat.engine.configure(replace(chat.engine.config, **SAME))
    ready = chat.ready()
    assert ready.draft.cache_bytes == 1024 * BYTES * 2
    assert chat.ask("And three animals.", **MODEL).usage.draft_proposed > 0
