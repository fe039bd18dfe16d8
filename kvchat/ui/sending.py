"""From the prompt to a turn and to its end. Owns the message that waits for its turn and the one that is being edited.

Must not know which key or command it was.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from kvchat.chats.types import Message
from kvchat.errors import KvchatError
from kvchat.ui.chips import Written
from kvchat.ui.files_reading import read_block
from kvchat.ui.key_hints import keys_at, told
from kvchat.ui.room import Room
from kvchat.ui.wording import clock

LONGEST_GOODBYE = 0.8  # seconds that a stopped turn may take to end before something else happens
GOES_ON = frozenset({"stop", "length"})  # after an answer that ended so, the message that waits is sent


class Sending:
    """Begins turns, one at a time; at most one message waits."""

    def __init__(self, room: Room, begun: Callable[[], object]) -> None:
        """`begun` is called when a turn is on its way."""
        self._room = room
        self._begun = begun
        self._queued: str | None = None
        self._attaching: Written | None = None  # its files are being read
        self._edited: Message | None = None
        self._draft = Written()
        self._after: Callable[[], object] | None = None

    # ------------------------------------------------------------------ beginning

    def send(self, text: str) -> None:
        """A message of the person's: sent, put in place of the one that is being edited, or kept until it can be."""
        conversation, edited = self._room.conversation, self._edited
        if edited is not None:
            self._edited = None
            self._show_chip()
            self._turn(lambda: conversation.edit(edited.id, text), text)
        elif not self._room.is_busy and self._attaching is None:
            self._turn(lambda: conversation.submit(text), text)
        elif self._queued is None:
            self._queued = text
            self._show_chip()
        else:
            self._give_back(text)
            self._room.toast("; ".join(("One message waits already", *self._told("{chat.stop} takes it back"))))

    def attach(self, written: Written) -> None:
        """Send a message with what stands in its files now; it comes back when one of them cannot be read."""
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
                self.send(text)

        def failed(error: KvchatError) -> None:
            if self._attaching is written:
                self._attaching = None
                self._give_back(self._queued or "")
                self._queued = None
                self._show_chip()
                room.prompt.put_back(written)
            room.say(error, "not sent")

        room.aside(read, done, failed)

    def resume(self) -> None:
        """Go on with an answer that was cut short."""
        self._turn(self._room.conversation.resume)

    def regenerate(self, message_id: str | None = None) -> None:
        """Another answer in place of this one, or of the last."""
        self._turn(lambda: self._room.conversation.regenerate(message_id))

    def edit(self, message: Message) -> None:
        """Take a message into the prompt; what is sent next takes its place in a branch of its own."""
        if self._edited is None:
            self._draft = self._room.prompt.written
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

    def _turn(self, begin: Callable[[], Future[None]], text: str = "") -> None:
        """Begin a turn; `text` goes back to the prompt if it cannot be saved."""
        room, conversation = self._room, self._room.conversation
        before = len(conversation.messages)
        try:
            future = begin()
        except KvchatError as error:
            self._give_back(text)
            room.refuse(error)
            return

        def not_sent(error: KvchatError) -> None:
            room.sync()
            if len(conversation.messages) == before:  # a message that is on disk by then stays in the chat
                self._give_back(text)
            room.say(error, "not sent")

        def sent(_: None) -> None:
            room.sync()
            self._begun()

        room.told = ""
        room.sync()
        room.wait(future, sent, not_sent)

    def _give_back(self, text: str) -> None:
        if text:
            self._room.prompt.put_back(text)

    # ------------------------------------------------------------------ ending

    def take_back(self) -> bool:
        """Take back what waits, or stop editing; False when there is neither."""
        if self._edited is not None:
            self._edited = None
            self._room.prompt.put(self._draft)
        elif self._queued is not None:
            text, self._queued = self._queued, None
            self._give_back(text)
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

    def after_turn(self, then: Callable[[], object]) -> None:
        """Stop the turn that is going on, if there is one, and do `then` when it has ended or takes too long."""
        if not self._room.is_busy:
            then()
            return
        self._after = then
        self.stop()
        if self._after is then:
            self._room.screen.set_timer(LONGEST_GOODBYE, lambda: self._give_up_on_turn(then))

    def _give_up_on_turn(self, then: Callable[[], object]) -> None:
        if self._after is then:
            self._after = None
            then()

    def settle(self) -> None:
        """To be called when a turn may have ended: does what waits for that."""
        if self._room.is_busy:
            return
        if self._after is not None:
            then, self._after = self._after, None
            then()
        elif self._queued is not None and self._attaching is None:
            text, self._queued = self._queued, None
            self._show_chip()
            if self._room.conversation.messages[-1].finish in GOES_ON:
                self._turn(lambda: self._room.conversation.submit(text), text)
            else:
                self._give_back(text)

    def leave(self) -> None:
        """Another chat comes: what waits becomes a draft."""
        unsent = self.unsent
        self._edited = self._queued = self._attaching = None
        if unsent != self._room.prompt.written:
            self._room.prompt.put(unsent)
        self._show_chip()

    @property
    def edited(self) -> str | None:
        """The message that is being edited."""
        return self._edited.id if self._edited is not None else None

    @property
    def unsent(self) -> Written:
        """All that was written and is in no message: what waits, the draft, and an edit that changed something."""
        prompt = self._room.prompt.written
        parts = [self._attaching or Written(), Written(self._queued or "")]
        if self._edited is not None:
            parts.append(self._draft)
        if self._edited is None or prompt.text != self._edited.text:
            parts.append(prompt)
        files = {label: file for part in parts for label, file in part.files.items()}
        return Written("\n".join(part.text for part in parts if part.text), files)

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
