"""The model: what its file says, its vocabulary and its chat template, ready to use.

Owns the native model; must not touch contexts or messages' history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from kvchat.backend.values import EngineConfig, ModelInfo
from kvchat.engine.adapters import Adapters
from kvchat.engine.layers import layers_on_gpu
from kvchat.engine.llama import NativeModel
from kvchat.engine.past_thoughts import PastThoughts
from kvchat.engine.placement import check_placement
from kvchat.engine.rope import RopeChoice
from kvchat.engine.system_part import SystemPart
from kvchat.engine.template import choose_template
from kvchat.errors import KvchatError
from kvchat.formats.gguf import fingerprint, model_name, read_header
from kvchat.kv.compute import workload
from kvchat.kv.geometry import geometry
from kvchat.kv.needs import Memory, Subject
from kvchat.machine import free_memory, free_vram

VOCABULARY_STRIDE = 16


class Model:
    """A loaded model with its header, geometry and template."""

    def __init__(self, config: EngineConfig, progress: Callable[[float], bool]) -> None:
        """Read the header, then load. Raises KvchatError (FormatError for a damaged file)."""
        path = Path(config.model_path)
        # Before the weights take theirs.
        self.free_before = Memory(free_memory(), free_vram() if config.gpu_layers else None)
        self.header = read_header(path)
        self.geometry = geometry(self.header)
        self.gpu_layers = layers_on_gpu(config, self.free_before)
        self.fingerprint = fingerprint(path, self.header)
        check_placement(config.hardware)
        self.adapters = Adapters(config.lora, self.header)
        self.rope = RopeChoice(config.rope, self.header)
        try:
            self.native = NativeModel(
                str(path),
                gpu_layers=self.gpu_layers,
                extra_buffers=config.extra_buffers,
                progress=progress,
                hardware=config.hardware,
                rope=config.rope,
            )
        except ValueError:
            raise KvchatError(
                f"llama.cpp cannot load {path.name} (architecture {self.header.architecture!r})",
                "a newer llama-cpp-python may know it; the log (see kvchat paths) has llama.cpp's own words",
            ) from None
        try:
            self.adapters.load(self.native)
        except KvchatError:
            self.native.close()
            raise
        source = self.native.chat_template()
        self.template, self.template_name, self.template_note = choose_template(
            source, bos=self.token_text(self.native.bos), eos=self.token_text(self.native.eos)
        )
        self.system_part = SystemPart(self.template, self)
        self.path = path
        self.past_thoughts = PastThoughts(self.template, lambda token: self.native.piece(token, special=True))

    @property
    def subject(self) -> Subject:
        """The model as plans are made for it."""
        work = workload(self.header, self.geometry)
        size, adapters = self.native.bytes, self.adapters.bytes
        return Subject(self.path.stem, self.header, self.geometry, size, work, adapters)

    @property
    def turns_whole(self) -> bool:
        """Whether RoPE turns all elements of a head, and the head is one whose quantized keys llama.cpp can turn."""
        head, header = self.geometry.head_k, self.header
        return head in (64, 128) and header.get(f"{header.architecture}.rope.dimension_count") in (None, head)

    @property
    def bos(self) -> int | None:
        return self.native.bos

    @property
    def add_bos(self) -> bool:
        return self.native.adds_bos

    @property
    def bos_text(self) -> str:
        return self.token_text(self.native.bos)

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`, without BOS; `special`: texts of control tokens become these tokens."""
        return self.native.tokenize(text, special=special)

    def token_text(self, token: int | None) -> str:
        """The text that stands for a control token in templates, "" if there is no such token."""
        return "" if token is None else self.native.piece(token, special=True).decode("utf-8", "replace")

    def info(self, config: EngineConfig) -> ModelInfo:
        return ModelInfo(
            name=model_name(self.path),
            path=str(self.path),
            architecture=self.header.architecture,
            attention=self.geometry.attention,
            fingerprint=self.fingerprint,
            text_key=self._text_key(),
            template=self.template_name,
            context_trained=self.geometry.context_trained,
            kv_bytes_per_token=self.geometry.bytes_per_token(config.type_k, config.type_v),
            adapters=self.adapters.labels,
        )

    def _text_key(self) -> str:
        """Names vocabulary and template. Other weights or another quantization of the same family share it, so that a
        chat keeps its ids. The vocabulary is sampled: hashing all of a large one takes a quarter of a second."""
        native = self.native
        digest = hashlib.blake2b(digest_size=12)
        for part in (native.vocab_size, native.bos, native.eos, native.adds_bos, self.header.get("tokenizer.ggml.pre")):
            digest.update(f"{part}|".encode())
        for token in range(0, native.vocab_size, VOCABULARY_STRIDE):
            digest.update(native.token_text(token) + b"\0")
        digest.update((native.chat_template() or self.template_name).encode())
        return digest.hexdigest()
