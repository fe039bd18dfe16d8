"""What is done ahead of a turn: bringing the chat's KV back, measuring chips, telling what a send would cost, reading
what is written. Owns when, and the line below the prompt. Must not begin a turn or load another model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.timer import Timer

from kvchat.backend.protocol import Forecasted, ReadingAhead, TurnFinished, Warmed
from kvchat.conversation.remote_words import server_of
from kvchat.ui.measuring import Measuring
from kvchat.ui.room import Room
from kvchat.ui.typing_ahead import TypingAhead
from kvchat.ui.wording import forecast, reading_ahead, warmed

if TYPE_CHECKING:
    from kvchat.ui.inbox import News

REST = 0.3  # seconds without a key, or in a chat, before the engine is asked


class Ahead:
    """Asks the engine while the person reads or types."""

    def __init__(self, room: Room, edited: Callable[[], str | None]) -> None:
        """`edited` is the message that the draft would take the place of, None for one of its own."""
        self._room = room
        self._edited = edited
        self._typing: Timer | None = None
        self._opening: Timer | None = None
        self._measuring = Measuring(room, self.typed)
        self._reading = TypingAhead(room, edited)
        self._unread = False  # the engine reads the draft

    def typed(self) -> None:
        """The draft changed: ask what it would cost when it has rested."""
        if self._typing is not None:
            self._typing.stop()
        self._typing = None
        self._measuring.look()
        self._reading.typed(wanted=self._wants_forecast())
        if self._wants_forecast():
            self._typing = self._room.screen.set_timer(REST, self._forecast)
        else:
            self._show()

    def opened(self) -> None:
        """A chat was opened, or the engine is ready: bring the chat's KV back when the person has stayed."""
        if self._opening is not None:
            self._opening.stop()
        self._opening = self._room.screen.set_timer(REST, self._warm)
        self._measuring.look(again=True)
        self._reading.forget()
        self.typed()

    def apply(self, news: News) -> None:
        """Take over what the engine answers; the conversation knows it already."""
        conversation = self._room.conversation
        if isinstance(news, Warmed) and conversation.warmed is news:
            self._room.told = warmed(news)
            self._reading.forget()
            self.typed()
        elif isinstance(news, TurnFinished):  # of any chat: until now nothing was read
            self._reading.forget()
            self.typed()
        elif isinstance(news, ReadingAhead) and conversation.reading_ahead is news:
            self._read(news)
            self._show()
        elif isinstance(news, Forecasted) and self._measuring.apply(news):
            return
        elif isinstance(news, Forecasted) and conversation.forecasted is news:
            self._show()

    def _read(self, news: ReadingAhead) -> None:
        """What a send would cost is another thing when the draft has been read."""
        before, self._unread = self._unread, news.there < news.tokens and not news.why
        if before and not self._unread:
            self._forecast()

    def turned(self) -> None:
        """A turn began or ended: it brought back whatever there was."""
        if self._opening is not None:
            self._opening.stop()
        self._opening = None
        self._reading.forget()
        self.typed()

    def _wants_forecast(self) -> bool:
        draft = self._room.prompt.text
        return bool(draft.strip()) and not draft.startswith("/") and not self._room.is_busy

    def _forecast(self) -> None:
        self._typing = None
        if self._wants_forecast() and self._room.desk.engine.ready is not None:
            self._room.conversation.forecast(self._room.prompt.outgoing, self._edited())

    def _warm(self) -> None:
        self._opening = None
        if not self._room.is_busy:
            self._room.conversation.warm()

    def _show(self) -> None:
        outlook = self._room.conversation.forecasted
        text = ""
        if self._room.prompt.text.startswith("/"):
            from kvchat.ui.slash import explain

            text = explain(self._room.prompt.text)
        elif self._wants_forecast():
            ready, read = self._room.desk.engine.ready, self._room.conversation.reading_ahead
            cost = forecast(outlook, ready.cache.context) if outlook is not None and ready is not None else ""
            told = reading_ahead(read) if read is not None else ""
            text = told if told and self._unread else " · ".join(filter(None, (cost, told)))
        elif not self._room.is_busy and not self._room.prompt.text:
            text = self._kept_elsewhere()
        self._room.hint.say(text)

    def _kept_elsewhere(self) -> str:
        """A chat that was last run otherwise has its KV there; going back is the person's choice."""
        choice, engine = self._room.conversation.engine_settings, self._room.desk.engine
        if choice is None or engine.ready is None:
            return ""
        if choice.model_path != engine.config.model_path:
            if server := server_of(choice.model_path):
                return f"last run on {server}: /model {choice.model_path} goes back there"
            from kvchat.library.find import name_of

            name, remote = name_of(Path(choice.model_path)), engine.config.remote
            if remote is not None and remote.leaves:
                return f"a send takes this chat to {remote.host}: /model {name} goes back to what is kept here"
            return f"last run with {name}: /model {name} goes back to what is kept of it"
        types = choice.type_k, choice.type_v
        if engine.config.remote is None and types != (engine.config.type_k, engine.config.type_v):
            words = " ".join(types)
            return f"last run with a cache of {words}: /cache {words} goes back to what is kept of it"
        return ""
