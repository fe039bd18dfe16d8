"""Answers in chats that are not open. Owns these conversations, what waits to be sent in them, and what has ended there
until the person looks.

A conversation is here or it is the open one, never both, so that each event reaches it once. It goes when its turn is
over, its reply is on disk and its title is found. Must not show a chat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from textual.timer import Timer

from kvchat.backend.protocol import Event, TurnFinished
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Message
from kvchat.conversation import Conversation, LiveTurn
from kvchat.errors import KvchatError
from kvchat.ui.background_titles import Titles
from kvchat.ui.background_words import DONE, FAILED, ended, going_on
from kvchat.ui.chips import Written
from kvchat.ui.key_hints import key_text, keys_at
from kvchat.ui.notes import Note
from kvchat.ui.room import Room
from kvchat.ui.sending import GOES_ON, Sending, joined
from kvchat.ui.sidebar_rows import ChatState
from kvchat.ui.wording import sentences

BEAT = 0.5  # seconds between two looks at what goes on


@dataclass(slots=True, eq=False)
class Kept:
    """A chat that is not open. `queued` is sent when its answer has come to its end, `draft` is what else was written.
    `reply`: the message that is being written, "" when none is. `notes` are told when the chat is opened, `end` is that
    of the last turn."""

    conversation: Conversation
    queued: str = ""
    draft: Written = field(default_factory=Written)
    reply: str = ""
    notes: list[Note] = field(default_factory=list)
    end: TurnFinished | None = None
    is_written: bool = True  # the end of the reply is on disk, or it was tried
    is_gone: bool = False  # the chat is in the trash: nobody shall be called there

    @property
    def unsent(self) -> Written:
        """All that was written in the chat and is in no message."""
        return joined((Written(self.queued), self.draft))

    def hold_back(self) -> None:
        """What was to be sent is a draft."""
        self.draft, self.queued = self.unsent, ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What has ended in a chat that the person has not looked at since. See `Kept`."""

    state: ChatState
    notes: tuple[Note, ...]
    end: TurnFinished | None


class Background:
    """Takes conversations in and gives them back, and brings their turns to an end in between."""

    def __init__(
        self,
        room: Room,
        sending: Sending,
        turned: Callable[[Conversation], object],
        keep_draft: Callable[[Conversation, Written], object],
        beat: Callable[[], object],
    ) -> None:
        """`turned` is called when a turn has ended in one of these chats, `keep_draft` with what is written in one, and
        `beat` from time to time while one of them is being answered."""
        self._room = room
        self._sending = sending
        self._turned = turned
        self._keep_draft = keep_draft
        self._beat = beat
        self._kept: dict[str, Kept] = {}
        self._unseen: dict[str, Unseen] = {}  # the newest last
        self._timer: Timer | None = None
        self.titles = Titles(self.conversations, room.desk.settings.auto_title)

    # ------------------------------------------------------------------ in and out

    def keep(self, conversation: Conversation, queued: str, draft: Written) -> None:
        """Take in the conversation that was open, if there is anything to wait for. Of one that leaves no trace nothing
        stays: its answer is stopped."""
        if not self._room.desk.keeps(conversation):
            if conversation.is_working:
                conversation.stop()
        elif conversation.is_working or self._is_due(conversation):
            reply = conversation.messages[-1].id if conversation.is_working else ""
            self._kept[conversation.chat.id] = Kept(conversation, queued, draft, reply)
            self.watch()

    def take(self, chat_id: str) -> Kept | None:
        """Give a conversation back, to be opened. None: it is only on disk."""
        kept = self._kept.pop(chat_id, None)
        self.watch()
        return kept

    def seen(self, chat_id: str) -> Unseen | None:
        """The person looks at a chat: what has ended there."""
        return self._unseen.pop(chat_id, None)

    def forget(self, chat_id: str) -> None:
        """A chat is in the trash: what waits there is a draft, and nobody is called."""
        self._unseen.pop(chat_id, None)
        if (kept := self._kept.get(chat_id)) is not None:
            kept.is_gone = True
            kept.hold_back()

    # ------------------------------------------------------------------ what is there

    def find(self, chat_id: str) -> Conversation | None:
        """The conversation of a chat that is open or kept here."""
        return next((each for each in self.conversations() if each.chat.id == chat_id), None)

    def conversations(self) -> Iterator[Conversation]:
        """The open one, then those that are kept here."""
        yield self._room.conversation
        for kept in self._kept.values():
            yield kept.conversation

    @property
    def answering(self) -> tuple[Conversation, ...]:
        """Those in which an answer is being written."""
        return tuple(each for each in self.conversations() if each.is_working)

    @property
    def tokens(self) -> int:
        """How many tokens of text have come of all answers that are being written."""
        return sum(self._room.progress.tokens(live.turn) for each in self.conversations() for live in _turns(each))

    def queued(self, conversation: Conversation) -> str:
        """What waits to be sent in a chat that is not open."""
        kept = self._kept.get(conversation.chat.id)
        return kept.queued if kept is not None and kept.conversation is conversation else ""

    def state(self, conversation: Conversation) -> ChatState | None:
        """How far its answer is; None: none is being written."""
        live, room = next(_turns(conversation), None), self._room
        if live is None:
            return None
        return going_on(live, room.progress.tokens(live.turn), engine=room.desk.engine.ready is not None)

    def states(self) -> Mapping[str, ChatState]:
        """What the list says of chats, by their ids; of the open one no more than a glyph, as it is in view."""
        going = {each.chat.id: state for each in self.conversations() if (state := self.state(each)) is not None}
        shown = self._room.conversation.chat.id
        if shown in going:
            going[shown] = ChatState(going[shown].kind)
        return {chat_id: unseen.state for chat_id, unseen in self._unseen.items()} | going

    def next_chat(self) -> str | None:
        """Where the person may want to go: what ended last and was not looked at, else what is being answered."""
        running = (chat_id for chat_id, kept in self._kept.items() if kept.conversation.is_working)
        return next(reversed(self._unseen), None) or next(running, None)

    # ------------------------------------------------------------------ what happens

    def apply(self, event: Event, notes: Callable[[Event, str], list[Note]]) -> None:
        """An event reaches all. `notes` says what is to be told of the end of a turn."""
        for kept in self._kept.values():
            if isinstance(event, TurnFinished) and any(live.turn == event.turn for live in _turns(kept.conversation)):
                kept.notes += notes(event, event.turn)
                kept.end = event
            kept.conversation.apply(event)
        self.titles.apply(event)

    def stop(self, chat_id: str) -> bool:
        """Stop the answer in a chat that is not open; False when none is being written."""
        kept = self._kept.get(chat_id)
        if kept is None or not kept.conversation.is_working:
            return False
        kept.conversation.stop()
        self.settle()
        return True

    def not_sent(self, conversation: Conversation, text: str, error: KvchatError) -> None:
        """A message of a chat that is not open could not be saved: it is a draft there again."""
        kept = self._kept.get(conversation.chat.id)
        if kept is None or kept.conversation is not conversation:
            return
        kept.notes.append((f"not sent: {sentences(error.message, error.hint)}", "error"))
        if not kept.reply:  # it was refused at once, and there is no end of a turn to tell of
            self._tell(kept, None, complete=False)
        kept.hold_back()
        if text:
            kept.draft = joined((Written(text), kept.draft))
        self._write_draft(conversation)
        self.settle()

    def settle(self) -> None:
        """To be called when a turn may have ended: sends what waited for that, tells it, lets go of what is done."""
        for kept in tuple(self._kept.values()):
            if not kept.conversation.is_working and not self._sending.is_sending(kept.conversation):
                self._settle(kept)
        self.watch()

    def _settle(self, kept: Kept) -> None:
        conversation = kept.conversation
        if kept.reply:
            self._end(kept)
        if kept.queued and not self._sending.holds():
            self._send(kept)
        elif not kept.queued and kept.is_written and conversation.messages and not self._is_due(conversation):
            self._kept.pop(conversation.chat.id, None)

    def _end(self, kept: Kept) -> None:
        reply = self._reply(kept)
        kept.reply = ""
        complete = reply is not None and reply.finish in GOES_ON
        if not complete:
            kept.hold_back()
        self._wait_for_disk(kept)
        if not kept.queued and not kept.is_gone and (reply is None or reply.finish != "cancelled"):
            self._tell(kept, reply, complete=complete)
        self._turned(kept.conversation)

    @staticmethod
    def _reply(kept: Kept) -> Message | None:
        """The message that was written; None: nothing was saved."""
        return next((each for each in kept.conversation.messages[-1:] if each.id == kept.reply), None)

    def _tell(self, kept: Kept, reply: Message | None, *, complete: bool) -> None:
        room, chat = self._room, kept.conversation.chat
        self._unseen.pop(chat.id, None)
        self._unseen[chat.id] = Unseen(DONE if complete else FAILED, tuple(kept.notes), kept.end)
        key = key_text("chat.jump", keys_at(room.screen))
        room.toast(f"{ended(chat, reply, complete=complete)}{f'. {key} goes there' if key else ''}", seconds=6)

    def _send(self, kept: Kept) -> None:
        text, kept.queued = kept.queued, ""
        conversation = kept.conversation
        self._sending.submit(conversation, text, lambda: self._write_draft(conversation))
        kept.reply = conversation.messages[-1].id if conversation.is_working else ""

    def _write_draft(self, conversation: Conversation) -> None:
        """Write what is unsent, if the chat is not open again, and is on disk at all."""
        kept = self._kept.get(conversation.chat.id)
        if kept is not None and kept.conversation is conversation and conversation.messages:
            self._keep_draft(conversation, kept.unsent)

    def _wait_for_disk(self, kept: Kept) -> None:
        """The end of the reply is written before the chat can be read from disk."""
        kept.is_written = False

        def written(_: object) -> None:
            kept.is_written = True
            self.settle()

        self._room.wait(kept.conversation.store.run(_nothing), written, written)

    def _is_due(self, conversation: Conversation) -> bool:
        """Whether there is something to wait for although no answer is being written."""
        unsaved = conversation.unsaved is not None or self._sending.is_sending(conversation)
        return unsaved or self.titles.wants(conversation)

    # ------------------------------------------------------------------ the list

    def watch(self) -> None:
        """Count what goes on, and look from time to time while there is something."""
        elsewhere = sum(kept.conversation.is_working for kept in self._kept.values())
        if elsewhere != self._room.elsewhere:
            self._room.elsewhere = elsewhere
            self._room.sync()
        if not elsewhere:
            if self._timer is not None:
                self._timer.stop()
            self._timer = None
        elif self._timer is None:
            self._timer = self._room.screen.set_interval(BEAT, self._beat)


def _turns(conversation: Conversation) -> Iterator[LiveTurn]:
    """Those that are going on in a chat: that of the reply which is shown comes first."""
    if conversation.live is not None:
        yield conversation.live
    for each in conversation.alternatives:
        if each.live is not None and each.live is not conversation.live:
            yield each.live


def _nothing(_: ChatStore) -> None:
    """What is done when all that was given before is."""
