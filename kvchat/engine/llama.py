"""llama.cpp, as shipped in llama-cpp-python, behind typed objects.

With its neighbours, whose names begin with `llama_`, the only module that imports
llama_cpp or ctypes. Owns native handles and their lifetimes; must not decide anything: what to decode, keep or restore
is the business of its callers. Everything here runs on the engine thread.

Two calls of the library are never made, since a full disk or a short file makes them lie or abort the process:
`llama_state_seq_save_file` and `llama_state_seq_load_file`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from kvchat.backend.values import Hardware, Rope
from kvchat.engine.llama_abort import AbortCallback
from kvchat.engine.llama_params import NativeAdapters, place_context, place_model

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
FLASH = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}
LOG_ERROR = 4  # GGML_LOG_LEVEL_ERROR (ggml.h)

AS_USUAL, AS_IN_FILE = Hardware(), Rope()

PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY (llama.h)

VOCAB_KINDS = {0: "empty", 1: "SPM", 2: "BPE", 3: "WordPiece", 4: "Unigram", 5: "RWKV", 6: "PLaMo-2"}  # llama.h

DECODED, NO_SLOT, ABORTED = 0, 1, 2  # return values of llama_decode (llama.h)

UNLOCKED = "failed to mlock"  # llama-mmap.cpp; llama.cpp tells it nowhere but in its log

_log_callback: Any = None
_refusals: list[str] = []  # to lock memory


class LogSink(Protocol):
    """Takes a piece of llama.cpp's log, with its line end if it has one."""

    def __call__(self, text: str, *, error: bool) -> None: ...


def start(write_log: LogSink) -> None:
    """Initialise the backends; all log lines of llama.cpp and ggml go to `write_log`."""
    global _log_callback  # noqa: PLW0603 (the library keeps the pointer for the life of the process)

    @lib.llama_log_callback  # type: ignore[untyped-decorator]
    def callback(level: int, text: bytes, _user: Any) -> None:
        said = text.decode("utf-8", "replace")
        if UNLOCKED in said:
            _refusals.append(said.strip())
        write_log(said, error=level == LOG_ERROR)

    _log_callback = callback
    lib.llama_log_set(callback, ctypes.c_void_p(0))
    lib.llama_backend_init()


@functools.cache  # the whole README of the package is parsed for it
def package_version() -> str:
    """Version of llama-cpp-python: state of one version is not read by another."""
    return importlib.metadata.version("llama-cpp-python")


def lock_was_refused() -> bool:
    """Whether the system did not let llama.cpp lock memory, in this process, up to now."""
    return bool(_refusals)


def has_gpu() -> bool:
    """Whether this build can put layers on a GPU and sees one."""
    return bool(lib.llama_supports_gpu_offload())


def give_memory_back() -> None:
    """What was freed goes back to the system, where the C library keeps it (glibc; `man malloc_trim`)."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


class NativeModel:
    """A loaded model and its vocabulary. Positions, adapters and the placement of what is computed hold for all of its
    contexts."""

    def __init__(
        self,
        path: str,
        *,
        gpu_layers: int,
        extra_buffers: bool,
        progress: Callable[[float], bool],
        hardware: Hardware = AS_USUAL,
        rope: Rope = AS_IN_FILE,
        vocabulary_only: bool = False,
    ) -> None:
        """`progress` gets 0..1 and returns False to stop the load. `vocabulary_only`: no weights, and no contexts.
        Raises ValueError when llama.cpp refuses."""
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.use_extra_bufts = extra_buffers
        params.vocab_only = vocabulary_only
        place_model(params, hardware)
        self.hardware, self.rope, self.adapters = hardware, rope, NativeAdapters()

        @lib.llama_progress_callback  # type: ignore[untyped-decorator]
        def report(fraction: float, _user: Any) -> bool:
            return progress(fraction)

        params.progress_callback = report
        self.handle = lib.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            raise ValueError(path)
        self._vocab = lib.llama_model_get_vocab(self.handle)
        self.vocab_size: int = lib.llama_vocab_n_tokens(self._vocab)
        self.bytes: int = lib.llama_model_size(self.handle)
        self.parameters: int = lib.llama_model_n_params(self.handle)
        self.layers: int = lib.llama_model_n_layer(self.handle)
        self.window: int = lib.llama_model_n_swa(self.handle)
        self.bos: int | None = _token(lib.llama_vocab_bos(self._vocab))
        self.eos: int | None = _token(lib.llama_vocab_eos(self._vocab))
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(self._vocab))
        self.adds_eos = bool(lib.llama_vocab_get_add_eos(self._vocab))
        self.vocab_kind = VOCAB_KINDS.get(lib.llama_vocab_type(self._vocab), "of another kind")
        self._piece_buffer = ctypes.create_string_buffer(512)

    def close(self) -> None:
        lib.llama_model_free(self.handle)

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`, without BOS; `special`: control tokens written in the text become that token."""
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 16
        ids = (lib.llama_token * room)()
        count = lib.llama_tokenize(self._vocab, raw, len(raw), ids, room, False, special)
        if count < 0:
            room = -count
            ids = (lib.llama_token * room)()
            count = lib.llama_tokenize(self._vocab, raw, len(raw), ids, room, False, special)
        return list(ids[: max(count, 0)])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of one token; control tokens are empty unless `special`."""
        buffer = self._piece_buffer
        size = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return bytes(buffer.raw[:size])

    def ends_generation(self, token: int) -> bool:
        return bool(lib.llama_vocab_is_eog(self._vocab, token))

    def token_text(self, token: int) -> bytes:
        """The token as the vocabulary spells it, for telling vocabularies apart."""
        return bytes(lib.llama_vocab_get_text(self._vocab, token) or b"")

    def token_texts(self) -> Iterator[bytes]:
        """Every token in order, as `token_text`."""
        text, vocab = lib.llama_vocab_get_text, self._vocab
        return (text(vocab, token) or b"" for token in range(self.vocab_size))

    def chat_template(self) -> str | None:
        raw = lib.llama_model_chat_template(self.handle, None)
        return raw.decode("utf-8", "replace") if raw else None


def _token(value: int) -> int | None:
    return None if value < 0 else int(value)


@dataclass(frozen=True, slots=True)
class ContextParams:
    """What a context is built with; types and flash attention by name. `rollback`: recurrent states of so many tokens
    before the last are kept too, where the architecture can. `outputs`: of how many tokens of a batch there are logits.
    """

    cells: int
    batch: int
    sequences: int
    type_k: str
    type_v: str
    flash: str
    threads: int
    rollback: int
    outputs: int


class Run(NamedTuple):
    """Consecutive tokens of one sequence in a batch; logits of the last `output` of them are wanted."""

    tokens: Sequence[int]
    position: int
    sequence: int
    output: int


class NativeContext:
    """A context with one unified cache. Positions of a batch follow on from those in the sequence."""

    def __init__(self, model: NativeModel, params: ContextParams, interrupt: Callable[[], bool]) -> None:
        """`interrupt`: see AbortCallback. ValueError when llama.cpp refuses."""
        native = lib.llama_context_default_params()
        native.n_ctx = params.cells
        native.n_batch = params.batch
        native.n_seq_max = params.sequences
        native.n_rs_seq = params.rollback
        native.n_outputs_max = params.outputs
        native.kv_unified = True
        native.swa_full = False
        native.type_k = GGML_TYPES[params.type_k]
        native.type_v = GGML_TYPES[params.type_v]
        native.flash_attn_type = FLASH[params.flash]
        native.n_threads = params.threads
        place_context(native, model.hardware, model.rope)
        self._threads_batch = model.hardware.threads_batch
        self.handle = lib.llama_init_from_model(model.handle, native)
        if not self.handle:
            raise ValueError("llama.cpp could not create the context")
        model.adapters.apply(self.handle)

        self.abort = AbortCallback(self.handle, interrupt)
        self._memory = lib.llama_get_memory(self.handle)
        self._vocab_size = model.vocab_size
        self.last_output = 0  # index in the last batch of the last token of its first run
        self.cells: int = lib.llama_n_ctx(self.handle)
        self.sequences = params.sequences
        self.rollback: int = lib.llama_n_rs_seq(self.handle)
        self._batch = lib.llama_batch_init(params.batch, 0, 1)
        shape = (params.batch,)
        self._token = np.ctypeslib.as_array(self._batch.token, shape)
        self._pos = np.ctypeslib.as_array(self._batch.pos, shape)
        self._logits = np.ctypeslib.as_array(self._batch.logits, shape)
        np.ctypeslib.as_array(self._batch.n_seq_id, shape)[:] = 1

    def close(self) -> None:
        lib.llama_batch_free(self._batch)
        lib.llama_free(self.handle)

    def decode(self, tokens: Sequence[int], position: int, sequence: int, *, output: int) -> int:
        """One llama_decode of consecutive tokens of one sequence. Returns its code."""
        return self.decode_runs([Run(tokens, position, sequence, output)])

    def decode_runs(self, runs: Sequence[Run]) -> int:
        """One llama_decode of several sequences, whose tokens lie in the batch one run after the other. Returns its
        code."""
        start = 0
        for run in runs:
            end = start + len(run.tokens)
            self._token[start:end] = run.tokens
            self._pos[start:end] = np.arange(run.position, run.position + len(run.tokens))
            self._logits[start:end] = 0
            self._logits[end - run.output : end] = 1
            for i in range(start, end):
                self._batch.seq_id[i][0] = run.sequence
            start = end
        self._batch.n_tokens = start
        self.last_output = len(runs[0].tokens) - 1
        return int(lib.llama_decode(self.handle, self._batch))

    def set_threads(self, threads: int) -> None:
        lib.llama_set_n_threads(self.handle, threads, self._threads_batch or threads)

    def synchronize(self) -> None:
        lib.llama_synchronize(self.handle)

    def logits(self, index: int | None = None) -> npt.NDArray[np.float32]:
        """Logits of an output, by its index in the last batch (None: the last one), shape (vocabulary,), float32: a
        copy."""
        values = lib.llama_get_logits_ith(self.handle, self.last_output if index is None else index)
        return np.ctypeslib.as_array(values, (self._vocab_size,)).copy()

    def logit(self, index: int, token: int) -> float:
        """The logit of one token in an output of the last batch."""
        return float(lib.llama_get_logits_ith(self.handle, index)[token])

    def all_logits(self, count: int) -> npt.NDArray[np.float32]:
        """Logits of all `count` outputs of the last batch, shape (count, vocabulary), float32: a view that holds until
        the next decode."""
        values = lib.llama_get_logits(self.handle)
        return np.ctypeslib.as_array(values, (count, self._vocab_size))

    def clear(self) -> None:
        lib.llama_memory_clear(self._memory, False)

    def remove(self, sequence: int, start: int, end: int) -> bool:
        """Forget positions [start, end) of a sequence; -1 is open. True is no proof (see Memory.truncate)."""
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, start, end))

    def share(self, source: int, target: int, start: int, end: int) -> None:
        """Let `target` also own the cells of `source` at positions [start, end): metadata only, no copy."""
        lib.llama_memory_seq_cp(self._memory, source, target, start, end)

    def move(self, sequence: int, start: int, end: int, delta: int) -> None:
        """Give positions [start, end) of a sequence others, larger by `delta`; the keys are turned before the next
        decode. Only where `can_move`: else the process ends."""
        lib.llama_memory_seq_add(self._memory, sequence, start, end, delta)

    @property
    def can_move(self) -> bool:
        return bool(lib.llama_memory_can_shift(self._memory))

    def first_position(self, sequence: int) -> int:
        return int(lib.llama_memory_seq_pos_min(self._memory, sequence))

    def last_position(self, sequence: int) -> int:
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence))

    def state(self, sequence: int, *, partial: bool = False) -> memoryview:
        """The sequence's state blob, bytes; `partial`: only what `remove` cannot bring back, a window and a recurrent
        state. Raises ValueError when llama.cpp writes another size than it announced."""
        flags = PARTIAL if partial else 0
        size = lib.llama_state_seq_get_size_ext(self.handle, sequence, flags)
        buffer = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data_ext(self.handle, buffer, size, sequence, flags) != size:
            raise ValueError("llama.cpp wrote less state than it announced")
        return memoryview(buffer).cast("B")

    def set_state(self, blob: memoryview, sequence: int, *, partial: bool = False) -> bool:
        """Replace the sequence, or what is `partial` of it, by a blob. False: refused, and what was to be replaced is
        empty or half filled."""
        source = (ctypes.c_uint8 * blob.nbytes).from_buffer(blob)
        flags = PARTIAL if partial else 0
        done = lib.llama_state_seq_set_data_ext(self.handle, source, blob.nbytes, sequence, flags)
        return bool(done == blob.nbytes)
