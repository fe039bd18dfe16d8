"""The context: cells of the chat's sequence, and what may be done to them.

Owns the discipline of llama.cpp's memory: what `seq_rm` really did, the scratch sequence through which state goes in
and out, the choice of flash attention, threads and chunk size. Must not know messages, chats or the page store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kvchat.backend.values import EngineConfig
from kvchat.engine.llama import ABORTED, DECODED, NO_SLOT, ContextParams, NativeContext, has_gpu
from kvchat.engine.model import Model
from kvchat.errors import KvchatError
from kvchat.formats.state import LayerShape, State, parse
from kvchat.kv.fit import automatic_context
from kvchat.machine import free_memory, physical_cores

CHAT, SCRATCH = 0, 1
QUANTIZED = ("q8_0", "q4_0")
WARM_UP = 8  # more than one token: the matrix-matrix path is where an illegal instruction strikes


class Aborted(Exception):
    """A decode was interrupted; the cells are as they were before it."""


class Context:
    """A context in which one chat lives in cells 0..n-1 in position order."""

    def __init__(self, model: Model, config: EngineConfig, interrupt: Callable[[], bool]) -> None:
        """Build and warm up. Raises KvchatError when the combination or the size is impossible."""
        refusal = model.geometry.refusal(config.type_k, config.type_v, config.flash_attention)
        if refusal is not None:
            raise refusal
        self.on_gpu = has_gpu() and config.gpu_layers != 0
        self.threads = config.threads or max(1, physical_cores() - 1)
        self.chunk = _chunk(model.native.parameters, self.on_gpu)
        self.bytes_per_token = model.geometry.bytes_per_token(config.type_k, config.type_v)
        self._window = model.native.window
        params = ContextParams(
            cells=_context_size(model, config, self.bytes_per_token),
            batch=self.chunk,
            sequences=2 if model.geometry.paged else 1,
            type_k=config.type_k,
            type_v=config.type_v,
            flash=_flash(config, self.on_gpu),
            threads=self.threads,
        )
        try:
            self.native = NativeContext(model.native, params, interrupt)
        except ValueError:
            types = f"{config.type_k}/{config.type_v}"
            raise KvchatError(
                f"llama.cpp refused a context of {params.cells} tokens with cache types {types}",
                "try a smaller --ctx-size, or cache types f16; the log (see kvchat paths) has llama.cpp's own words",
            ) from None
        self.cells = self.native.cells
        self.layers: tuple[LayerShape, ...] = ()
        self.flash = params.flash == "on"
        self.v_trans = not self.flash
        try:
            self._warm_up(model, paged=model.geometry.paged)
        except (Aborted, KvchatError):
            self.close()
            raise

    def close(self) -> None:
        self.native.close()

    def _warm_up(self, model: Model, *, paged: bool) -> None:
        token = model.native.bos if model.native.bos is not None else 0
        self.decode([token] * WARM_UP, 0, output=False)
        self.decode([token], WARM_UP, output=True)
        self.native.synchronize()
        if paged:
            state = self.copy_out(0, 1)
            self.layers = state.layers
            self.v_trans = state.v_trans
            self.flash = not state.v_trans
        self.clear()

    def decode(self, tokens: Sequence[int], position: int, *, output: bool) -> None:
        """Compute `tokens` at consecutive positions. Raises Aborted (cells unchanged) or KvchatError."""
        code = self.native.decode(tokens, position, CHAT, output=output)
        if code == DECODED:
            return
        if not self.truncate(position):
            self.clear()
        if code == ABORTED:
            raise Aborted
        if code == NO_SLOT:
            raise KvchatError("the context is full", "start a new chat, or use a larger --ctx-size")
        raise KvchatError(
            f"llama.cpp could not compute these tokens (code {code})",
            "the log (see kvchat paths) has llama.cpp's own words",
        )

    def set_threads(self, threads: int) -> None:
        """Compute with so many threads from the next decode on."""
        self.threads = threads
        self.native.set_threads(threads)

    @property
    def length(self) -> int:
        """Tokens in the chat's sequence."""
        return self.native.last_position(CHAT) + 1

    def clear(self) -> None:
        self.native.clear()

    def truncate(self, length: int) -> bool:
        """Keep positions [0, length) of the chat. False: this memory cannot go back so far, nothing may be trusted.

        `seq_rm` returns true without having kept a sliding window, and does nothing in the middle of a recurrent
        state, so what is there afterwards is asked, not assumed.
        """
        if self.length <= length:
            return self.length == length
        if length == 0:
            self.clear()
            return True
        if not self.native.remove(CHAT, length, -1) or self.native.last_position(CHAT) != length - 1:
            return False
        return not self._window or self.native.first_position(CHAT) <= max(0, length - self._window)

    def copy_out(self, start: int, end: int) -> State:
        """Keys and values of positions [start, end), through the scratch sequence. Raises KvchatError."""
        self.native.share(CHAT, SCRATCH, start, end)
        try:
            return parse(self.native.state(SCRATCH))
        except ValueError as error:
            raise KvchatError(str(error), "KV is not saved; the log has llama.cpp's own words") from None
        finally:
            self.native.remove(SCRATCH, -1, -1)

    def copy_in(self, blob: memoryview) -> None:
        """Append the cells of a state blob to the chat. Raises KvchatError when llama.cpp refuses; the chat is then
        as it was."""
        accepted = self.native.set_state(blob, SCRATCH)
        if accepted:
            self.native.share(SCRATCH, CHAT, -1, -1)
        self.native.remove(SCRATCH, -1, -1)
        if not accepted:
            raise KvchatError("llama.cpp refused the saved KV", "it is computed again")

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits of the last output, shape (vocabulary,)."""
        return self.native.logits()


def _chunk(parameters: int, on_gpu: bool) -> int:
    """Tokens in one prefill step: progress about every second and a bounded wait for a cancel on a GPU, where the
    abort callback is not asked. A function of the model alone, so that the same prompt has the same batch shapes."""
    if on_gpu:
        return 512
    return 256 if parameters < 1_500_000_000 else 128 if parameters < 5_000_000_000 else 64


def _flash(config: EngineConfig, on_gpu: bool) -> str:
    """On CPU flash attention costs decode speed with f16 caches, and quantized V cannot do without it."""
    if config.flash_attention != "auto" or on_gpu:
        return config.flash_attention
    return "on" if config.type_v in QUANTIZED else "off"


def _context_size(model: Model, config: EngineConfig, bytes_per_token: int) -> int:
    """The size asked for, else what is chosen for this model and this memory."""
    free = free_memory()
    if not config.context:
        return automatic_context(model.geometry, config.type_k, config.type_v, free)
    needed = config.context * bytes_per_token
    if free is not None and needed > free:
        raise KvchatError(
            f"a context of {config.context} tokens needs {needed / 2**30:.1f} GiB for its cache, "
            f"and {free / 2**30:.1f} GiB are free",
            f"the largest that fits is about --ctx-size {max(256, free * 8 // 10 // max(1, bytes_per_token))}",
        )
    return config.context
