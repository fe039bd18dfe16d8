"""The guard: what the cache types in use cost in speed and quality here, found out once while nobody wants anything.

Owns the measurement, which is short: decode speed at depth 1,024 on cells of zeros, as tuning has it, and a few
sentences computed beside f16. Must not decide when, judge, or remember the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np

from kvchat.backend.fidelity import Pair, Verdict
from kvchat.backend.values import EngineConfig
from kvchat.engine.context import Aborted, Context
from kvchat.engine.divergence import Differences, Logits, differences, joined
from kvchat.engine.lanes import Chunk, Lane, Plan, lab_batch
from kvchat.engine.llama import has_gpu
from kvchat.engine.model import Model
from kvchat.engine.tuning import DECODES, Interrupted, Setting, deep_context
from kvchat.errors import KvchatError
from kvchat.kv.fit import uses_flash

SECONDS = 5.0  # that all of it may take
TEXT = (
    "The ferry leaves from the northern pier at twenty past six, and if the wind is strong it does not leave at all. "
    "Whoever has to be on the island by evening asks the woman in the kiosk, who has looked at the water every morning "
    "for thirty years and who has been wrong twice. She says yes or no. She never says why. Once a man in a grey coat "
    "asked her for her reasons, and she pointed with her thumb at the gulls behind her, without turning round. There "
    "were nine of them on the roof, all with their heads to the west, and he did not understand it then."
)
_BATCH = 32
_ALONE = 24  # tokens that are also computed one by one
_FEWEST = 16  # positions that say something


F16: Pair = ("f16", "f16")


class _TimeUp(Exception):
    """What was measured until now has to do."""


class Guard:
    """One measurement of the cache types of `config`."""

    def __init__(
        self, model: Model, config: EngineConfig, *, threads: int, flash: bool, wanted: Callable[[], bool]
    ) -> None:
        """`threads`, `flash`: as the chat's context has them. `wanted`: somebody needs the engine."""
        self._model = model
        self._config = config
        self._pair: Pair = (config.type_k, config.type_v)
        self._threads = threads
        self._flash = flash
        self._wanted = wanted
        self._deadline = time.monotonic() + SECONDS
        self._f16_flash = uses_flash(model.geometry, "f16", "auto", has_gpu() and model.gpu_layers != 0)

    def measure(self) -> Verdict:
        """The verdict, of what there was time for. Raises Interrupted, and KvchatError when a context cannot be
        built."""
        if not self._model.geometry.cache:
            raise KvchatError("this model has no cache types", "there is nothing to check")
        speed = f16_speed = None
        kl = agreement = 0.0
        positions = 0
        noise = None
        try:
            if self._pair != F16:
                f16_speed, speed = self._speeds()
            found, alone = self._quality()
        except _TimeUp:
            found = alone = None
        if found is not None and len(found) >= _FEWEST:
            positions, kl, agreement = len(found), float(np.mean(found.kl)), float(np.mean(found.same))
        if alone is not None:
            noise = float(np.percentile(alone.kl, 99))
        return Verdict(*self._pair, speed, f16_speed, positions, kl, agreement, noise)

    # ---------------------------------------------------------------- speed

    def _speeds(self) -> tuple[float | None, float | None]:
        """Decode speed with f16 and with the pair, in turns, so that a machine that is busy is it for both. None for an
        architecture whose cells cannot be faked."""
        settings = ((F16, self._f16_flash), (self._pair, self._flash))
        try:
            with ExitStack() as stack:
                contexts = [stack.enter_context(closing(self._deep(*each))) for each in settings]
                times = [[self._decode_time(context) for context in contexts] for _ in range(DECODES)]
        except Aborted:
            raise self._reason() from None
        except KvchatError:
            return None, None
        f16, pair = (statistics.median(each) for each in zip(*times[1:], strict=True))
        return 1 / f16, 1 / pair

    def _deep(self, pair: Pair, flash: bool) -> Context:
        config = replace(self._config, type_k=pair[0], type_v=pair[1])
        return deep_context(self._model, config, Setting(flash, self._threads), self._wanted)

    def _decode_time(self, context: Context) -> float:
        if self._must_stop():
            raise self._reason()
        began = time.perf_counter()
        context.decode([0], context.memory.length, output=True)
        context.native.synchronize()
        return time.perf_counter() - began

    def _must_stop(self) -> bool:
        return self._wanted() or time.monotonic() > self._deadline

    def _reason(self) -> Exception:
        return Interrupted() if self._wanted() else _TimeUp()

    # ---------------------------------------------------------------- quality

    def _quality(self) -> tuple[Differences | None, Differences | None]:
        """The pair against f16, and against itself one token at a time; None where there was no time."""
        ids = self._model.tokenize(TEXT, special=False)
        batch = lab_batch(self._model.native.vocab_size, _BATCH)
        parts: list[Differences] = []
        alone: Differences | None = None
        lanes: list[Lane] = []
        try:
            for plan in self._plans():  # one by one: those that are there are closed when the next one cannot be
                lanes.append(self._lane(plan, len(ids), batch))  # noqa: PERF401
            for chunk in _chunks(len(ids), batch):
                tokens, following = ids[chunk.start : chunk.end], ids[chunk.start + 1 : chunk.end + 1]
                single = self._alone(lanes[-1], chunk, tokens) if chunk.counts else None
                for lane in lanes:
                    self._finish(lane.read(chunk, tokens))
                if single is not None:
                    alone = differences(np.array(lanes[-1].logits), single, following)
                if len(lanes) > 1:
                    parts.append(_compared(lanes[0], lanes[-1], following))
                elif alone is not None:
                    break  # f16 itself has nothing more to be compared with
        except _TimeUp:
            pass
        finally:
            for lane in lanes:
                lane.close()
        return joined(parts) if parts else None, alone

    def _plans(self) -> Iterator[Plan]:
        """f16, unless it is that which is checked, and the pair."""
        if self._pair != F16:
            yield Plan("native", *F16, self._f16_flash)
        yield Plan("native", *self._pair, self._flash)

    def _lane(self, plan: Plan, cells: int, batch: int) -> Lane:
        return Lane(self._model, plan, cells, batch, self._threads, self._must_stop)

    def _alone(self, lane: Lane, chunk: Chunk, tokens: Sequence[int]) -> Logits:
        """The logits of a chunk that is computed one token at a time. The lane is then as it was before."""
        before = lane.state()
        self._finish(lane.read_alone(chunk, tokens))
        logits = np.array(lane.logits)
        lane.put(before, chunk.start)
        return logits

    def _finish(self, steps: Iterator[None]) -> None:
        for _ in steps:
            if self._must_stop():
                raise self._reason()


def _chunks(tokens: int, batch: int) -> list[Chunk]:
    """Batches of a text. The second one, which counts, is also computed one token at a time: what else there is time
    for is not known."""
    first = batch + min(_ALONE, batch)
    return [
        Chunk(0, batch),
        Chunk(batch, first, counts=True, begins=True),
        *(Chunk(start, min(start + batch, tokens)) for start in range(first, tokens, batch)),
    ]


def _compared(reference: Lane, tested: Lane, following: Sequence[int]) -> Differences:
    if reference.logits is None or tested.logits is None:
        raise RuntimeError("a lane has no logits")
    return differences(reference.logits, tested.logits, following)
