"""Whole benchmarks of a tiny model in a real engine process: what must be so whatever the speed is."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path

import pytest
import tiny

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig
from kvchat.bench import rig as rigs
from kvchat.bench.memory import read_log, resident_bytes
from kvchat.bench.report import Part, Report, Stat
from kvchat.bench.rig import Rig, Stopped
from kvchat.bench.run import Run
from kvchat.bench.wanted import Wanted
from kvchat.kv.ledger import CacheConfig, ledger
from kvchat.kv.needs import subject_at

CONTEXT = 1024


class Inbox(queue.SimpleQueue[Event]):
    """Events of an engine. `stop_after`: so many of them, then somebody interrupts."""

    stop_after: int | None = None

    def post(self, event: Event) -> None:
        self.put(event)

    def take(self, seconds: float) -> Event | None:
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 0:
                raise Stopped
        try:
            return self.get(timeout=seconds)
        except queue.Empty:
            return None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build("llama", tmp_path_factory.mktemp("bench"), weights="q4_1")


@pytest.fixture
def rig(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(rigs, "TUNING", 0.0)  # no test waits for the engine to measure itself
    config = EngineConfig(
        str(model),
        context=CONTEXT,
        threads=1,
        extra_buffers=False,
        kv_folder=str(tmp_path / "kv"),
        flash_attention="on",
    )
    return Rig(config, tmp_path, Inbox(), Engine)


def measured(rig: Rig, *parts: str, **wanted: object) -> Report:
    said: list[tuple[str, int, int, str]] = []
    run = Run(rig, Wanted(parts, quick=True, rounds=1, **wanted), {})  # type: ignore[arg-type]
    run.go(lambda *told: said.append(told))
    assert run.failure is None, run.failure
    assert all(0 <= done <= total for _, done, total, _ in said)
    report = run.report()
    assert report is not None and not report.interrupted
    return report


def value(part: Part, key: str) -> list[float]:
    return [found.median if isinstance(found := row[key], Stat) else found for row in part.rows]  # type: ignore[misc]


def test_speed_and_memory(rig: Rig, model: Path) -> None:
    """A row for each type, thread count and depth, of the depth itself; the memory is the ledger's to the byte."""
    pairs = (("f16", "f16"), ("q8_0", "q8_0"))
    report = measured(rig, "memory", "speed", pairs=pairs, threads=(1,), depths=(0, 512))
    memory, speed = report.parts
    assert [(row["cache"], row["depth"]) for row in speed.rows] == [
        ("f16", 0),
        ("f16", 512),
        ("q8_0", 0),
        ("q8_0", 512),
    ]
    assert all(each > 0 for key in ("prefill", "decode") for each in value(speed, key))
    assert speed.notes == ()
    geometry = subject_at(model).geometry
    for row in memory.rows:
        kind = row["cache"]
        allocated = ledger(geometry, CacheConfig(CONTEXT, kind, kind, True, 5)).kv_bytes
        assert row["ledger"] == allocated
        assert row["reported"] == pytest.approx(allocated, abs=6000)  # llama.cpp tells hundredths of MiB
        assert row["anonymous"] > allocated
    assert value(memory, "context") == [CONTEXT, CONTEXT]


def test_what_lies_at_a_depth_is_found_there(rig: Rig) -> None:
    """Behind 512 tokens 200 are computed, with other cache types too: these come transcoded."""
    deep = tuple(i % 199 + 50 for i in range(512))
    rig.start()
    try:
        rig.read(deep, 1)
        for first, kind in ((60, "f16"), (70, "q8_0")):
            rig.configure(replace(rig.config, type_k=kind, type_v=kind))
            rig.forget()
            usage = rig.read(range(first, first + 200), 4, past=deep).usage
            assert (usage.reused, usage.computed) == (512, 200)
    finally:
        rig.close()


def test_restore_and_resume(rig: Rig) -> None:
    report = measured(rig, "restore", "resume", pairs=(("f16", "f16"),))
    restore, resume = report.parts
    (row,) = restore.rows
    assert row["tokens"] % 128 == 0
    assert (
        row["bytes"] > row["tokens"] * 2 * 2 * 2 * 64 * 2
    )  # 2 layers, K and V, 2 heads of 64 f16 values, and a header
    assert all(value(restore, key)[0] > 0 for key in ("compute", "save", "restore", "save_bytes", "restore_bytes"))
    ways = {way: [row for row in resume.rows if row["way"] == way] for way in ("from disk", "in memory", "no cache")}
    assert [len(rows) for rows in ways.values()] == [5, 5, 5]
    for way, rows in ways.items():
        lengths = [row["prompt"] for row in rows]
        assert lengths == sorted(set(lengths))
        new = [row["computed"] for row in rows]
        # with its past a turn computes what is new, else all of it
        assert new == lengths if way == "no cache" else max(new[1:]) <= lengths[0] + 1
        assert rows[-1]["sum"] == pytest.approx(sum(value(replace(resume, rows=tuple(rows)), "first")))
    (last,) = [row for row in resume.rows if row["way"] == "new process"]
    assert last["computed"] <= ways["from disk"][0]["prompt"] + 1
    said, started = resume.notes
    assert f"{ways['from disk'][-1]['sum']:.2f} s from disk" in said
    assert "new process was ready" in started


def test_drafts(rig: Rig) -> None:
    (drafts,) = measured(rig, "drafts").parts
    assert [row["task"] for row in drafts.rows]
    for row in drafts.rows:
        assert row["accepted"] is None or 0 <= row["accepted"] <= 1
    assert any("could not be measured" in note for note in drafts.notes)


def test_fidelity(rig: Rig) -> None:
    """Beside f16 computed once more, which shows the noise, there is a row for each other type."""
    (part,) = measured(rig, "fidelity", pairs=(("f16", "f16"), ("q8_0", "q8_0"))).parts
    told = {row["cache"]: row for row in part.rows}
    assert {"f16, token by token", "q8_0"} <= set(told)
    assert all(row["depth"] == 256 for row in part.rows)
    assert 0 <= told["q8_0"]["kl"] <= told["q8_0"]["kl_99"]
    assert 0.5 < told["q8_0"]["agreement"] <= 1


def test_what_is_there_when_somebody_interrupts(rig: Rig) -> None:
    inbox = rig._events
    run = Run(rig, Wanted(("memory", "speed"), pairs=(("f16", "f16"),), rounds=2, depths=(0,)), {})

    def tell(part: str, done: int, _total: int, _what: str) -> None:
        if part == "speed" and done == 1:
            inbox.stop_after = 0  # type: ignore[attr-defined]

    run.go(tell)
    report = run.report()
    assert run.interrupted and report is not None and report.interrupted
    assert [part.name for part in report.parts] == ["memory", "speed"]
    assert report.parts[1].rows[0]["decode"].count == 1
    assert rig.pid is None


def test_types_that_a_model_cannot_have_are_left_out(rig: Rig, tmp_path: Path) -> None:
    """Heads of 48 elements have no whole blocks of 32."""
    odd = tiny.build("llama", tmp_path, head_size=48, name="odd")
    rig.config = replace(rig.config, model_path=str(odd))
    report = measured(rig, "speed", "restore", "memory", pairs=(("f16", "f16"), ("q8_0", "q8_0")), depths=(0,))
    for part in report.parts:
        assert [row["cache"] for row in part.rows] == ["f16"]
        assert any(note.startswith("q8_0: ") for note in part.notes)


def test_a_model_that_is_none(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    rig.config = replace(rig.config, model_path=str(tmp_path / "broken.gguf"))
    run = Run(rig, Wanted(), {})
    run.go(lambda *told: None)
    assert run.failure is not None and run.report() is None


# ------------------------------------------------------------------ what llama.cpp and the system say

LOG = """llama_context: constructing llama_context
llama_kv_cache:        CPU KV buffer size =   999.00 MiB
sched_reserve:        CPU compute buffer size =    99.00 MiB
llama_context: constructing llama_context
llama_context:        CPU  output buffer size =     0.94 MiB
llama_kv_cache:        CPU KV buffer size =    10.00 MiB
llama_kv_cache:        CPU KV buffer size =     2.50 MiB
llama_memory_recurrent:        CPU RS buffer size =     0.50 MiB
sched_reserve:        CPU compute buffer size =     4.00 MiB
~llama_context:        CPU compute buffer size is   4.0000 MiB, matches expectation of   4.0000 MiB
"""


def test_the_log_tells_of_the_last_context(tmp_path: Path) -> None:
    """Caches of full layers, window layers and states are added up."""
    file = tmp_path / "engine.log"
    file.write_text(LOG)
    assert read_log(file, 0) == (13 << 20, 4 << 20)
    assert read_log(file, len(LOG)) == (None, None)
    assert read_log(tmp_path / "none", 0) == (None, None)


def test_a_process_that_is_gone_has_no_memory() -> None:
    assert resident_bytes(None) == (None, None)
