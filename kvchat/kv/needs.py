"""What a model takes of a machine's memory, at any cache types and context. Owns these sums and what counts as fitting.

Must not read machines (free memory is passed in) and chooses nothing. The cache is exact, computations are an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.formats.gguf import GgufHeader, model_name, read_header
from kvchat.formats.gguf_adapter import check_adapter, read_adapter
from kvchat.formats.gguf_split import model_files
from kvchat.kv.compute import Workload, compute_bytes, work_bytes, workload
from kvchat.kv.fit import OUTPUTS, Flash, chunk, draft_context, rollback_rows, sequences, uses_flash
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.ledger import CELLS, CacheConfig, Ledger, ledger
from kvchat.kv.overhead import PROCESS, vocabulary_bytes

_LARGEST_CONTEXT = 1 << 20  # looked for where a model does not say what it was trained for
_ROOM_SHARE, _MOST_ROOM = 8, 1 << 30


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to plan for. `header` has the tensors of all its parts, `size` is that of all its files in bytes,
    `adapters` that of the LoRA adapters with it."""

    name: str
    header: GgufHeader
    geometry: Geometry
    size: int
    work: Workload
    adapters: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Free bytes; None: not known. `vram` only where the engine can use that GPU."""

    ram: int | None = None
    vram: int | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What one pair of cache types takes, in bytes, at one context.

    `state_bytes`: recurrent states. `compute_bytes`: an estimate. `process_bytes`: the engine process itself, with
    the vocabulary. `draft_bytes`: all of a draft model, and of that `draft_kv_bytes` its cache. `fits` and
    `largest_context` (tokens; 0: none) are None where free memory is not known. `refusal` says why the model cannot
    have these types; then both are None too, and the sizes 0.
    """

    type_k: str
    type_v: str
    kv_bytes: int = 0
    kv_bytes_per_token: int = 0
    state_bytes: int = 0
    compute_bytes: int = 0
    process_bytes: int = 0
    draft_bytes: int = 0
    draft_kv_bytes: int = 0
    total_bytes: int = 0
    fits: bool | None = None
    largest_context: int | None = None
    refusal: KvchatError | None = None

    @property
    def types(self) -> str:
        return self.type_k if self.type_k == self.type_v else f"{self.type_k}/{self.type_v}"


def subject(name: str, files: Sequence[Path], size: int) -> Subject:
    """Read the headers of all files of a model. KvchatError (FormatError): it cannot be read, or does not chat."""
    headers = [read_header(file) for file in files]
    header = replace(headers[0], tensors=tuple(tensor for each in headers for tensor in each.tensors))
    shape = geometry(header)
    return Subject(name, header, shape, size, workload(header, shape))


def subject_at(path: Path) -> Subject:
    """The model of a file, with its other parts. KvchatError: see `subject`."""
    files = model_files(path)
    try:
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise KvchatError(f"{path} cannot be read: {error.strerror}", "check that all its files are there") from error
    return subject(model_name(path), files, size)


def with_adapters(model: Subject, paths: Sequence[str]) -> Subject:
    """The model with these LoRA adapters. KvchatError: one of them is none, or belongs to another model."""
    adapters = [read_adapter(Path(path)) for path in paths]
    for adapter in adapters:
        check_adapter(adapter, model.header)
    return replace(model, adapters=sum(adapter.bytes for adapter in adapters))


def room(free: int) -> int:
    """Bytes of the free memory that are left to the program itself and to others: an eighth, at most 1 GiB."""
    return min(free // _ROOM_SHARE, _MOST_ROOM)


class Sums:
    """The sums for one model, perhaps with a draft model, and this memory."""

    def __init__(
        self,
        model: Subject,
        memory: Memory,
        *,
        draft: Subject | None,
        flash: Flash,
        gpu_layers: int,
        batch: int = 0,
        kv_offload: bool = True,
        parallel: int = 0,
    ) -> None:
        """`gpu_layers`: as llama.cpp counts them, the output matrix as one; negative: all, where there is a GPU.
        `batch`: tokens of one computation, 0: as the engine chooses. `kv_offload`: caches lie where their layers do.
        `parallel`: see `turns_at_once`."""
        self.model, self.memory, self._draft, self._flash = model, memory, draft, flash
        self._asked_batch, self._kv_offload, self._parallel = batch, kv_offload, parallel
        self.all_layers = model.geometry.layers + 1
        asked = self.all_layers if gpu_layers < 0 else min(gpu_layers, self.all_layers)
        self.gpu_layers = asked if memory.vram is not None else 0
        self._batches = [self._batch_of(each) for each in (model, draft) if each is not None]

    @property
    def batch(self) -> int:
        """Tokens of one computation."""
        return self._batches[0]

    def need(self, type_k: str, type_v: str, context: int) -> Need:
        """What these types take at this context, or why the model cannot have them."""
        refusal = self.model.geometry.refusal(type_k, type_v, self._flash)
        if refusal is not None:
            return Need(type_k, type_v, refusal=refusal)
        found = self._need(type_k, type_v, context)
        return replace(found, fits=self.fits(found), largest_context=self._largest_context(type_k, type_v))

    def fits(self, need: Need, gpu_layers: int | None = None) -> bool | None:
        """Whether it fits, also with another number of layers on the GPU; None: not known."""
        on_gpu = self.gpu_layers if gpu_layers is None else gpu_layers
        stays = 0 if self._kv_offload else need.kv_bytes + need.state_bytes + need.draft_kv_bytes
        moved = need.total_bytes - need.compute_bytes - need.process_bytes - stays
        in_vram = moved * on_gpu // self.all_layers + (need.compute_bytes if on_gpu else 0)
        in_ram = need.total_bytes - in_vram if on_gpu < self.all_layers else stays
        answers = [_within(in_vram, self.memory.vram), _within(in_ram, self.memory.ram)]
        return False if False in answers else None if None in answers else True

    def _largest_context(self, type_k: str, type_v: str) -> int | None:
        """Tokens, at most as trained, in steps of llama.cpp's."""
        most = self.model.geometry.context_trained or _LARGEST_CONTEXT
        low, high = 0, -(-most // CELLS)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.fits(self._need(type_k, type_v, middle * CELLS))
            if fits is None:
                return None
            low, high = (middle, high) if fits else (low, middle - 1)
        return min(low * CELLS, most)

    def _need(self, type_k: str, type_v: str, context: int) -> Need:
        cache, compute = self._model_bytes(self.model, type_k, type_v, context)
        draft, draft_cache = self._draft_bytes(type_k, type_v, context)
        process = PROCESS + vocabulary_bytes(self.model.work)
        return Need(
            type_k,
            type_v,
            kv_bytes=cache.kv_bytes,
            kv_bytes_per_token=self.model.geometry.bytes_per_token(type_k, type_v),
            state_bytes=cache.state_bytes,
            compute_bytes=compute,
            process_bytes=process,
            draft_bytes=draft,
            draft_kv_bytes=draft_cache,
            total_bytes=self.model.size + self.model.adapters + cache.bytes + compute + process + draft,
        )

    def _draft_bytes(self, type_k: str, type_v: str, context: int) -> tuple[int, int]:
        """All of the draft model, and its cache alone; f16 where it cannot have these types."""
        if self._draft is None:
            return 0, 0
        shape = self._draft.geometry
        if shape.refusal(type_k, type_v, self._flash) is not None:
            type_k = type_v = "f16"
        cache, compute = self._model_bytes(self._draft, type_k, type_v, draft_context(shape, context))
        return self._draft.size + cache.bytes + compute + vocabulary_bytes(self._draft.work), cache.bytes

    def _model_bytes(self, model: Subject, type_k: str, type_v: str, context: int) -> tuple[Ledger, int]:
        shape = model.geometry
        flash = uses_flash(shape, type_v, self._flash, self.gpu_layers > 0)
        turns = self._parallel if model is self.model else 1
        count, rollback = sequences(shape, turns), rollback_rows(shape, turns)
        batch = self._batches[0 if model is self.model else 1]
        config = CacheConfig(context, type_k, type_v, flash, count, batch, rollback, OUTPUTS)
        on_cpu = 0 if self.gpu_layers else work_bytes(model.work, shape, config)
        return ledger(shape, config), compute_bytes(model.work, shape, config) + on_cpu

    def _batch_of(self, model: Subject) -> int:
        return self._asked_batch or chunk(model.header.parameters, self.gpu_layers > 0)


def _within(needed: int, free: int | None) -> bool | None:
    if not needed:
        return True
    return None if free is None else needed <= free - room(free)
