"""The check on resume: whether restored KV still does what it did when it was saved.

A page is proved by its key, its ids and its checksum; none of these tells that it was computed by another model than
its namespace says. So the label NEXT of a page has the likeliest tokens after its last one, and when a chat goes on
from restored pages that last token is decoded once more, beside the first batch of what is new, and compared. Owns the
labels and the comparison; must not decode, or delete pages.

Only gross faults show. What is compared is one position; a token alone and the same in a batch differ by the noise of
llama.cpp itself, which depends on model and cache types.

Recurrent and hybrid models are not checked. A state is that after its last token, and cannot be taken one token back:
to hear again what was likely then, the state from before that token would be needed, and where a reply ends is known
only when it has ended. That would be a copy of the state, a few MB, at every token. What comes after the next token, to
compare it with, nobody knew when the state was saved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvchat.engine.divergence import Logits, coarse_divergence, likeliest
from kvchat.formats.page import digest, pack_ids
from kvchat.formats.past import Eviction, Past

NEXT = "next"
KEPT = 32  # tokens of a distribution that are kept
NOISE = 0.02  # nats: 99th percentile of the divergence of one position, where it was not measured
FACTOR = 10.0  # so many times the noise is no noise
_ENTRY = re.compile(r"(\d{1,9}):(-?\d{1,4}\.\d{1,6})")


@dataclass(frozen=True, slots=True)
class Mark:
    """What came after the first `length` tokens when they were computed: log probabilities of the likeliest tokens.
    `last` is the last of these tokens, `before` names those before it, `evictions` are those that came before it."""

    length: int
    last: int
    before: bytes
    likeliest: Mapping[int, float]
    evictions: tuple[Eviction, ...] = ()


def label(logits: Logits) -> str:
    """The likeliest tokens in few characters: "id:log probability" each, the likeliest first."""
    return " ".join(f"{token}:{value:.4f}" for token, value in likeliest(logits, KEPT).items())


def read_label(text: str) -> dict[int, float]:
    """What `label` wrote; empty when it is no such text."""
    entries = [_ENTRY.fullmatch(entry) for entry in text.split(" ", KEPT)]
    found = {int(entry[1]): float(entry[2]) for entry in entries if entry}
    return found if len(found) == len(entries) and max(found.values()) <= 0 else {}


class ResumeCheck:
    """What is not proved yet of the tokens in the cells."""

    def __init__(self) -> None:
        self.noise = NOISE
        self._mark: Mark | None = None

    def restored(self, past: Past, text: str) -> None:
        """Pages brought this history, or all but its last token; that one had the label `text`, "" for none. What was
        evicted after a token was computed makes it another one: then there is nothing to compare."""
        found, ids = read_label(text) if text else {}, past.ids
        if any(eviction.at >= len(ids) for eviction in past.evictions):
            found = {}
        self._mark = Mark(len(ids), ids[-1], _name(ids[:-1]), found, past.evictions) if found else None

    def forget(self) -> None:
        """Nothing is to be compared."""
        self._mark = None

    def pending(self, past: Past) -> Mark | None:
        """What is to be compared while the cells hold this. What they held when it was noted may be gone."""
        mark, ids = self._mark, past.ids
        if mark is not None and (
            past.evictions != mark.evictions
            or len(ids) < mark.length - 1
            or _name(ids[: mark.length - 1]) != mark.before
            or (len(ids) >= mark.length and ids[mark.length - 1] != mark.last)
        ):
            self._mark = None
        return self._mark

    def passes(self, logits: Logits | None) -> bool:
        """Whether what is pending is what it was, up to noise, if it has these `logits` now. It is not asked again."""
        mark, self._mark = self._mark, None
        if mark is None or logits is None:
            return True
        fits = all(token < len(logits) for token in mark.likeliest)
        return fits and coarse_divergence(mark.likeliest, logits) <= self.noise * FACTOR


def _name(ids: Sequence[int]) -> bytes:
    return digest(pack_ids(ids))
