"""Lanes of the fidelity lab: a text computed in one way, in a context of its own, with the logits of every position.

Owns the native contexts of the lab, whose parameters are not those of a chat: one sequence, and as many outputs as
tokens in a batch. Must not compare. Every decode can be broken off, and is then done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kvchat.backend.fidelity import Way
from kvchat.backend.values import CacheType
from kvchat.engine.divergence import Logits
from kvchat.engine.llama import ABORTED, DECODED, ContextParams, NativeContext
from kvchat.engine.memory import CHAT, Memory
from kvchat.engine.model import Model
from kvchat.errors import KvchatError
from kvchat.formats.rows import Part, Rows
from kvchat.formats.state import parse
from kvchat.kv.compute import compute_bytes
from kvchat.kv.ledger import CacheConfig, ledger

_OUTPUT_BYTES = 64 * 2**20  # of the logits of one batch
_SMALLEST_BATCH = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """How a lane has its cache."""

    way: Way
    type_k: CacheType
    type_v: CacheType
    flash: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, end) of the text, decoded as one batch. `counts`: they are among those before a depth at which
    fidelity is told; `begins`: the first of these."""

    start: int
    end: int
    counts: bool = False
    begins: bool = False


def lab_batch(vocabulary: int, largest: int) -> int:
    """Tokens of a batch: a power of two whose logits are not too large, at most `largest`."""
    fitting = max(_SMALLEST_BATCH, min(largest, _OUTPUT_BYTES // (4 * max(1, vocabulary))))
    return 1 << (fitting.bit_length() - 1)


def lane_bytes(model: Model, plan: Plan, cells: int, batch: int) -> int:
    """Bytes that a lane takes: cache, computations and logits. KvchatError when the model cannot have these types."""
    config = CacheConfig(cells, plan.type_k, plan.type_v, plan.flash, 1, batch, 0, batch)
    outputs = 4 * batch * model.native.vocab_size
    return (
        ledger(model.geometry, config).bytes
        + compute_bytes(model.subject.work, model.geometry, config)
        + outputs
        + (outputs if plan.way == "batch" else 0)
    )


class Lane:
    """One context. `read` computes a chunk; its logits are then in `logits`, unless they do not count."""

    def __init__(
        self, model: Model, plan: Plan, cells: int, batch: int, threads: int, interrupt: Callable[[], bool]
    ) -> None:
        """Raises KvchatError when llama.cpp refuses. A recurrent state cannot be taken back, so models that have one
        are not interrupted within a decode."""
        params = ContextParams(
            cells=cells,
            batch=batch,
            sequences=1,
            type_k=plan.type_k,
            type_v=plan.type_v,
            flash="on" if plan.flash else "off",
            threads=threads,
            rollback=0,
            outputs=batch,
        )
        try:
            self._native = NativeContext(model.native, params, interrupt)
        except ValueError:
            raise KvchatError(
                f"llama.cpp refused a context of {cells} tokens with cache types {plan.type_k}/{plan.type_v}",
                "try a smaller depth; the log (see kvchat paths) has llama.cpp's own words",
            ) from None
        self._native.abort.ask(not model.geometry.state_bytes)
        self.plan = plan
        self.memory = Memory(self._native, model.geometry)
        if plan.way == "transcoded" and self._native.decode([0, 0], 0, CHAT, output=1) == DECODED:
            self.memory.probe()
            self.memory.clear()
        self._vocabulary = model.native.vocab_size
        self.logits: Logits | None = None

    def close(self) -> None:
        self.logits = None
        self._native.close()

    def read(self, chunk: Chunk, tokens: Sequence[int]) -> Iterator[None]:
        """Compute the tokens of a chunk. Yields where it can be left alone for a while, after at most one decode."""
        self.logits = None
        if self.plan.way != "batch":
            yield from self._decode(tokens, chunk.start, output=len(tokens))
            self.logits = self._native.all_logits(len(tokens))
        elif not chunk.counts:  # bit for bit what the reference computes
            yield from self._decode(tokens, chunk.start, output=1)
        else:
            yield from self.read_alone(chunk, tokens)

    def read_alone(self, chunk: Chunk, tokens: Sequence[int]) -> Iterator[None]:
        """As `read`, one token at a time."""
        alone = np.empty((len(tokens), self._vocabulary), np.float32)
        for i, token in enumerate(tokens):
            yield from self._decode([token], chunk.start + i, output=1)
            alone[i] = self._native.all_logits(1)[0]
        self.logits = alone

    def state(self) -> memoryview:
        """A blob of all that is in the cells, for `put`. Raises KvchatError."""
        try:
            return self._native.state(CHAT)
        except (ValueError, MemoryError) as error:
            raise KvchatError(f"the state cannot be copied: {error!r}", "try a smaller depth") from None

    def rows(self) -> dict[Part, Rows]:
        """What is in the cells. Raises FormatError when the blob is not what this model should have."""
        return dict(parse(self.state(), self.memory.layout))

    def put(self, blob: memoryview, length: int) -> None:
        """Have the cells of a blob, of `length` tokens, and no others. Raises KvchatError."""
        self.memory.replace(blob, length)

    def _decode(self, tokens: Sequence[int], position: int, *, output: int) -> Iterator[None]:
        while (code := self._native.decode(tokens, position, CHAT, output=output)) != DECODED:
            if code != ABORTED:
                raise KvchatError(
                    f"llama.cpp could not compute this text (code {code})",
                    "the log (see kvchat paths) has llama.cpp's own words",
                )
            self._native.remove(CHAT, position, -1)
            yield None
        self._native.synchronize()
        yield None
