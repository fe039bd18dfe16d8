"""The context: built for a model in one configuration, and what is computed in it.

Owns the choice of flash attention, threads, batch and size, and what a decode that fails leaves behind. The cells are
the business of each sequence's `Memory`. Must not know messages, chats or the page store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvchat.backend.values import EngineConfig
from kvchat.engine.llama import ABORTED, DECODED, NO_SLOT, ContextParams, NativeContext, Run, has_gpu
from kvchat.engine.memory import SCRATCH, Memory
from kvchat.engine.model import Model
from kvchat.engine.step import Step, Witness
from kvchat.engine.track import Outputs, Track
from kvchat.errors import KvchatError
from kvchat.kv.fit import OUTPUTS, cache_bytes, chunk, rollback_rows, sequences, uses_flash
from kvchat.kv.ledger import CELLS, held_bytes
from kvchat.kv.needs import Subject
from kvchat.kv.plan import Wanted, make_plan
from kvchat.machine import free_memory, physical_cores

WARM_UP = 8  # more than one token: the matrix-matrix path is where an illegal instruction strikes


class Task(NamedTuple):
    """A step, and the sequence that it is for."""

    track: Track
    step: Step


class Aborted(Exception):
    """A decode was interrupted; the cells are as they were before it, or spoilt (see Memory)."""


class FullError(KvchatError):
    """There is no cell left for what was to be computed."""

    def __init__(self) -> None:
        super().__init__("the context is full", "start a new chat, or use a larger --ctx-size")


class Context:
    """A context in which chats live, each in a sequence of its own: a track."""

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
        self._parallel = config.parallel
        flash = uses_flash(model.geometry, config.type_v, config.flash_attention, self.on_gpu)
        params = ContextParams(
            cells=_context_size(model, config, beside, on_gpu=self.on_gpu),
            batch=self.chunk,
            sequences=sequences(model.geometry, config.parallel),
            type_k=config.type_k,
            type_v=config.type_v,
            flash="auto" if self.on_gpu and config.flash_attention == "auto" else "on" if flash else "off",
            threads=self.threads,
            rollback=rollback_rows(model.geometry, config.parallel),
            outputs=OUTPUTS,
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
        self.flash = flash
        self.tracks = tuple(self._track(model, sequence) for sequence in range(params.sequences) if sequence != SCRATCH)
        self.memory, self.outputs = self.tracks[0].memory, self.tracks[0].outputs
        try:
            self._warm_up(model)
        except (Aborted, KvchatError):
            self.close()
            raise

    def _track(self, model: Model, sequence: int) -> Track:
        memory = Memory(self.native, model.geometry, sequence=sequence, turns_whole=model.turns_whole)
        return Track(sequence, memory, Outputs(self.native))

    def close(self) -> None:
        self.native.close()

    def _warm_up(self, model: Model) -> None:
        token = model.native.bos if model.native.bos is not None else 0
        self.decode([token] * WARM_UP, 0, output=False)
        self.decode([token], WARM_UP, output=True)
        self.native.synchronize()
        self.memory.probe()
        for track in self.tracks[1:]:
            track.memory.shapes = self.memory.shapes
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
        """Compute a step of the first track, see `compute`."""
        self.compute([Task(self.tracks[0], Step(tokens, position, int(output), whole, witness))])

    def compute(self, tasks: Sequence[Task]) -> None:
        """Compute steps of different tracks together: at most `chunk` tokens and OUTPUTS logits in all. A step with a
        witness is alone, and needs room for one more token in batch and context. Raises Aborted or KvchatError; the
        cells of each are then as they were before, or spoilt: a recurrent state cannot be taken back."""
        self.native.abort.ask(not any(task.step.whole for task in tasks))
        self.forget_outputs()
        code = self._decode(tasks)
        if code == DECODED:
            self._computed(tasks)
            return
        if code != NO_SLOT:  # then nothing was computed
            for track, step in tasks:
                track.memory.broken_off(step.position)
        if code == ABORTED:
            raise Aborted
        if code == NO_SLOT:
            raise FullError
        raise KvchatError(
            f"llama.cpp could not compute these tokens (code {code})",
            "the log (see kvchat paths) has llama.cpp's own words",
        )

    def _computed(self, tasks: Sequence[Task]) -> None:
        end = 0
        for track, step in tasks:
            count = len(step.tokens)
            end += count
            track.outputs.told(end - 1, step.position + count, step.output)
            track.memory.decoded(count)
        if self.on_gpu:  # there a decode returns before it is done, and what it cost would be told of another
            self.native.synchronize()

    def _decode(self, tasks: Sequence[Task]) -> int:
        runs = [Run(step.tokens, step.position, track.sequence, step.output) for track, step in tasks]
        track, step = tasks[0]
        if step.witness is None:
            return self.native.decode_runs(runs)
        track.outputs.witnessed = None
        assert len(tasks) == 1, "a step with a witness is alone"
        token, position = step.witness
        self.native.share(track.sequence, SCRATCH, 0, position)
        try:
            code = self.native.decode_runs([*runs, Run([token], position, SCRATCH, 1)])
            track.outputs.witnessed = self.native.logits(len(step.tokens)) if code == DECODED else None
        finally:
            self.forget_aside()
        return code

    def forget_outputs(self) -> None:
        """What the last decode told is about cells that may be others from now on."""
        for track in self.tracks:
            track.outputs.forget()

    def decode_aside(self, tokens: Sequence[int], position: int) -> None:
        """Compute in the scratch sequence. Raises Aborted or KvchatError; nothing of it is left then."""
        self.native.abort.ask(True)
        self.forget_outputs()
        code = self.native.decode(tokens, position, SCRATCH, output=1)
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
        return cache_bytes(self.geometry, *self._types, self.cells, self._parallel)

    def held_bytes(self, tokens: int) -> int:
        """Bytes of the state of so many tokens."""
        return held_bytes(self.geometry, *self._types, tokens)

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits of the last output of the first track, shape (vocabulary,)."""
        return self.outputs.logits()


def _context_size(model: Model, config: EngineConfig, beside: Subject | None, *, on_gpu: bool) -> int:
    """The size asked for, else what is chosen for this model and this memory."""
    wanted = replace(Wanted.of(config), gpu_layers=model.gpu_layers)
    plan = make_plan(model.subject, model.free_before, wanted, beside)
    free = None if on_gpu else free_memory()  # there llama.cpp itself knows, and refuses
    needed = cache_bytes(model.geometry, config.type_k, config.type_v, config.context, config.parallel)
    if config.context and free is not None and needed > free:
        raise KvchatError(
            f"a context of {config.context} tokens needs {needed / 2**30:.1f} GiB for its cache, "
            f"and {free / 2**30:.1f} GiB are free",
            f"the largest that fits is about --ctx-size {plan.chosen.largest_context or CELLS}",
        )
    return -(-plan.context // CELLS) * CELLS  # as llama.cpp does, but for the batch, which it cuts to what was asked
