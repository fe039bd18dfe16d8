"""The stable part of a prompt whose last message is still being written: what stays, however the person goes on.

Owns the ways in which a draft can go on. They are tried: what the prompts of all of them have in common is stable, so
the end of the turn drops out, and with it a last word that may still grow. That is a good guess and no proof: whoever
reads it ahead compares ids with those of the prompt that is really sent.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.engine.cells import common
from kvchat.engine.history import Ids

LONGEST_WORD = 24  # letters; of a longer run, as in scripts that have no spaces, the last ones can change
UNSURE = 8
_FIRST = ("a", "1", ".")
_BEHIND_A_WORD = (" a", "\n", ".")
_BEHIND_A_SIGN = (" a", "\n", "a")


def stable_part(ids: Ids, draft: str, build: Callable[[str], Ids], *, done: bool) -> int:
    """How many leading tokens of the prompt `ids`, with the draft as last message, are stable. `build` makes that of
    another last message; raises what that raises. `done`: the last word of the draft is at its end."""
    return min(common(ids, build(text)) for text in continued(draft, done=done))


def continued(draft: str, *, done: bool) -> tuple[str, ...]:
    """Messages that differ in what comes behind the part of a draft that is at its end. Space is no part of that: it
    becomes a token with what follows."""
    kept = (draft if done else draft[: _growing(draft)]).rstrip()
    if not kept:
        return _FIRST
    return tuple(kept + more for more in (_BEHIND_A_WORD if kept[-1].isalnum() else _BEHIND_A_SIGN))


def _growing(draft: str) -> int:
    """Where the last word begins, or what else may still grow: signs and spaces become tokens with their like."""
    kind, start = _kind(draft[-1:]), len(draft)
    while start and _kind(draft[start - 1]) == kind:
        start -= 1
    return start if kind != "word" or len(draft) - start <= LONGEST_WORD else len(draft) - UNSURE


def _kind(letter: str) -> str:
    return "word" if letter.isalnum() else "space" if letter.isspace() else "sign"
