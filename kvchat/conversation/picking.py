"""Several replies to one message in an open chat, and which of them is shown. The part of a Conversation that is about
this; all of it raises KvchatError at once when it makes no sense now.

Reading is settled first: `_settle` stands at the beginning of every method and property.
"""

from __future__ import annotations

from concurrent.futures import Future

from kvchat.chats.store import ChatStore
from kvchat.conversation.alternatives import Alternative
from kvchat.conversation.standing import Standing
from kvchat.errors import KvchatError


class Picking(Standing):
    """See `Conversation`."""

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The replies that were asked for together, until the chat goes on or shows something else; then those of them
        that are still being written."""
        self._settle()
        return self._alternatives.look(self._turning)

    @property
    def is_working(self) -> bool:
        """Whether a reply is being written, the one that is shown or another one."""
        self._settle()
        return self._turning.live is not None or self._alternatives.is_working

    def pick(self, message_id: str) -> Future[None]:
        """Shows this one of the alternatives, which is the head of the chat from now on. The others stay beside it, and
        those that are being written go on."""
        self._settle()
        self._branches.check_idle()
        if not self._alternatives.has(message_id):
            raise KvchatError("this is none of the answers that were written together", "look at the chat again")
        if not self._alternatives.owns(self._turning):
            self._turning.check_idle()
        self._show_alternative(message_id)
        chat = self._open.chat.id

        def keep(store: ChatStore) -> None:
            store.show(chat, message_id)

        return self._store.run(keep)

    def stop(self, message_id: str | None = None) -> Future[None]:
        """Stops this one of the alternatives, or all that is being written; what there is of a reply stays. One that
        the backend has ends with its TurnFinished, another one at once."""
        self._settle()
        stopped = self._alternatives.stop(message_id, self._turning)
        live = self._turning.live
        if live is not None and message_id in (None, live.message):
            self._turning.stop()
        elif not stopped:
            raise KvchatError("no answer is being written", "there is nothing to stop")
        done: Future[None] = Future()
        done.set_result(None)
        return done

    # ------------------------------------------------------------------ inside

    def _show_alternative(self, message_id: str) -> None:
        self._outlooks.forget()
        self._turning = self._alternatives.show(message_id, self._turning)

    def _settle(self) -> None:
        """Where a move has led to one of the alternatives, its own state is newer than what the disk had."""
        self._alternatives.settle()
        before = self._open.branch
        super()._settle()
        if self._open.branch is before:
            return
        self._alternatives.come_back(self._open.branch.siblings)
        head = self._open.branch.head
        if head is not None and self._alternatives.has(head):
            self._show_alternative(head)
