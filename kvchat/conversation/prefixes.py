"""Pinned prefixes between the chats' database and the engine: made, computed, counted. Owns those that are being
computed; what of them is on disk as KV, the page store knows.

Belongs to one thread, as a Conversation does, and needs none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from kvchat.backend.client import Backend
from kvchat.backend.protocol import Pin, Pinned, Pinning, Ready
from kvchat.backend.values import Usage
from kvchat.chats.ids import new_ulid
from kvchat.chats.prefixes import Computation, Document, Prefix, proper_name
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, Message
from kvchat.clean import encodable
from kvchat.errors import KvchatError

NOT_KEPT = "KV on disk is not used now"


@dataclass(frozen=True, slots=True)
class Making:
    """A prefix that is being computed. `told` is how far that is; None: nothing has come yet."""

    turn: str
    prefix: Prefix
    told: Pinning | None = None


def new_prefix(name: str, system: str, documents: Sequence[Document] = ()) -> Prefix:
    """A prefix that nobody has kept or computed yet; its clock is now. KvchatError when it cannot be called so, or says
    nothing."""
    now = time.time()
    made = Prefix(new_ulid(), proper_name(name), encodable(system).strip("\n"), tuple(documents), now, now)
    if not made.text.strip():
        raise KvchatError("a prefix without text is none", "give it a system prompt, or a file")
    return made


def computation(pinned: Pinned, at: float) -> Computation:
    """What is kept of the end of a pin, at this time."""
    return Computation(
        fingerprint=pinned.fingerprint,
        type_k=pinned.type_k,
        type_v=pinned.type_v,
        namespace=pinned.namespace,
        model=pinned.model,
        model_path=pinned.model_path,
        tokens=pinned.tokens,
        size=pinned.size,
        seconds=pinned.seconds,
        computed_at=at,
        last_key=pinned.last_key,
    )


def computed_for(prefix: Prefix, ready: Ready) -> Computation | None:
    """What there is of a prefix for the model that runs, as it runs."""
    cache = ready.cache
    found = prefix.of_model(ready.model.fingerprint, cache.type_k, cache.type_v)
    return found if found is not None and found.namespace == cache.namespace else None


def not_computed(prefix: Prefix, ready: Ready) -> str:
    """Why a prefix is of no use yet for the model that runs, in words; "" if it is."""
    if computed_for(prefix, ready) is not None:
        return ""
    if not ready.cache.namespace:
        return NOT_KEPT
    if not prefix.computations:
        return "it is not computed yet"
    models = {found.fingerprint for found in prefix.computations}
    if ready.model.fingerprint not in models:
        return "it is not computed for this model"
    types = {(found.type_k, found.type_v) for found in prefix.computations}
    if (ready.cache.type_k, ready.cache.type_v) not in types:
        return "it is not computed for this cache type"
    return "it was computed in another configuration"


def count_use(store: StoreThread, chat: Chat, messages: Sequence[Message], usage: Usage, ready: Ready) -> None:
    """After an answer: a first one of a chat on a prefix, that had some of it, counts."""
    if chat.prefix is None or len(messages) != 2 or not usage.reused:
        return
    key = ready.model.fingerprint, ready.cache.type_k, ready.cache.type_v
    prefix, reused = chat.prefix, usage.reused
    store.debounce(f"prefix of {messages[-1].id}", 0, lambda chats: chats.prefixes.used(prefix, reused, *key))


class PinsInTheMaking:
    """Has prefixes computed, one after the other, and keeps what came of them."""

    def __init__(self, store: StoreThread, backend: Backend) -> None:
        self._store = store
        self._backend = backend
        self._making: dict[str, Making] = {}

    @property
    def making(self) -> tuple[Making, ...]:
        """Those that are being computed, the first one first."""
        return tuple(self._making.values())

    def begin(self, prefix: Prefix) -> str:
        """Have a prefix computed for the model that runs; the name of this, for `cancel`."""
        turn = new_ulid()
        self._making[turn] = Making(turn, prefix)
        self._backend.pin(Pin(turn, prefix.id, prefix.text, prefix.clock))
        return turn

    def cancel(self, turn: str) -> None:
        """Its end still comes."""
        if turn in self._making:
            self._backend.cancel(turn)

    def apply(self, event: Pinning | Pinned, *, new: bool = False) -> tuple[Making, Future[None] | None] | None:
        """Take over what an event says; None: it is about none of these. With the end of one that succeeded comes the
        future in which it is on disk. `new`: the prefix itself is kept with that, in place of one of its name."""
        made = self._making.get(event.turn)
        if made is None:
            return None
        if isinstance(event, Pinning):
            self._making[event.turn] = made = replace(made, told=event)
            return made, None
        del self._making[event.turn]
        if not event.tokens:
            return made, None
        found = computation(event, time.time())

        def keep(chats: ChatStore) -> None:
            if new:
                chats.prefixes.put(made.prefix)
            chats.prefixes.computed(made.prefix.id, found)

        return made, self._store.run(keep)
