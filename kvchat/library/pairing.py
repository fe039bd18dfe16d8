"""Which models could draft for which, by what their files say of themselves. Owns that choice; reads headers only.

A draft needs the vocabulary of the model that it drafts for, and must be far cheaper. Texts of tokens are not compared
here: that is done, token by token, when both are loaded. Must not load a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.formats.gguf import Array, GgufHeader, read_header
from kvchat.library.find import ModelFile, check

MOST_DIFFERENT = 128  # tokens by which the sizes of two vocabularies may differ, as in llama.cpp (speculative.cpp)
SHARE = 1 / 4  # a draft model has at most this part of the bytes
QUANTIZED_SHARE = 3 / 4  # a lower quantization of the same model

_TYPES = {"gpt2": "BPE", "llama": "SPM", "bert": "WordPiece", "t5": "Unigram", "rwkv": "RWKV"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A model that could draft, of so many `bytes`. `why` is for a person: "same vocabulary, 9% of the size"."""

    model: ModelFile
    why: str
    bytes: int


def proposals(model: ModelFile, candidates: Iterable[ModelFile]) -> tuple[Proposal, ...]:
    """Those of `candidates` that are worth a try as drafts for `model`: smaller models first, the smallest in front,
    then lower quantizations of the same model. Files that are not whole models are passed over; a header takes up to
    0.15 s where the vocabulary is large. KvchatError when `model` itself cannot be read."""
    header = check(model)
    found = [
        proposal
        for candidate in candidates
        if candidate.path != model.path and candidate.size <= model.size * QUANTIZED_SHARE
        for proposal in _proposal(model, header, candidate)
    ]
    return tuple(each for _, each in sorted(found, key=lambda pair: (pair[0], pair[1].bytes, str(pair[1].model.path))))


def misfit(model: Path, candidate: Path) -> str:
    """Why `candidate` cannot draft for `model`, as far as their headers tell, in one sentence; "": they tell nothing.
    KvchatError when one of the files cannot be read."""
    found = difference(read_header(model), read_header(candidate))
    return f"the vocabularies differ: {found}" if found is not None else ""


def _proposal(model: ModelFile, header: GgufHeader, candidate: ModelFile) -> Iterator[tuple[bool, Proposal]]:
    """None or one, with whether it is the same model."""
    try:
        other = check(candidate)
    except KvchatError:
        return  # the list of models says what is wrong with it
    share = candidate.size / model.size
    if difference(header, other) is not None:
        return
    if _is_same_model(header, other):
        if other.quantization != header.quantization:
            why = f"the same model in {other.quantization}, {_percent(share)} of the size"
            yield True, Proposal(candidate, why, candidate.size)
    elif share <= SHARE:
        yield False, Proposal(candidate, f"same vocabulary, {_percent(share)} of the size", candidate.size)


def difference(model: GgufHeader, draft: GgufHeader) -> str | None:
    """The first difference of the vocabularies that the headers show, in words that follow "the vocabularies differ: ";
    None: they show none. What a file does not say is taken for equal."""
    ours, theirs = model.text("tokenizer.ggml.model"), draft.text("tokenizer.ggml.model")
    if ours != theirs:
        return f"it is {_TYPES.get(theirs or '', theirs or 'unknown')}, not {_TYPES.get(ours or '', ours or 'unknown')}"
    ours, theirs = model.text("tokenizer.ggml.pre"), draft.text("tokenizer.ggml.pre")
    if None not in (ours, theirs) and ours != theirs:
        return f"it cuts text by the rules of {theirs}, not {ours}"
    sizes = _tokens(model), _tokens(draft)
    if None not in sizes and abs((sizes[0] or 0) - (sizes[1] or 0)) > MOST_DIFFERENT:
        return f"it has {sizes[1]:,} tokens, not {sizes[0]:,}"
    return _special_difference(model, draft)


def _special_difference(model: GgufHeader, draft: GgufHeader) -> str | None:
    """BOS and EOS matter where they are added to a prompt."""
    for name in ("bos", "eos"):
        added = [header.get(f"tokenizer.ggml.add_{name}_token") for header in (model, draft)]
        if None not in added and added[0] != added[1]:
            return f"{name.upper()} is {'added' if added[1] else 'not added'} to its prompts"
        ids = [header.get(f"tokenizer.ggml.{name}_token_id") for header in (model, draft)]
        if True in added and None not in ids and ids[0] != ids[1]:
            return f"its {name.upper()} is token {ids[1]}, not {ids[0]}"
    return None


def _tokens(header: GgufHeader) -> int | None:
    tokens = header.get("tokenizer.ggml.tokens")
    return tokens.length if isinstance(tokens, Array) else None


def _is_same_model(model: GgufHeader, other: GgufHeader) -> bool:
    """The same tensors in other types. Fine-tunings of one model are the same in this sense, and draft as well."""
    return model.architecture == other.architecture and _shapes(model) == _shapes(other)


def _shapes(header: GgufHeader) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in header.tensors}


def _percent(share: float) -> str:
    return f"{max(1, round(100 * share))}%"
