"""The context: built for a model in one configuration, and what is computed in it.

Owns the choice of flash attention, threads, batch and size, and what a decode that fails leaves behind. The cells are
the business of `Memory`. Must not know messages, chats or the page store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvchat.backend.values import EngineConfig
from kvchat.engine.llama import ABORTED, DECODED, NO_SLOT, Beside, ContextParams, NativeContext, has_gpu
from kvchat.engine.memory import CHAT, SCRATCH, Memory
from kvchat.engine.model import Model
from kvchat.errors import KvchatError
from kvchat.kv.fit import OUTPUTS, cache_bytes, chunk, rollback_rows, sequences, uses_flash
from kvchat.kv.ledger import CELLS, held_bytes
from kvchat.kv.needs import Subject
from kvchat.kv.plan import Wanted, make_plan
from kvchat.machine import free_memory, physical_cores

WARM_UP = 8  # more than one token: the matrix-matrix path is where an illegal instruction strikes


class Witness(NamedTuple):
    """A token of the chat that is in its cells and is computed once more, for its logits: in the scratch sequence,
    which shares all cells before it, so that those of the chat stay as they are."""

    token: int
    position: int


class Aborted(Exception):
    """A decode was interrupted; the cells are as they were before it, or spoilt (see Memory)."""


class Context:
    """A context in which one chat lives."""

    def __init__(
        self, model: Model, config: EngineConfig, interrupt: Callable[[], bool], beside: Subject | None = None
    ) -> None:
        """Build and warm up. `beside`: a draft model that needs memory too. Raises KvchatError when the combination or
        the size is impossible."""
        refusal = model.geometry.refusal(config.type_k, config.type_v, config.flash_attention)
        if refusal is not None:
            raise refusal
        self.on_gpu = has_gpu() and model.gpu_layers != 0
        self.threads = config.threads or max(1, physical_cores() - 1)
        self.chunk = config.hardware.batch or max(config.hardware.ubatch, chunk(model.native.parameters, self.on_gpu))
        self.geometry = model.geometry
        self._types = config.type_k, config.type_v
        flash = uses_flash(model.geometry, config.type_v, config.flash_attention, self.on_gpu)
        params = ContextParams(
            cells=_context_size(model, config, beside, on_gpu=self.on_gpu),
            batch=self.chunk,
            sequences=sequences(model.geometry),
            type_k=config.type_k,
            type_v=config.type_v,
            flash="auto" if self.on_gpu and config.flash_attention == "auto" else "on" if flash else "off",
            threads=self.threads,
            rollback=rollback_rows(model.geometry),
            outputs=OUTPUTS,
        )
        self._whole_steps = False
        self._outputs = range(0)  # after so many tokens of the chat the last decode told logits
        self.witnessed: npt.NDArray[np.float32] | None = None  # logits of the last witness, shape (vocabulary,)
        try:
            self.native = NativeContext(model.native, params, lambda: interrupt() and not self._whole_steps)
        except ValueError:
            types = f"{config.type_k}/{config.type_v}"
            raise KvchatError(
                f"llama.cpp refused a context of {params.cells} tokens with cache types {types}",
                "try a smaller --ctx-size, or cache types f16; the log (see kvchat paths) has llama.cpp's own words",
            ) from None
        self.cells = self.native.cells
        self.flash = flash
        self.memory = Memory(self.native, model.geometry, turns_whole=model.turns_whole)
        try:
            self._warm_up(model)
        except (Aborted, KvchatError):
            self.close()
            raise

    def close(self) -> None:
        self.native.close()

    def _warm_up(self, model: Model) -> None:
        token = model.native.bos if model.native.bos is not None else 0
        self.decode([token] * WARM_UP, 0, output=False)
        self.decode([token], WARM_UP, output=True)
        self.native.synchronize()
        self.memory.probe()
        kept = [shape for part, shape in self.memory.shapes.items() if part != "state"]
        if kept:  # llama.cpp may have decided otherwise
            self.flash = not kept[0].v_trans
        self.memory.clear()

    def decode(
        self,
        tokens: Sequence[int],
        position: int,
        *,
        output: int,
        whole: bool = False,
        witness: Witness | None = None,
    ) -> None:
        """Compute `tokens` at consecutive positions; logits of the last `output` of them are wanted, at most OUTPUTS.
        `witness` is computed with them, see there: then there must be room for one more token in batch and context.
        `whole`: it is soon over, and not interrupted. Raises Aborted or KvchatError; the cells are then as they were
        before, or spoilt: a recurrent state cannot be taken back."""
        self._whole_steps = whole
        self._outputs = range(0)
        code = self._decode_with(witness, tokens, position, output)
        if code == DECODED:
            self._outputs = range(position + len(tokens) - int(output) + 1, position + len(tokens) + 1)
            self.memory.decoded(len(tokens))
            if self.on_gpu:  # there a decode returns before it is done, and what it cost would be told of another
                self.native.synchronize()
            return
        if code != NO_SLOT:  # then nothing was computed
            self.memory.broken_off(position)
        if code == ABORTED:
            raise Aborted
        if code == NO_SLOT:
            raise KvchatError("the context is full", "start a new chat, or use a larger --ctx-size")
        raise KvchatError(
            f"llama.cpp could not compute these tokens (code {code})",
            "the log (see kvchat paths) has llama.cpp's own words",
        )

    def _decode_with(self, witness: Witness | None, tokens: Sequence[int], position: int, output: int) -> int:
        if witness is None:
            return self.native.decode(tokens, position, CHAT, output=output)
        self.native.share(CHAT, SCRATCH, 0, witness.position)
        try:
            beside = Beside(witness.token, witness.position, SCRATCH)
            code = self.native.decode(tokens, position, CHAT, output=output, beside=beside)
            self.witnessed = self.native.logits(len(tokens)) if code == DECODED else None
        finally:
            self.forget_aside()
        return code

    def forget_outputs(self) -> None:
        """What the last decode told is about cells that may be others from now on."""
        self._outputs = range(0)

    def logits_after(self, length: int) -> npt.NDArray[np.float32] | None:
        """Logits of the token after the first `length` of the chat, if the last decode told them."""
        if length not in self._outputs:
            return None
        return self.native.logits(self.native.last_output - (self._outputs[-1] - length))

    def decode_aside(self, tokens: Sequence[int], position: int) -> None:
        """Compute in the scratch sequence. Raises Aborted or KvchatError; nothing of it is left then."""
        self._whole_steps = False
        self._outputs = range(0)
        code = self.native.decode(tokens, position, SCRATCH, output=True)
        if code != DECODED:
            self.forget_aside()
            if code == ABORTED:
                raise Aborted
            raise KvchatError(f"llama.cpp could not compute beside the chat (code {code})", "the chat is as it was")

    def forget_aside(self) -> None:
        """Give back the cells of the scratch sequence."""
        self.native.remove(SCRATCH, -1, -1)

    def set_threads(self, threads: int) -> None:
        """Compute with so many threads from the next decode on."""
        self.threads = threads
        self.native.set_threads(threads)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the whole cache, whatever it holds."""
        return cache_bytes(self.geometry, *self._types, self.cells)

    def held_bytes(self, tokens: int) -> int:
        """Bytes of the state of so many tokens."""
        return held_bytes(self.geometry, *self._types, tokens)

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits of the last output, shape (vocabulary,)."""
        return self.native.logits()


def _context_size(model: Model, config: EngineConfig, beside: Subject | None, *, on_gpu: bool) -> int:
    """The size asked for, else what is chosen for this model and this memory."""
    wanted = replace(Wanted.of(config), gpu_layers=model.gpu_layers)
    plan = make_plan(model.subject, model.free_before, wanted, beside)
    free = None if on_gpu else free_memory()  # there llama.cpp itself knows, and refuses
    needed = cache_bytes(model.geometry, config.type_k, config.type_v, config.context)
    if config.context and free is not None and needed > free:
        raise KvchatError(
            f"a context of {config.context} tokens needs {needed / 2**30:.1f} GiB for its cache, "
            f"and {free / 2**30:.1f} GiB are free",
            f"the largest that fits is about --ctx-size {plan.chosen.largest_context or CELLS}",
        )
    return plan.context
