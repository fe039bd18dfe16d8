"""The fidelity lab: what other cache types do to the model's next-token distribution on one text, against f16.

All ways to have the cache are computed side by side, chunk by chunk and with the same batches, each in a lane of its
own, so that the logits of one chunk are all that is ever kept. Where memory is short there are several passes, each
with the reference. Owns the course of a measurement; must not touch the chat's cells, and steps aside at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kvchat.backend.fidelity import DepthFidelity, FidelityReport, FidelityRow, Measure, Measured, Measuring, Pair
from kvchat.backend.values import EngineConfig
from kvchat.engine.divergence import Differences, differences, joined
from kvchat.engine.lanes import Chunk, Lane, Plan, lab_batch, lane_bytes
from kvchat.engine.llama import has_gpu
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_namespace
from kvchat.engine.transcoding import transcoded
from kvchat.errors import KvchatError
from kvchat.formats.gguf import model_name
from kvchat.kv.fit import chunk as engine_chunk
from kvchat.kv.fit import uses_flash
from kvchat.kv.transcode import Form, form_of
from kvchat.machine import free_memory, physical_cores

SPAN = 256  # positions before a depth over which fidelity is told, at most half of them
STRETCH = 64  # positions of one point of a curve
FEWEST = 32  # tokens of a text that can be measured
COMPARED = 64  # positions that are compared at a time: whoever wants the engine does not wait for longer
WHOLE = 32  # tokens of a batch that cannot be broken off
_ROOM = 0.75  # of the free memory that a pass may take

Progress = Measuring | Measured | None


class FidelityJob:
    """A measurement under way. Every `advance` computes a little of it; its end is a Measured."""

    def __init__(self, command: Measure, model: Model, config: EngineConfig, interrupt: Callable[[], bool]) -> None:
        """`config`: that of the chat's context, for threads and GPU layers. KvchatError when there is nothing to
        measure."""
        self.turn = command.turn
        self._model = model
        self._config = config
        self._threads = config.threads or max(1, physical_cores() - 1)
        self._on_gpu = has_gpu() and model.gpu_layers != 0
        self._interrupt = interrupt
        self._ids = _ids(command, model)
        self._depths = _depths(command.depths, len(self._ids))
        # With a recurrent state a decode is not interrupted, so it must be short.
        largest = WHOLE if model.geometry.state_bytes else engine_chunk(model.native.parameters, self._on_gpu)
        self._batch = lab_batch(model.native.vocab_size, largest)
        self._plans, self._refused = self._choose(command.pairs, transcode=command.transcode)
        self._lanes: list[Lane] = []
        self._done = 0
        self._steps = self._run()

    def advance(self) -> Progress:
        """One step, None when it was broken off or there is nothing new to tell. Raises KvchatError."""
        return next(self._steps)

    def close(self) -> None:
        """Free all contexts, at the end or before it."""
        for lane in self._lanes:
            lane.close()
        self._lanes = []

    # ---------------------------------------------------------------- what is measured

    def _choose(self, pairs: Sequence[Pair], *, transcode: bool) -> tuple[list[Plan], list[str]]:
        geometry = self._model.geometry
        if not geometry.cache:
            raise KvchatError(
                "this model has no keys and values, so it has no cache types to compare",
                "choose a model with attention",
            )
        plans, refused = [], []
        reference = self._plan(("f16", "f16"))
        plans.append(Plan("batch", "f16", "f16", reference.flash))
        if geometry.refusal("f16", "f16", "on") is None and uses_flash(geometry, "f16", "on", self._on_gpu):
            plans.append(Plan("flash", "f16", "f16", not reference.flash))
        for pair in dict.fromkeys(pairs):
            refusal = geometry.refusal(*pair, "auto")
            if refusal is not None:
                refused.append(refusal.message)
            elif pair != ("f16", "f16"):
                plans.append(self._plan(pair))
        if transcode:
            plans += [Plan("transcoded", p.type_k, p.type_v, p.flash) for p in plans if p.way == "native"]
        return plans, refused

    def _plan(self, pair: Pair) -> Plan:
        return Plan("native", *pair, uses_flash(self._model.geometry, pair[1], "auto", self._on_gpu))

    def _passes(self) -> list[list[Plan]]:
        """The plans, as many at once as there is memory for. KvchatError when there is none for one."""
        cells, model = self._depths[-1], self._model
        free = None if self._on_gpu else free_memory()
        reference = lane_bytes(model, self._plan(("f16", "f16")), cells, self._batch)
        room = float("inf") if free is None else free * _ROOM
        passes: list[list[Plan]] = []
        left = 0.0
        for plan in self._plans:
            size = lane_bytes(model, plan, cells, self._batch)
            if size + reference > room:
                raise KvchatError(
                    f"measuring {cells} tokens needs {(size + reference) / 2**20:,.0f} MiB, of which "
                    f"{room / 2**20:,.0f} MiB are free",
                    "measure at a smaller depth",
                )
            if not passes or size > left:
                passes.append([])
                left = room - reference
            passes[-1].append(plan)
            left -= size
        return passes

    # ---------------------------------------------------------------- the course of it

    def _run(self) -> Iterator[Progress]:
        began = time.monotonic()
        passes = self._passes()
        total = sum(self._cost(plans) for plans in passes)
        rows: list[FidelityRow] = []
        for plans in passes:
            found: list[dict[Chunk, Differences]] = [{} for _ in plans]
            for plan in (self._plan(("f16", "f16")), *plans):
                self._lanes.append(self._lane(plan))  # those that are there are freed when the next one cannot be
            for chunk in chunks(self._depths, self._batch):
                for _ in self._compare(chunk, found):
                    yield Measuring(self.turn, min(self._done, total), total)
            rows += [self._row(plan, each) for plan, each in zip(plans, found, strict=True)]
            self.close()
        report = FidelityReport(
            model=model_name(self._model.path),
            tokens=self._depths[-1],
            batch=self._batch,
            reference_flash=self._plan(("f16", "f16")).flash,
            stretch=STRETCH,
            rows=tuple(rows),
            refused=tuple(dict.fromkeys(self._refused)),
            seconds=time.monotonic() - began,
        )
        yield Measured(self.turn, report, None)

    def _cost(self, plans: Sequence[Plan]) -> int:
        """Tokens that a pass computes."""
        spans = sum(chunk.end - chunk.start for chunk in chunks(self._depths, self._batch) if chunk.counts)
        return sum(spans if plan.way == "transcoded" else self._depths[-1] for plan in plans) + self._depths[-1]

    def _lane(self, plan: Plan) -> Lane:
        return Lane(self._model, plan, self._depths[-1], self._batch, self._threads, self._interrupt)

    def _compare(self, chunk: Chunk, found: Sequence[dict[Chunk, Differences]]) -> Iterator[None]:
        """Compute a chunk in all lanes, and compare each with the first one, the reference."""
        tokens, following = self._ids[chunk.start : chunk.end], self._ids[chunk.start + 1 : chunk.end + 1]
        reference, *lanes = self._lanes
        if chunk.begins and chunk.start:
            for lane in lanes:
                if lane.plan.way == "transcoded":
                    lane.put(self._transcoded(lane, chunk.start), chunk.start)
                    yield
        yield from self._read(reference, chunk, tokens)
        for lane, differing in zip(lanes, found, strict=True):
            if lane.plan.way == "transcoded" and not chunk.counts:
                continue
            yield from self._read(lane, chunk, tokens)
            if lane.logits is not None and reference.logits is not None:
                parts = []
                for start in range(0, len(tokens), COMPARED):
                    rows = slice(start, start + COMPARED)
                    parts.append(differences(reference.logits[rows], lane.logits[rows], following[rows]))
                    yield
                differing[chunk] = joined(parts)

    def _transcoded(self, lane: Lane, length: int) -> memoryview:
        source, target = (self._form(each.plan) for each in (self._lanes[0], lane))
        rows = self._lanes[0].rows()
        return transcoded(rows, self._model.geometry, source, target, lane.memory, self._ids[:length])

    def _form(self, plan: Plan) -> Form:
        types = replace(self._config, type_k=plan.type_k, type_v=plan.type_v)
        return form_of(page_namespace(self._model, self._depths[-1], types))

    def _read(self, lane: Lane, chunk: Chunk, tokens: Sequence[int]) -> Iterator[None]:
        before = self._done
        for number, pause in enumerate(lane.read(chunk, tokens), 1):
            self._done = before + min(number, len(tokens)) if lane.plan.way == "batch" else before
            yield pause
        self._done = before + len(tokens)

    def _row(self, plan: Plan, found: dict[Chunk, Differences]) -> FidelityRow:
        depths = []
        for depth in self._depths:
            first = depth - _span(depth)
            depths.append(_at(depth, joined([each for chunk, each in found.items() if first <= chunk.start < depth])))
        curve: tuple[float, ...] = ()
        if plan.way in ("native", "flash"):
            kl = joined(list(found.values())).kl
            curve = tuple(float(np.mean(kl[at : at + STRETCH])) for at in range(0, len(kl), STRETCH))
        return FidelityRow(plan.way, plan.type_k, plan.type_v, plan.flash, tuple(depths), curve)


def chunks(depths: Sequence[int], batch: int) -> list[Chunk]:
    """The batches of a text that is computed up to the last depth: none of them lies across the beginning or the end of
    the positions that count."""
    total = depths[-1]
    spans = [(depth - _span(depth), depth) for depth in depths]
    edges = sorted({*range(0, total, batch), total, *(edge for span in spans for edge in span)})
    starts = {first for first, _ in spans}
    found = []
    for start, end in pairwise(edges):
        counts = any(first <= start < depth for first, depth in spans)
        found.append(Chunk(start, end, counts, counts and start in starts))
    return found


def _span(depth: int) -> int:
    return min(SPAN, depth // 2)


def _ids(command: Measure, model: Model) -> Sequence[int]:
    """Tokens of the chat, or of the text with its beginning of sequence. KvchatError when there are too few."""
    ids: Sequence[int] = command.ids
    if not ids:
        begin = [model.bos] if model.add_bos and model.bos is not None else []
        ids = [*begin, *model.tokenize(command.text, special=False)]
    if any(not 0 <= token < model.native.vocab_size for token in ids):
        raise KvchatError("these tokens are of another vocabulary", "measure on a text")
    if len(ids) < FEWEST:
        raise KvchatError(f"the text has {len(ids)} tokens, and {FEWEST} are needed", "measure on a longer text")
    return ids


def _depths(wanted: Sequence[int], tokens: int) -> list[int]:
    """Those that the text reaches; where it ends before the deepest, its own length."""
    depths = {depth for depth in wanted if FEWEST <= depth <= tokens}
    if not depths or max(wanted) > tokens:
        depths.add(tokens)
    return sorted(depths)


def _at(depth: int, found: Differences) -> DepthFidelity:
    return DepthFidelity(
        depth=depth,
        positions=len(found),
        kl=float(np.mean(found.kl)),
        kl_99=float(np.percentile(found.kl, 99)),
        agreement=float(np.mean(found.same)),
        perplexity=float(np.exp(np.nanmean(found.nll))),
        reference_perplexity=float(np.exp(np.nanmean(found.reference_nll))),
    )
