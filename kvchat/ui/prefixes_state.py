"""How a prefix stands, for the model that runs. Owns the words; must not know widgets, nor read or change anything."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.backend.protocol import Ready
from kvchat.chats.prefixes import Computation, Prefix
from kvchat.conversation.prefixes import Making, computed_for, not_computed
from kvchat.kv.pinned import Held, one_of
from kvchat.ui.prefixes_picker import Listed


def listed(prefix: Prefix, ready: Ready | None, making: Sequence[Making], found: Sequence[Held]) -> Listed:
    """A prefix as the list has it. `ready`: the model that runs; `making`: what is being computed; `found`: what the
    page store holds of all prefixes."""
    computed = computed_for(prefix, ready) if ready is not None else None
    shown = computed or (prefix.computations[-1] if prefix.computations else None)
    size = sum(each.bytes for each in found if each.pin.prefix == prefix.id)
    state, at_once = _state(prefix, computed, ready, making, found)
    return Listed(prefix, shown.tokens if shown is not None else 0, size, state, at_once)


def _state(
    prefix: Prefix,
    computed: Computation | None,
    ready: Ready | None,
    making: Sequence[Making],
    found: Sequence[Held],
) -> tuple[str, bool]:
    """How it is, and whether a chat on it begins at once."""
    now = next((each for each in making if each.prefix.id == prefix.id), None)
    if now is not None:
        return f"being computed{_share(now)}", False
    if ready is None:
        return "no model runs yet", False
    if computed is None:
        return not_computed(prefix, ready), False
    kept = one_of(found, prefix.id, computed.namespace, computed.last_key)
    if kept is None:
        return "not pinned any more", False
    return kept.state, not kept.missing


def _share(making: Making) -> str:
    told = making.told
    return f", {told.done / max(1, told.total):.0%}" if told is not None else ""
