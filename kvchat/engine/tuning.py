"""Flash attention and threads, measured. Owns the measurement; must not decide when, or remember the result.

Decode is timed in a small context of its own whose cells are faked: a blob of zero rows at depth 1,024, which takes
as long as real ones to within 13 %. Flash attention, threads and cache type interact, so pairs are measured, not parts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from kvchat.backend.values import EngineConfig, FlashAttention
from kvchat.engine.context import Aborted, Context
from kvchat.engine.model import Model
from kvchat.errors import KvchatError
from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.machine import physical_cores

_QUANTIZED = ("q8_0", "q4_0")
DEPTH = 1024  # tokens in the cells while decode is timed
SECONDS = 3.0  # that all of it may take
DECODES = 6
GAIN = 1.05  # a setting must be so much faster than the present one to replace it


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tuned."""

    flash: bool
    threads: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A setting and its decode speed at depth DEPTH, tokens per second."""

    setting: Setting
    speed: float

    def __str__(self) -> str:
        threads = "1 thread" if self.setting.threads == 1 else f"{self.setting.threads} threads"
        return f"flash attention {'on' if self.setting.flash else 'off'}, {threads}: {self.speed:.1f} tokens/s"


class Interrupted(Exception):
    """Somebody wants the engine."""


def candidates(config: EngineConfig, present: Setting) -> Iterator[Setting]:
    """The present setting first, then what else the person left open: with one fewer than all cores, all, half."""
    cores = physical_cores()
    threads = {config.threads} if config.threads else {max(1, cores - 1), cores, max(1, cores // 2)}
    flash = {present.flash}
    if config.flash_attention == "auto" and config.type_v not in _QUANTIZED:
        flash = {False, True}
    yield present
    for setting in sorted((Setting(f, t) for f in flash for t in threads), key=lambda s: (s.flash, s.threads)):
        if setting != present:
            yield setting


def measure(model: Model, config: EngineConfig, present: Setting, wanted: Callable[[], bool]) -> list[Measured]:
    """Decode speed of each candidate, as many as there is time for. Raises Interrupted when `wanted` says so, and
    KvchatError when a context cannot be built."""
    deadline = time.monotonic() + SECONDS
    results: list[Measured] = []
    context: Context | None = None
    try:
        for setting in candidates(config, present):
            if time.monotonic() > deadline:
                break
            if context is None or context.flash != setting.flash:
                if context is not None:
                    context.close()
                    context = None  # the next one may be broken off while it is built
                context = deep_context(model, config, setting, wanted)
            context.set_threads(setting.threads)
            results.append(Measured(setting, _speed(context, wanted)))
    except Aborted:
        raise Interrupted from None
    finally:
        if context is not None:
            context.close()
    return results


def best(results: list[Measured]) -> Setting:
    """The fastest setting, or the present one, the first of the results, where nothing is clearly faster."""
    fastest = max(results, key=lambda measured: measured.speed)
    present = results[0]
    return fastest.setting if fastest.speed > present.speed * GAIN else present.setting


def deep_context(model: Model, config: EngineConfig, setting: Setting, wanted: Callable[[], bool]) -> Context:
    """A context with cells of zeros at depth DEPTH. Raises KvchatError when it cannot be built or filled."""
    flash: FlashAttention = "on" if setting.flash else "off"
    small = replace(config, context=DEPTH + 256, threads=setting.threads, flash_attention=flash)
    context = Context(model, small, wanted)
    memory = context.memory
    if not memory.shapes:
        context.close()
        raise KvchatError("cells of this architecture cannot be faked")
    first = {"full": 0, "window": memory.first_needed(DEPTH), "state": DEPTH - 1}
    cells = {
        part: PartCells(shape, np.arange(first[part], DEPTH, dtype=np.int32)) for part, shape in memory.shapes.items()
    }
    blob = BlobBuffer(cells, ids=[0] * DEPTH if memory.layout.plane else None)
    for part, each in cells.items():
        for view in blob.views(part, 0, len(each.positions)):
            np.frombuffer(view, np.uint8)[:] = 0
    try:
        memory.replace(blob.finish(), DEPTH)
    except KvchatError:
        context.close()
        raise
    return context


def _speed(context: Context, wanted: Callable[[], bool]) -> float:
    times = []
    for _ in range(DECODES):
        if wanted():
            raise Interrupted
        began = time.perf_counter()
        context.decode([0], context.memory.length, output=True)
        context.native.synchronize()
        times.append(time.perf_counter() - began)
    return 1 / statistics.median(times[1:])
