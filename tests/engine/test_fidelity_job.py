"""The fidelity lab in a real engine, on tiny models of every kind of memory."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from driver import Driver

from kvchat.backend.fidelity import Measure, Measured, Measuring
from kvchat.engine.fidelity import SPAN, chunks
from kvchat.engine.lanes import Chunk, lab_batch

TEXT = "A cell remembers what it was given, and it is asked for it again and again. " * 12
PAIRS = (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0"))


@pytest.fixture
def engine_on(home: Path, tmp_path: Path) -> Iterator:
    """Starts an engine on a tiny model."""
    drivers: list[Driver] = []

    def start(kind: str, **overrides: object) -> Driver:
        drivers.append(Driver.start(home, tiny.build(kind, tmp_path, **overrides), context=512))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


def measure(driver: Driver, text: str = TEXT, depths=(64, 160), pairs=PAIRS, transcode: bool = True) -> Measured:
    driver.engine.measure(Measure("m", (), text, depths, pairs, transcode))
    return driver.until(Measured)[-1]


def rows(report):
    return {(row.way, row.type_k, row.type_v): row for row in report.rows}


# ------------------------------------------------------------------ batches


@pytest.mark.parametrize("depths", [(32,), (64, 100), (256, 1024, 4096), (33, 34, 1000)])
@pytest.mark.parametrize("batch", [16, 256])
def test_batches_are_the_text_in_order_and_have_the_spans_for_edges(depths, batch):
    found = chunks(depths, batch)
    assert [chunk.start for chunk in found] == [0, *(chunk.end for chunk in found[:-1])]
    assert found[-1].end == depths[-1]
    assert all(0 < chunk.end - chunk.start <= batch for chunk in found)
    counted = {at for chunk in found if chunk.counts for at in range(chunk.start, chunk.end)}
    wanted = {at for depth in depths for at in range(depth - min(SPAN, depth // 2), depth)}
    assert counted == wanted
    assert {chunk.start for chunk in found if chunk.begins} == {depth - min(SPAN, depth // 2) for depth in depths}


def test_a_batch_has_logits_of_64_mib_at_most():
    assert lab_batch(49_152, 256) == 256  # 48 MiB
    assert lab_batch(262_144, 256) == 64
    assert lab_batch(512, 100) == 64
    assert lab_batch(10**7, 256) == 16
    assert Chunk(0, 1).counts is False


# ------------------------------------------------------------------ what is found


@pytest.mark.parametrize("kind", ["llama", "gemma3", "deepseek2", "jamba", "qwen3vl", "qwen35"])
def test_every_kind_of_memory(engine_on, kind):
    """All that the model can have is measured, natively and converted; f16 itself only as noise. The less bits, the
    farther away."""
    report = measure(engine_on(kind)).report
    assert report is not None and report.tokens == 160
    found = rows(report)
    mla = kind == "deepseek2"
    pairs = [pair for pair in PAIRS[1:] if not (mla and pair[0] != pair[1])]
    assert {key for key in found if key[0] == "native"} == {("native", *pair) for pair in pairs}
    assert {key for key in found if key[0] == "transcoded"} == {("transcoded", *pair) for pair in pairs}
    assert bool(report.refused) == mla
    for row in report.rows:
        assert [at.depth for at in row.depths] == [64, 160]
        assert [at.positions for at in row.depths] == [32, 80]
        assert all(0 <= at.kl <= at.kl_99 + 1e-12 or at.kl <= 1e-9 for at in row.depths)
        assert all(0 <= at.agreement <= 1 for at in row.depths)
        assert len({at.reference_perplexity for other in report.rows for at in other.depths if at.depth == 64}) == 1
    for way, depth in itertools.product(("native", "transcoded"), (0, 1)):
        assert found[way, "q8_0", "q8_0"].depths[depth].kl < found[way, "q4_0", "q4_0"].depths[depth].kl
    assert len(found["native", "q8_0", "q8_0"].curve) == 3  # 160 positions in stretches of 64


def test_the_perplexity_is_that_of_llama_cpp_token_by_token(engine_on, tmp_path):
    """Of weights and rows in f32 there is no noise to speak of: so one decode per token, in a process of its own, has
    the same likelihoods."""
    model = tiny.build("llama", tmp_path, weights="f32", name="exact")
    driver = engine_on("llama", weights="f32", name="exact")
    report = measure(driver, pairs=(("q8_0", "q8_0"),)).report
    code = f"""
import json, sys
from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.context import Context
from kvchat.engine.divergence import log_softmax
from kvchat.engine.model import Model
llama.start(lambda text, error: None)
config = EngineConfig({str(model)!r}, 512, threads=1, extra_buffers=False)
model = Model(config, lambda fraction: True)
context = Context(model, config, lambda: False)
ids = model.tokenize({TEXT!r}, special=False)
nll = []
for position in range(160):
    context.decode(ids[position : position + 1], position, output=1)
    nll.append(-float(log_softmax(context.logits())[ids[position + 1]]))
print(json.dumps(nll))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    nll = json.loads(done.stdout)
    for at in rows(report)["native", "q8_0", "q8_0"].depths:
        wanted = math.exp(sum(nll[at.depth - at.positions : at.depth]) / at.positions)
        assert at.reference_perplexity == pytest.approx(wanted, rel=2e-3)
    noise = rows(report)["batch", "f16", "f16"].depths
    assert all(at.kl < 1e-4 for at in noise)


def test_a_type_that_the_heads_do_not_allow_is_refused_in_words(engine_on):
    """Heads of 80 are no whole blocks of 32."""
    report = measure(engine_on("llama80")).report
    assert not [row for row in report.rows if row.way == "native"]
    assert len(report.refused) == 2 and all("80" in said for said in report.refused)


def test_a_text_that_ends_before_the_depths(engine_on):
    report = measure(engine_on("llama"), text=TEXT[:400], depths=(64, 1024)).report
    assert [at.depth for at in report.rows[0].depths] == [64, report.tokens]
    assert 64 < report.tokens < 400
    assert not math.isnan(report.rows[0].depths[-1].perplexity)  # though no token follows the last one


def test_the_tokens_of_a_chat(engine_on):
    driver = engine_on("llama")
    ids = tuple(range(10, 110))
    driver.engine.measure(Measure("m", ids, "", (50,), (("q8_0", "q8_0"),)))
    report = driver.until(Measured)[-1].report
    assert report.tokens == 50
    assert {row.way for row in report.rows} == {"batch", "flash", "native"}


@pytest.mark.parametrize(
    ("kind", "ids", "text", "said"),
    [
        ("llama", (), "Too short.", "are needed"),
        ("llama", (1, 2, 100_000), "", "another vocabulary"),
        ("mamba", (), TEXT, "no keys and values"),
    ],
)
def test_what_cannot_be_measured(engine_on, kind, ids, text, said):
    driver = engine_on(kind)
    driver.engine.measure(Measure("m", ids, text, (64,), PAIRS))
    ended = driver.until(Measured)[-1]
    assert ended.report is None and ended.failure is not None and said in ended.failure.message
    assert driver.ask("Still there?").ids


# ------------------------------------------------------------------ beside a chat


def test_a_turn_goes_first_and_finds_its_cells_as_they_were(engine_on):
    """A measurement is going on; the chat is answered, reuses all of its past, and the measurement comes to its end."""
    driver = engine_on("llama")
    first = driver.ask("Hello there.", draft="off")
    driver.engine.measure(Measure("m", (), TEXT * 2, (400,), PAIRS, True))
    driver.until(Measuring)
    second = driver.ask("And then?", draft="off")
    assert second.usage.resident == first.usage.cells
    assert driver.until(Measured)[-1].report is not None
    third = driver.ask("And then?", draft="off")
    assert third.usage.resident == second.usage.cells
    alone = engine_on("llama")
    for text in ("Hello there.", "And then?", "And then?"):
        answer = alone.ask(text, draft="off", keep_kv=False)
    assert third.ids == answer.ids


@pytest.mark.parametrize("kind", ["llama", "jamba"])
def test_it_can_be_stopped(engine_on, kind):
    driver = engine_on(kind)
    driver.engine.measure(Measure("m", (), TEXT * 20, (4000,), PAIRS, True))
    driver.until(Measuring)
    driver.engine.cancel("m")
    ended = driver.until(Measured)[-1]
    assert (ended.report, ended.failure) == (None, None)
    assert driver.ask("Still there?").ids


def test_another_one_takes_its_place(engine_on):
    driver = engine_on("llama")
    driver.engine.measure(Measure("a", (), TEXT * 20, (4000,), PAIRS))
    driver.engine.measure(Measure("b", (), TEXT, (64,), PAIRS))
    assert [driver.until(Measured)[-1].turn for _ in range(2)] == ["a", "b"]


def test_a_dead_engine_owes_its_end(engine_on):
    driver = engine_on("llama")
    driver.engine.measure(Measure("m", (), TEXT * 20, (4000,), PAIRS))
    driver.until(Measuring)
    driver.engine._child.process.kill()
    ended = driver.until(Measured)[-1]
    assert ended.report is None and "SIGKILL" in ended.failure.message
