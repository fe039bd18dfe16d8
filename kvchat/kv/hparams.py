"""A model's hyper-parameters as llama.cpp understands them. Owns keys, defaults and per-layer arrays; no arithmetic.

Source: llama.cpp `llama_model_base::load_hparams`, `load_arch_hparams` of each model, `llama-hparams.cpp`.
"""

from __future__ import annotations

from kvchat.errors import FormatError
from kvchat.formats.gguf import Array, GgufHeader
from kvchat.kv import architectures as arch

_MOST_LAYERS = 512
_LARGEST = 1 << 24
_GEMMA3N_LAYERS_WITH_KV = 20


class Hparams:
    """Reads a header's values, checked. Every method raises FormatError for values that llama.cpp would not accept."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self.architecture = header.architecture
        self.blocks = self.count("block_count")
        self._loops = self.count("num_loops", 1) if self.architecture == "nanbeige" else 1
        self._router = self.architecture == "graniteswitch"
        drafting = self.count("nextn_predict_layers", 0)
        if not 0 < self.blocks * self._loops <= _MOST_LAYERS or drafting > self.blocks:
            raise FormatError(f"damaged header: a model of {self.blocks} blocks, {drafting} of them for drafting")
        # Layers that may have a cache, and of these the ones that the model itself uses.
        self.all_layers = self.blocks * self._loops + self._router
        self.layers = self.blocks * self._loops - drafting
        self.mla = bool(self.count("attention.key_length_mla", 0) and self.count("attention.value_length_mla", 0))
        self._heads = self._per_layer("attention.head_count", [0] * self.blocks)
        self._kv_heads = self._per_layer("attention.head_count_kv", self._heads)
        self._widths = self._per_layer("feed_forward_length", [0] * self.blocks)
        self._full, self._swa = self._sizes()
        self._window, self._windowed = self._windows()
        self._recurrent = self._recurrent_layers()

    def count(self, key: str, default: int | None = None) -> int:
        """The non-negative whole number under the key (the architecture's name is put before it)."""
        value = self._header.get(f"{self.architecture}.{key}", default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            what = "is missing" if value is None else f"is {str(value)[:40]!r}"
            raise FormatError(f"damaged header: {self.architecture}.{key} {what}")
        return value

    def heads(self, layer: int) -> int:
        return 1 if self._is_router(layer) else self._heads[layer % self.blocks]

    def kv_heads(self, layer: int) -> int:
        return 1 if self._is_router(layer) else self._kv_heads[layer % self.blocks]

    def head_sizes(self, layer: int) -> tuple[int, int]:
        """Elements of one K head and of one V head."""
        return self._swa if self.is_windowed(layer) else self._full

    def window(self) -> int:
        """Tokens that the window layers look back; 0: no layer has a window."""
        return self._window

    @property
    def chunked(self) -> bool:
        """Whether window layers look back to the last multiple of the window."""
        rule = arch.WINDOWED.get(self.architecture)
        return self._window > 0 and rule is not None and rule.chunked

    def is_windowed(self, layer: int) -> bool:
        return layer < self.layers and self._windowed[layer % self.blocks]

    def is_recurrent(self, layer: int) -> bool:
        if self.architecture in arch.RECURRENT or self.architecture == "falcon-h1":
            return True
        return layer < self.layers and self._recurrent[layer % self.blocks]

    def keeps_kv(self, layer: int) -> bool:
        """Whether the layer has K and V in a cache."""
        name = self.architecture
        if name in arch.RECURRENT:
            return False
        if name.startswith("nemotron_h"):
            return not self.is_recurrent(layer) and self._widths[layer] == 0
        if name in arch.HYBRID and name != "falcon-h1":
            draft = name in arch.ATTENTION_INTERVAL and layer >= self.layers
            return not self.is_recurrent(layer) and not draft
        if name == "gemma3n":
            return layer < _GEMMA3N_LAYERS_WITH_KV
        if name == "gemma4":
            return layer < self.all_layers - self.count("attention.shared_kv_layers", 0)
        return self._router or layer < self.layers

    @property
    def plane_positions(self) -> bool:
        """Whether cells have two-dimensional positions (M-RoPE)."""
        if self.architecture in arch.PLANE_POSITIONS:
            return True
        sections = self._header.get(f"{self.architecture}.rope.dimension_sections")
        values = sections.values if isinstance(sections, Array) and sections.values else (0, 0)
        return self.architecture in arch.PLANE_POSITIONS_BY_SECTIONS and len(values) > 1 and min(values[:2]) > 0

    def state_elements(self) -> int:
        """Elements of the recurrent state of one layer and sequence: rolling part (n_embd_r) and state (n_embd_s)."""
        width = self.count("embedding_length")
        wkv, short = self.count("wkv.head_size", 0), self.count("shortconv.l_cache", 0)
        if wkv:
            return self.count("token_shift_count", 2) * width + width * wkv
        state, inner = self.count("ssm.state_size", 0), self.count("ssm.inner_size", 0)
        if short:
            return width * (short - 1) + state * inner
        kernel = self.count("ssm.conv_kernel", 0)
        kda, heads = self.count("kda.head_dim", 0), self._heads[0]
        if kda:
            return 3 * ((kernel or 4) - 1) * heads * kda + kda * kda * heads
        if self.architecture == "minimax-01":
            return self._full[0] ** 2 * heads
        rolling = max(kernel - 1, 0) * (inner + 2 * self.count("ssm.group_count", 0) * state)
        return rolling + state * inner

    def _is_router(self, layer: int) -> bool:
        return self._router and layer == self.all_layers - 1

    def _per_layer(self, key: str, default: list[int]) -> list[int]:
        value = self._header.get(f"{self.architecture}.{key}")
        if value is None:
            return default
        if not isinstance(value, Array):
            return [self.count(key)] * self.blocks
        if value.values is None or len(value.values) != self.blocks:
            raise FormatError(f"damaged header: {self.architecture}.{key} has {value.length} values")
        if not all(isinstance(number, int) and 0 <= number <= _LARGEST for number in value.values):
            raise FormatError(f"damaged header: {self.architecture}.{key} has absurd values")
        return [int(number) for number in value.values]

    def _sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Head sizes (K, V) of full and of window layers."""
        heads = self._heads[0]
        key = value = self.count("embedding_length") // heads if heads else 0
        if heads or self.architecture == "plamo2":
            key = self.count("attention.key_length", key)
            value = self.count("attention.value_length", value)
        if self.architecture in ("kimi-k3", "glm5-next"):
            value = self.count("attention.kv_lora_rank")
        window = self.count("attention.key_length_swa", key), self.count("attention.value_length_swa", value)
        return (key, value), window

    def _windows(self) -> tuple[int, list[bool]]:
        none = 0, [False] * self.blocks
        name, key = self.architecture, "attention.sliding_window"
        if name in arch.WINDOWED_WHOLE:
            window = self.count(key, 0)
            return (window, [heads > 0 for heads in self._kv_heads]) if window else none
        rule = arch.WINDOWED.get(name)
        if rule is None or (rule.layers and rule.layers != self.layers):
            return none
        window = self.count(key, rule.default if rule.default or rule.optional else None)
        if not window and rule.optional:
            return none
        if not window:
            raise FormatError(f"damaged header: {name}.{key} is 0")
        return rule.fixed or window, self._window_pattern(rule)

    def _window_pattern(self, rule: arch.WindowRule) -> list[bool]:
        key = "attention.sliding_window_pattern"
        listed = self._header.get(f"{self.architecture}.{key}")
        if isinstance(listed, Array):
            flags = [bool(flag) for flag in listed.values or ()]
            return (flags + [False] * self.blocks)[: self.blocks]
        period = self.count(key, rule.period or None)
        if period == 0:
            return [True] * self.blocks
        full = 0 if rule.full_first else period - 1
        return [layer % period != full for layer in range(self.blocks)]

    def _recurrent_layers(self) -> list[bool]:
        name = self.architecture
        if name not in arch.HYBRID:
            return [False] * self.blocks
        if name in arch.ATTENTION_INTERVAL:
            listed = self._header.get(f"{name}.attention.recurrent_layers")
            if isinstance(listed, Array) and listed.values is not None and len(listed.values) == self.blocks:
                return [bool(flag) for flag in listed.values]
            interval = self.count("full_attention_interval", arch.ATTENTION_INTERVAL[name]) or 1
            return [(layer + 1) % interval != 0 for layer in range(self.blocks)]
        if name == "deepseek4":
            return [False] * self.blocks
        if name.startswith("nemotron_h"):
            return [heads == 0 and width == 0 for heads, width in zip(self._kv_heads, self._widths, strict=True)]
        return [heads == 0 for heads in self._kv_heads]
