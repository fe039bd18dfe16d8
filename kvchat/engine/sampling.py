"""Sampling values -> a native sampler chain. Owns the order of its parts; must not touch a context's cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvchat.backend.values import Sampling
from kvchat.engine.llama import NativeContext
from kvchat.engine.llama_sampler import RANDOM_SEED, NativeSampler
from kvchat.errors import KvchatError


class NoNumberError(KvchatError):
    """Nothing can be drawn from these logits."""

    def __init__(self) -> None:
        super().__init__(
            "what the model computed is no number (NaN): an answer cannot be drawn from it",
            "its file may be damaged: get it again. If others fail, too: -fa off, -ctk f16 -ctv f16, or -ngl 0",
        )


class Sampler:
    """Chooses the next token: penalties, top-k, top-p, min-p, temperature, draw (llama.cpp's order); greedy at 0."""

    def __init__(self, sampling: Sampling, vocab_size: int, past: Sequence[int]) -> None:
        """`past`: ids of the prompt; its last `repeat_last_n` count for the repetition penalty."""
        chain = NativeSampler()
        if sampling.repeat_penalty != 1.0:
            chain.add_penalties(vocab_size, sampling.repeat_last_n, sampling.repeat_penalty)
        if sampling.temperature <= 0:
            chain.add_greedy()
        else:
            chain.add_top_k(sampling.top_k)
            chain.add_top_p(sampling.top_p)
            chain.add_min_p(sampling.min_p)
            chain.add_temperature(sampling.temperature)
            chain.add_draw(RANDOM_SEED if sampling.seed is None else sampling.seed & RANDOM_SEED)
        if sampling.repeat_penalty != 1.0:
            for token in past[-sampling.repeat_last_n :]:
                chain.accept(token)
        self._chain = chain

    def sample(self, context: NativeContext, index: int = -1) -> int:
        """The next token from the logits of one output, by its index in the last batch (-1: the last one). One call per
        token of the text, in its order: every call moves the random numbers and the penalties on. Raises
        NoNumberError."""
        index = context.last_output if index < 0 else index
        token = self._chain.sample(context, index)
        if not math.isfinite(context.logit(index, token)):
            raise NoNumberError
        return token

    def close(self) -> None:
        self._chain.close()
