"""Several answers to one message: asked for, shown side by side, one of them kept. Owns the screen that shows them and
what is said of those that go on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvchat.conversation import Alternative, Conversation
from kvchat.conversation.samplings import SAME, all_alike, wished
from kvchat.errors import KvchatError
from kvchat.ui import slash
from kvchat.ui.alternatives_words import others_words
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending

if TYPE_CHECKING:
    from kvchat.ui.alternatives_question import Others
    from kvchat.ui.alternatives_screen import AlternativesScreen


class SideBySide:
    """Alternatives of the open chat. Must not know keys; the screen says what is wanted."""

    def __init__(self, room: Room, sending: Sending, turned: Callable[[Conversation], object]) -> None:
        """`turned` is called when the last of those has ended that are not shown."""
        self._room = room
        self._sending = sending
        self._turned = turned
        self._screen: AlternativesScreen | None = None
        self._beside: Conversation | None = None  # the open chat, while answers of it are being written side by side
        self._said = ""

    # ------------------------------------------------------------------ asking

    def command(self, words: str) -> None:
        """/alt: so many answers to the last message; without words those that there are, if there are any."""
        if not words and self._room.conversation.alternatives:
            self._open()
        else:
            self._ask(words)

    def key(self) -> None:
        """The same with what is being written; with nothing written, to the last message."""
        prompt = self._room.prompt
        written = prompt.written
        if not written.text.strip():
            self.command("")
            return
        if self._sending.edited is not None:
            self._room.toast("Send the message that you are editing first, or leave it.")
            return
        meant = slash.Say(prompt.draft) if prompt.is_literal else slash.read(prompt.draft)
        if not isinstance(meant, slash.Say):
            self._room.toast("This is a command: it has no answers.")
            return
        prompt.clear_draft()
        if written.files:
            self._sending.attach(written, lambda text: self._ask("", text))
        else:
            self._ask("", meant.text)

    def _ask(self, words: str, text: str | None = None) -> None:
        room, conversation = self._room, self._room.conversation
        try:
            samplings = wished(words, conversation.sampling)
        except KvchatError as error:
            room.refuse(error)
            return
        if all_alike(samplings):
            room.toast(SAME[:1].upper() + SAME[1:] + ".", seconds=8.0)

        def saved() -> None:
            if conversation is room.conversation and room.screen.is_current:
                self._open()

        self._sending.several(conversation, samplings, text, saved)

    # ------------------------------------------------------------------ showing

    def _open(self) -> None:
        from kvchat.ui.alternatives_screen import AlternativesScreen

        room, conversation = self._room, self._room.conversation
        found = conversation.alternatives
        if not found or self._screen is not None:
            return
        first = found[0].message.parent
        question = next((message.text for message in conversation.messages if message.id == first), "")
        self._screen = AlternativesScreen(question, found, self._pace, self._pick, self._stop)
        room.screen.app.push_screen(self._screen, self._closed)

    def _closed(self, _: None = None) -> None:
        self._screen = None
        self._room.sync()
        self._room.transcript.to_end()

    def _pace(self, each: Alternative) -> float | None:
        return None if each.live is None else self._room.progress.speed(each.live.turn)

    def settle(self) -> None:
        """To be called when something may have come."""
        room, conversation = self._room, self._room.conversation
        if self._screen is not None:
            found = conversation.alternatives
            if found:
                self._screen.show(found)
            elif self._screen.is_current:
                self._screen.dismiss(None)
        self._tell_others(conversation)
        before, working = self._beside, any(each.live is not None for each in conversation.alternatives)
        self._beside = conversation if working else None
        if before is conversation and not working:
            self._turned(conversation)
            if self._screen is None and conversation.alternatives:
                room.toast("All answers are there. /alt shows them.")

    def _tell_others(self, conversation: Conversation) -> None:
        """In the status line, while the shown one is not being written."""
        room = self._room
        live = [each for each in conversation.alternatives if each.live is not None and not each.shown]
        said = others_words(len(live)) if live and not room.is_busy else ""
        if said != self._said:
            if room.told in ("", self._said):
                room.told = said
            self._said = said
            room.sync()

    # ------------------------------------------------------------------ picking and stopping

    def _pick(self, message_id: str) -> None:
        others = [each for each in self._room.conversation.alternatives if each.message.id != message_id]
        count = sum(each.live is not None for each in others)
        if not count:
            self._keep(message_id)
            return
        from kvchat.ui.alternatives_question import OthersRunning

        def answered(way: Others | None) -> None:
            if way is not None:
                self._keep(message_id, stop_others=way == "stop")

        self._room.screen.app.push_screen(OthersRunning(count), answered)

    def _keep(self, message_id: str, *, stop_others: bool = False) -> None:
        room, conversation = self._room, self._room.conversation
        try:
            future = conversation.pick(message_id)
            if stop_others:
                self._stop_each(lambda each: each.message.id != message_id)
        except KvchatError as error:
            room.refuse(error)
            return
        if self._screen is not None:
            self._screen.dismiss(None)
        room.sync()
        room.sights.look()
        room.wait(future, lambda _: None, lambda error: room.say(error, "not kept as the answer"))
        self.settle()

    def _stop(self, message_id: str | None) -> None:
        self._stop_each(lambda each: message_id in (None, each.message.id))
        self.settle()

    def _stop_each(self, wanted: Callable[[Alternative], bool]) -> None:
        """Those that are being written; not what else the chat may be writing."""
        conversation = self._room.conversation
        for each in conversation.alternatives:
            if each.live is not None and wanted(each):
                conversation.stop(each.message.id)
