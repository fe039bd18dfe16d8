"""Several replies to one message, written side by side. Owns which they are and the turn of each, from the commit that
they have in common to their ends.

Belongs to a Conversation, and to its thread. Each reply has a `Turning`; that of the one which is shown writes into the
open chat, the others into copies of it, until one of them is shown in its place. Must not decide which one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from kvchat.backend.client import Backend
from kvchat.backend.protocol import LoadFailed, Loading, Ready, TurnEvent, TurnFinished
from kvchat.backend.values import Failure, Sampling
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, Message
from kvchat.conversation.handover import Beside, HandOver
from kvchat.conversation.open_chat import OpenChat
from kvchat.conversation.turning import Turning
from kvchat.conversation.turns import LiveTurn, Options
from kvchat.errors import KvchatError


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of several replies, as it is now. `live`: it is being written; `tokens` of it have come. `shown`: the branch
    ends with it. `failure`: why it ended, where that was not its own doing. `unsaved`: see `Conversation.unsaved`."""

    message: Message
    sampling: Sampling
    live: LiveTurn | None
    tokens: int
    shown: bool
    failure: Failure | None = None
    unsaved: KvchatError | None = None


@dataclass(slots=True)
class _Member:
    """`turn` and `reply` are the ids of its turn and its message. `deleted`: the message with which it was deleted."""

    turning: Turning
    turn: str
    reply: str
    sampling: Sampling
    failure: Failure | None = None
    deleted: str | None = None


class Alternatives:
    """The replies that are followed: all of them, until something else is begun or shown; from then on those that were
    still being written and are not shown."""

    def __init__(self, store: StoreThread, backend: Backend, opened: OpenChat) -> None:
        self._store = store
        self._backend = backend
        self._open = opened
        self._members: tuple[_Member, ...] = ()

    @property
    def is_working(self) -> bool:
        """Whether one of them is being written."""
        return any(member.turning.live is not None for member in self._members)

    def look(self, shown: Turning) -> tuple[Alternative, ...]:
        """All of them that are not deleted, in their order."""
        return tuple(
            Alternative(
                member.turning.reply,
                member.sampling,
                member.turning.live,
                member.turning.tokens,
                member.turning is shown,
                member.failure,
                member.turning.unsaved,
            )
            for member in self._members
            if member.deleted is None
        )

    # ------------------------------------------------------------------ beginning

    def begin(
        self,
        shown: Turning,
        chat: Chat,
        past: tuple[Message, ...],
        replies: Sequence[Message],
        options: Options,
        samplings: Sequence[Sampling],
        *,
        new: tuple[Message, ...] = (),
    ) -> Future[None]:
        """Starts a turn for each of `replies` to `past`, of which `new` is not on disk. All are committed at once,
        before anything is computed; the first one is shown, and the others share what is computed of its prompt."""
        ready = self._backend.ready
        places = [self._open, *(self._copy() for _ in replies[1:])]
        hands: list[HandOver] = []
        members: list[_Member] = []
        for reply, sampling, opened in zip(replies, samplings, places, strict=True):
            turning = Turning(self._store, self._backend, opened) if members else shown
            beside = Beside(sampling, members[0].turn if members else None)
            wanted, messages, fresh = replace(options, sampling=sampling), (*past, reply), (*new, reply)
            hands.append(turning.prepare(chat, messages, fresh, past, wanted, ready, beside=beside))
            assert turning.live is not None
            members.append(_Member(turning, turning.live.turn, reply.id, sampling))
        for opened in places:
            opened.have_siblings([reply.id for reply in replies])
        self._members = tuple(members)
        chat = self._open.chat

        def add(store: ChatStore) -> None:
            store.add_turn(chat, (*new, *replies), replies[0].id)

        saved = self._store.run(_commit, hands, add, ready)
        for hand in hands:
            saved.add_done_callback(hand.give_up)
        return saved

    def _copy(self) -> OpenChat:
        opened = OpenChat(self._open.chat, self._open.branch)
        opened.unsummarized = self._open.unsummarized
        return opened

    # ------------------------------------------------------------------ going on

    def apply(self, event: Loading | Ready | LoadFailed | TurnEvent, shown: Turning) -> bool:
        """Takes over what an event changes, in the order in which they were begun, also in the turn that is shown where
        that is none of them. False: nothing."""
        if isinstance(event, TurnFinished):
            for member in self._members:
                member.failure = event.failure if member.turn == event.turn else member.failure
        turnings = [member.turning for member in self._members]
        taken = [turning.apply(event) for turning in (turnings if shown in turnings else [shown, *turnings])]
        return any(taken)

    def settle(self) -> None:
        """Takes over what became of them on the store thread."""
        for member in self._members:
            member.turning.settle()
        self._members = tuple(member for member in self._members if not member.turning.taken_back)

    def stop(self, message_id: str | None, shown: Turning) -> bool:
        """Stops one of them, or all, but not what is shown; False when none of these is being written."""
        wanted = [each.turning for each in self._members if message_id in (None, each.reply)]
        live = [turning for turning in wanted if turning.live is not None and turning is not shown]
        for turning in live:
            turning.stop()
        return bool(live)

    def delete_below(self, message_id: str) -> None:
        """Those to a message, or that come after it, are deleted: they are stopped, and followed to their ends."""
        for member in self._members:
            if member.turning.has(message_id):
                member.deleted = member.deleted or message_id
                if member.turning.live is not None:
                    member.turning.stop()

    def come_back(self, messages: Container[str]) -> None:
        """Those are not deleted any more that were deleted with one of these messages, which are shown."""
        for member in self._members:
            if member.deleted is not None and member.deleted in messages:
                member.deleted = None

    # ------------------------------------------------------------------ which one is shown

    def has(self, message_id: str) -> bool:
        """Whether it is one of them that is not deleted."""
        return any(member.reply == message_id and member.deleted is None for member in self._members)

    def owns(self, turning: Turning) -> bool:
        """Whether this is the turn of one of them."""
        return any(member.turning is turning for member in self._members)

    def show(self, message_id: str, shown: Turning) -> Turning:
        """Shows this one in place of `shown`, which goes on in a copy. Its turn, which is that of the chat now."""
        turning = next(member.turning for member in self._members if member.reply == message_id)
        if turning is not shown:
            shown.move(self._copy())
            turning.move(self._open)
        return turning

    def leave(self, shown: Turning) -> None:
        """Something else is begun or shown: only those are followed that are being written elsewhere."""
        live = (member for member in self._members if member.turning.live is not None)
        self._members = tuple(member for member in live if member.turning is not shown)


def _commit(store: ChatStore, hands: Sequence[HandOver], add: Callable[[ChatStore], None], ready: Ready | None) -> None:
    """Makes the change that all have in common with the first, and sends each. The first KvchatError as raised."""
    errors: list[KvchatError] = []

    def added(_: ChatStore) -> None:
        if hands[0].stage == "unsaved":
            raise errors[0]

    for hand in hands:
        try:
            hand.commit(store, added if hand is not hands[0] else add, ready)
        except KvchatError as error:
            errors.append(error)
    if errors:
        raise errors[0]
