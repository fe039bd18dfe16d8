"""Whether a draft model fits a model: their vocabularies as llama.cpp loaded them. Owns that check; must not load or
decode anything.

The rules are llama.cpp's own (common/speculative.cpp): same type, BOS and EOS alike where they are added, sizes that
differ by at most 128, same texts from token 5 on. Whatever a draft proposes the model verifies, so a draft that passes
can be useless but never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from kvchat.errors import KvchatError

MOST_DIFFERENT = 128  # tokens
FIRST_COMPARED = 5  # the texts of the tokens before it are names for the same thing in different families


class Vocabulary(Protocol):
    """What is compared; see NativeModel."""

    @property
    def vocab_kind(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def adds_bos(self) -> bool: ...
    @property
    def adds_eos(self) -> bool: ...

    def token_texts(self) -> Iterator[bytes]: ...


def check_pair(name: str, draft: Vocabulary, model: Vocabulary) -> None:
    """Raises KvchatError with the first difference when `draft`, called `name`, cannot draft for `model`."""
    found = difference(draft, model)
    if found is not None:
        raise KvchatError(
            f"{name} cannot draft for this model, the vocabularies differ: {found}",
            "a draft is a smaller model of the same family; `kvchat models show` proposes those that are here",
        )


def difference(draft: Vocabulary, model: Vocabulary) -> str | None:
    """The first difference that matters, None when there is none."""
    if draft.vocab_kind != model.vocab_kind:
        return f"it is {draft.vocab_kind}, not {model.vocab_kind}"
    for name, added, ids in (
        ("BOS", (draft.adds_bos, model.adds_bos), (draft.bos, model.bos)),
        ("EOS", (draft.adds_eos, model.adds_eos), (draft.eos, model.eos)),
    ):
        if added[0] != added[1]:
            return f"{name} is {'added' if added[0] else 'not added'} to its prompts"
        if added[0] and ids[0] != ids[1]:
            return f"its {name} is token {ids[0]}, not {ids[1]}"
    if abs(draft.vocab_size - model.vocab_size) > MOST_DIFFERENT:
        return f"it has {draft.vocab_size:,} tokens, not {model.vocab_size:,}"
    pairs = zip(draft.token_texts(), model.token_texts(), strict=False)
    for token, (its, ours) in enumerate(islice(pairs, FIRST_COMPARED, None), FIRST_COMPARED):
        if its != ours:
            return f"token {token} is {_shown(its)}, not {_shown(ours)}"
    return None


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace")[:40])
