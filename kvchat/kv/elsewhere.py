"""What other namespaces of a folder hold of a history. Owns the reason that a person is told when it was not used; must
not read rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.formats.past import Eviction
from kvchat.kv.namespace import Namespace
from kvchat.kv.store import Match, PageStore

REASONS = ("cache type", "adapter", "positions", "version")


def match_as(
    store: PageStore,
    namespace: Namespace,
    ids: Sequence[int],
    *,
    evictions: Sequence[Eviction] = (),
    window: int = 0,
    recurrent: bool = False,
) -> int:
    """From how many leading tokens of `ids` one could go on with what a namespace in the folder of `store` holds.
    `window`, `recurrent`: what the model needs beside full rows, see `Match.reaches`."""
    match = Match().followed_by(store.match_in(namespace, ids, evictions=evictions), namespace.id)
    if not recurrent:
        return match.usable(window)
    states = [state.end for state in store.checkpoints(match) if match.reaches(state.end, window)]
    return max(states, default=0)


def reason_elsewhere(
    store: PageStore,
    ids: Sequence[int],
    tokens: int,
    *,
    evictions: Sequence[Eviction] = (),
    window: int = 0,
    recurrent: bool = False,
) -> str | None:
    """Why these ids were not found beyond the first `tokens`, if pages of the same model in another configuration have
    them: one of REASONS, that of the longest match. `window`, `recurrent` as in `match_as`."""
    reasons: list[tuple[int, str]] = []
    own = store.namespace
    for other in store.others:
        if other.fingerprint == own.fingerprint:
            found = match_as(store, other, ids, evictions=evictions, window=window, recurrent=recurrent)
            if found > tokens:
                reasons.append((found, _difference(other, own)))
    return min(reasons, key=lambda each: (-each[0], REASONS.index(each[1])))[1] if reasons else None


def _difference(other: Namespace, own: Namespace) -> str:
    if other.lora != own.lora:
        return "adapter"
    if sorted(other.rope) != sorted(own.rope):
        return "positions"
    same = (other.type_k, other.type_v) == (own.type_k, own.type_v)
    return "version" if same else "cache type"
