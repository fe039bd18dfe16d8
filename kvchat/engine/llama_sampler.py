"""llama.cpp's native samplers. Owns the chain; must not choose its parts.

One of the modules that import llama_cpp or ctypes, see `llama`.
"""

from __future__ import annotations

from typing import Any

import llama_cpp.llama_cpp as lib

from kvchat.engine.llama import NativeContext

RANDOM_SEED = 0xFFFFFFFF  # LLAMA_DEFAULT_SEED: llama.cpp draws one itself


class NativeSampler:
    """A native sampler chain; parts are added in the order in which they act."""

    def __init__(self) -> None:
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())

    def close(self) -> None:
        lib.llama_sampler_free(self._chain)

    def add_penalties(self, vocab_size: int, last_n: int, repeat: float) -> None:
        self._add(lib.llama_sampler_init_penalties(vocab_size, last_n, repeat, 0.0, 0.0))

    def add_top_k(self, k: int) -> None:
        self._add(lib.llama_sampler_init_top_k(k))

    def add_top_p(self, p: float) -> None:
        self._add(lib.llama_sampler_init_top_p(p, 1))

    def add_min_p(self, p: float) -> None:
        self._add(lib.llama_sampler_init_min_p(p, 1))

    def add_temperature(self, temperature: float) -> None:
        self._add(lib.llama_sampler_init_temp(temperature))

    def add_draw(self, seed: int) -> None:
        self._add(lib.llama_sampler_init_dist(seed))

    def add_greedy(self) -> None:
        self._add(lib.llama_sampler_init_greedy())

    def accept(self, token: int) -> None:
        lib.llama_sampler_accept(self._chain, token)

    def sample(self, context: NativeContext, index: int) -> int:
        """Draw from an output of the context, by its index in the last batch, and remember the token for the
        penalties."""
        return int(lib.llama_sampler_sample(self._chain, context.handle, index))

    def _add(self, part: Any) -> None:
        lib.llama_sampler_chain_add(self._chain, part)
