"""What helps where a conversation does not fit into the context, in the app and without a screen alike. Pure; must not
know how much memory there is.
"""

from __future__ import annotations

_ROOM = 512  # tokens for the answer
_SMALLEST = 1_024


def larger_context(prompt: int, trained: int) -> int | None:
    """A context for a prompt of so many tokens and an answer: a power of two, at most the `trained` context (0: not
    known). None: the model was not trained for as much as the prompt needs."""
    if 0 < trained <= prompt:
        return None
    size = _SMALLEST
    while size < prompt + _ROOM:
        size *= 2
    return min(size, trained) if trained else size


def excess_words(tokens: int) -> str:
    """By how much a conversation is too long."""
    return f"{tokens:,} token{'' if tokens == 1 else 's'} too long for the context"
