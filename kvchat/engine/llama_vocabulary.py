"""What llama.cpp makes of the vocabulary in a model file. Owns the names of special tokens; loads no model.

One of the modules that import llama_cpp or ctypes, see `llama`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as lib

from kvchat.backend.inspection import SpecialToken, Vocabulary
from kvchat.engine.llama import NativeModel

_SPECIAL: tuple[tuple[str, Callable[[Any], int]], ...] = (
    ("BOS", lib.llama_vocab_bos),
    ("EOS", lib.llama_vocab_eos),
    ("end of turn", lib.llama_vocab_eot),
    ("separator", lib.llama_vocab_sep),
    ("newline", lib.llama_vocab_nl),
    ("padding", lib.llama_vocab_pad),
    ("mask", lib.llama_vocab_mask),
    ("fill-in prefix", lib.llama_vocab_fim_pre),
    ("fill-in suffix", lib.llama_vocab_fim_suf),
    ("fill-in middle", lib.llama_vocab_fim_mid),
)


def vocabulary(model: NativeModel) -> Vocabulary:
    """All of it that a person may want to know. Also of a model that was loaded without weights."""
    handle = lib.llama_model_get_vocab(model.handle)
    special = [(role, find(handle)) for role, find in _SPECIAL]
    ends = [token for token in range(model.vocab_size) if model.ends_generation(token)]
    return Vocabulary(
        kind=model.vocab_kind,
        size=model.vocab_size,
        special=tuple(SpecialToken(role, token, _text(model, token)) for role, token in special if token >= 0),
        ends=tuple((token, _text(model, token)) for token in ends),
        adds_bos=model.adds_bos,
        adds_eos=model.adds_eos,
    )


def _text(model: NativeModel, token: int) -> str:
    return model.piece(token, special=True).decode("utf-8", "replace")
