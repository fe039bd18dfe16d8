"""How much of each shown message the model still sees. Owns the marks below messages; must not decide what leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvchat.errors import KvchatError
from kvchat.ui.wording import NO_MARKS

if TYPE_CHECKING:
    from kvchat.conversation import Sight
    from kvchat.ui.room import Room


class Sights:
    """`marks`: what stands below a message, by its id; another mapping whenever one of them is another."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._asked = 0
        self.marks: Mapping[str, str] = NO_MARKS

    def look(self) -> None:
        """Count again: something left, or another branch is shown."""
        room, conversation = self._room, self._room.conversation
        self._asked += 1
        asked = self._asked

        def counted(sight: Sight) -> None:
            if asked == self._asked and conversation is room.conversation:
                self._know(sight)

        def unknown(_: KvchatError) -> None:
            """That the chats cannot be read is told where one is opened."""

        room.wait(conversation.sight(), counted, unknown)

    def _know(self, sight: Sight) -> None:
        from kvchat.conversation.overflow_words import mark, mark_replaced

        marks = {message: words for message, seen in sight.messages.items() if (words := mark(seen))}
        for message in self._room.conversation.messages:
            words = mark_replaced(message) if message.id in sight.replaced else marks.get(message.id, "")
            if said := " · ".join(filter(None, ("pinned" if message.pinned else "", words))):
                marks[message.id] = said
        if marks != self.marks:
            self.marks = marks
            self._room.sync()
