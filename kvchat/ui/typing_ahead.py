"""When a message is read while it is written. Owns the rests between keys, and what the engine was asked to read.

Words are read in groups when the person rests for a moment, what is left when they rest for longer, and what stands
behind a chip as soon as it is there. While the cursor is within the text nothing is read: what follows it would have to
be read again. Must not begin a turn.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.timer import Timer

from kvchat.ui.room import Room

REST = 0.4  # seconds without a key after which groups of words are read
LONG_REST = 1.5  # after which all is read, and the last word counts as finished
AT_ONCE = 200  # characters behind a chip that do not wait for a rest

_Asked = tuple[str, str | None, bool]  # draft, the message that it takes the place of, whether it has rested


class TypingAhead:
    """Watches the draft of the prompt."""

    def __init__(self, room: Room, edited: Callable[[], str | None]) -> None:
        """`edited`: see `Ahead`."""
        self._room = room
        self._edited = edited
        self._timer: Timer | None = None
        self._asked: _Asked | None = None
        self._behind = 0  # characters that stand behind chips

    def typed(self, *, wanted: bool) -> None:
        """The draft changed. `wanted`: it is a message that could be sent."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = None
        if not wanted or not self._can_read:
            self._behind = 0
            return
        prompt = self._room.prompt
        before, self._behind = self._behind, len(prompt.outgoing) - len(prompt.text)
        if self._behind - before >= AT_ONCE and not prompt.is_recalled:
            self._ask(rested=False)
        self._timer = self._room.screen.set_timer(REST, self._rested)

    def forget(self) -> None:
        """What the engine was asked for is not done any more."""
        self._asked = None

    def _rested(self) -> None:
        self._timer = self._room.screen.set_timer(LONG_REST - REST, self._rested_long)
        if not self._room.prompt.is_recalled:  # the next one may be meant
            self._ask(rested=False)

    def _rested_long(self) -> None:
        self._timer = None
        self._ask(rested=True)

    @property
    def _can_read(self) -> bool:
        engine = self._room.desk.engine
        return engine.ready is not None and engine.config.read_ahead

    def _ask(self, *, rested: bool) -> None:
        prompt = self._room.prompt
        whole = next(prompt.chips.unread(prompt.text), None) is None
        if not self._can_read or not whole or prompt.cursor_location != prompt.document.end:
            return
        asked = prompt.outgoing, self._edited(), rested
        if asked != self._asked:
            self._asked = asked
            self._room.conversation.read_ahead(asked[0], asked[1], done=rested)
