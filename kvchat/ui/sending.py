"""From the prompt to a turn and to its end. Owns the message that waits for its turn and the one that is being edited.

Must not know which key or command it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future

from kvchat.backend.values import Sampling
from kvchat.chats.types import Message
from kvchat.conversation import Conversation
from kvchat.errors import KvchatError
from kvchat.ui.chips import Written
from kvchat.ui.files_reading import read_block
from kvchat.ui.key_hints import keys_at, told
from kvchat.ui.room import Room
from kvchat.ui.wording import clock

GOES_ON = frozenset({"stop", "length"})  # after an answer that ended so, the message that waits is sent


class Sending:
    """Begins turns, in each chat one at a time; in the open one at most one message waits."""

    def __init__(
        self,
        room: Room,
        begun: Callable[[Conversation], object],
        holds: Callable[[], bool],
        not_sent: Callable[[Conversation, str, KvchatError], object],
    ) -> None:
        """`begun` is called when a turn is on its way, `not_sent` when one could not be saved whose chat is not open
        any more. `holds`: what waits for an answer is not sent, as something else is to be done first."""
        self._room = room
        self._begun = begun
        self.holds = holds
        self._not_sent = not_sent
        self._saving: set[Conversation] = set()  # whose turn is not known to be saved yet
        self._queued: str | None = None
        self._attaching: Written | None = None  # its files are being read
        self._edited: Message | None = None
        self._draft = Written()

    # ------------------------------------------------------------------ beginning

    def send(self, text: str) -> None:
        """A message of the person's: sent, put in place of the one that is being edited, or kept until it can be."""
        conversation, edited = self._room.conversation, self._edited
        if edited is not None:
            self._send_edited(edited, text)
        elif not self._room.is_busy and self._attaching is None:
            self.submit(conversation, text)
        elif self._queued is None:
            self._queued = text
            self._show_chip()
        else:
            self._give_back(text)
            self._room.toast("; ".join(("One message waits already", *self._told("{chat.stop} takes it back"))))

    def _send_edited(self, edited: Message, text: str) -> None:
        """As a branch; the draft comes back. What is refused goes on being edited."""
        conversation, draft = self._room.conversation, self._draft
        self._edited, self._draft = None, Written()
        if not self._turn(conversation, lambda: conversation.edit(edited.id, text), text):
            self._edited, self._draft = edited, draft
        elif draft.text:
            self._room.prompt.put_back(draft)
        self._show_chip()

    def attach(self, written: Written, send: Callable[[str], object] | None = None) -> None:
        """Send a message, by `send` if given, with what stands in its files now; it comes back when one of them cannot
        be read."""
        room = self._room
        if self._attaching is not None:
            room.prompt.put_back(written)
            room.toast("The files of the last message are still being read.")
            return
        self._attaching = written

        def read() -> str:
            return written.message({label: read_block(file) for label, file in written.files.items()})

        def done(text: str) -> None:
            if self._attaching is written:  # else it has become a draft meanwhile
                self._attaching = None
                (send or self.send)(text)

        def failed(error: KvchatError) -> None:
            if self._attaching is written:
                self._attaching = None
                self._give_back_queued()
                room.prompt.put_back(written)
            room.say(error, "not sent")

        room.aside(read, done, failed)

    def submit(self, conversation: Conversation, text: str, saved: Callable[[], object] = lambda: None) -> None:
        """Send a message in a chat, open or not; `saved` is called when it is on disk."""
        self._turn(conversation, lambda: conversation.submit(text), text, saved)

    def several(
        self,
        conversation: Conversation,
        samplings: Sequence[Sampling],
        text: str | None,
        saved: Callable[[], object],
    ) -> None:
        """Ask for several answers, to a message or to the last one; `saved` is called when they are on disk."""
        self._turn(conversation, lambda: conversation.ask_alternatives(samplings, text), text or "", saved)

    def resume(self) -> None:
        """Go on with an answer that was cut short."""
        conversation = self._room.conversation
        self._turn(conversation, conversation.resume)

    def regenerate(self, message_id: str | None = None) -> None:
        """Another answer in place of this one, or of the last."""
        conversation = self._room.conversation
        self._turn(conversation, lambda: conversation.regenerate(message_id))

    def edit(self, message: Message) -> None:
        """Take a message into the prompt; what is sent next takes its place in a branch of its own."""
        self._draft = joined(self._drafts())
        self._edited = message
        self._room.prompt.put(message.text)
        self._show_chip()

    def edit_last(self) -> None:
        """Edit what the person said last."""
        mine = [message for message in self._room.conversation.messages if message.role == "user"]
        if mine:
            self.edit(mine[-1])
        else:
            self._room.toast("There is nothing to edit yet.")

    def _turn(
        self,
        conversation: Conversation,
        begin: Callable[[], Future[None]],
        text: str = "",
        saved: Callable[[], object] = lambda: None,
    ) -> bool:
        """Begin a turn; `text` goes back to the prompt, or to the draft of its chat, if it cannot be saved. False: it
        was refused at once."""
        room = self._room
        before = len(conversation.messages)
        try:
            future = begin()
        except KvchatError as error:
            self._refused(conversation, text, error)
            return False

        def not_sent(error: KvchatError) -> None:
            self._saving.discard(conversation)
            kept = len(conversation.messages) != before  # a message that is on disk by then stays in the chat
            room.sync()
            if conversation is room.conversation:
                self._give_back_queued()
                self._give_back("" if kept else text)
                room.say(error, "not sent")
            else:
                self._not_sent(conversation, "" if kept else text, error)

        def sent(_: None) -> None:
            self._saving.discard(conversation)
            room.sync()
            if conversation.went_on and conversation is room.conversation:
                room.transcript.note(conversation.went_on, "warning")
            saved()
            self._begun(conversation)

        self._saving.add(conversation)
        if conversation is room.conversation:
            room.told = ""
        room.sync()
        room.wait(future, sent, not_sent)
        return True

    def _refused(self, conversation: Conversation, text: str, error: KvchatError) -> None:
        if conversation is self._room.conversation:
            self._give_back(text)
            self._room.refuse(error)
        else:
            self._not_sent(conversation, text, error)

    def is_sending(self, conversation: Conversation) -> bool:
        """Whether it is not known yet that the last turn of a chat was saved."""
        return conversation in self._saving

    def _give_back(self, text: str) -> None:
        if text:
            self._room.prompt.put_back(text)

    def _give_back_queued(self) -> None:
        text, self._queued = self._queued or "", None
        self._give_back(text)
        self._show_chip()

    # ------------------------------------------------------------------ ending

    def take_back(self) -> bool:
        """Take back what waits, or stop editing; False when there is neither."""
        if self._edited is not None:
            self._edited = None
            self._room.prompt.put(self._draft)
        elif self._queued is not None:
            self._give_back_queued()
        else:
            return False
        self._show_chip()
        return True

    def stop(self) -> bool:
        """Stop the answer; False when none is being written."""
        if not self._room.is_busy:
            return False
        self._room.conversation.stop()
        self._room.sync()
        self.settle()
        return True

    def settle(self) -> None:
        """To be called when a turn may have ended: sends what waits for that."""
        if self._room.is_busy or self.holds() or self._queued is None or self._attaching is not None:
            return
        conversation, text, self._queued = self._room.conversation, self._queued, None
        self._show_chip()
        if conversation.messages[-1].finish in GOES_ON:
            self.submit(conversation, text)
        else:
            self._give_back(text)

    def leave(self) -> str:
        """Another chat comes: what waits for an answer goes on waiting there and is returned, what else was written
        becomes a draft."""
        waits = self._room.is_busy and self._attaching is None
        queued = (self._queued or "") if waits else ""
        if queued:
            self._queued = None
        unsent = self.unsent
        self._edited = self._queued = self._attaching = None
        if unsent != self._room.prompt.written:
            self._room.prompt.put(unsent)
        self._show_chip()
        return queued

    def enter(self, queued: str) -> None:
        """A chat has come in which this waits."""
        self._queued = queued or None
        self._show_chip()

    @property
    def edited(self) -> str | None:
        """The message that is being edited."""
        return self._edited.id if self._edited is not None else None

    @property
    def unsent(self) -> Written:
        """All that was written and is in no message: what waits, the draft, and an edit that changed something."""
        return joined([self._attaching or Written(), Written(self._queued or ""), *self._drafts()])

    def _drafts(self) -> Iterator[Written]:
        prompt = self._room.prompt.written
        if self._edited is not None:
            yield self._draft
        if self._edited is None or prompt.text != self._edited.text:
            yield prompt

    def _show_chip(self) -> None:
        chip = self._room.chip
        if self._edited is not None:
            keys = self._told("{prompt.send} sends it as a branch", "{chat.stop} cancels")
            chip.say("editing", f"your message of {clock(self._edited.created)}", keys)
        elif self._queued is not None:
            chip.say("next", self._queued, self._told("{chat.stop} takes it back"))
        else:
            chip.clear()

    def _told(self, *parts: str) -> list[str]:
        return told(parts, keys_at(self._room.screen))


def joined(parts: Iterable[Written]) -> Written:
    """All of them, one below the other."""
    parts = tuple(parts)
    files = {label: file for part in parts for label, file in part.files.items()}
    return Written("\n".join(part.text for part in parts if part.text), files)
