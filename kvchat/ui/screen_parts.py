"""The parts of the chat screen that the first frame does without. Owns when they are made: when they are first needed.

Must not decide anything: each part does, and the screen hands on what happens.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from kvchat.ui.desk import Desk

if TYPE_CHECKING:
    from kvchat.backend.protocol import TurnFinished
    from kvchat.conversation import Conversation
    from kvchat.errors import KvchatError
    from kvchat.ui.ahead import Ahead
    from kvchat.ui.alternatives import SideBySide
    from kvchat.ui.app import KvchatApp
    from kvchat.ui.background import Background
    from kvchat.ui.background_ending import Ending
    from kvchat.ui.browsing import Browsing
    from kvchat.ui.chats import Chats
    from kvchat.ui.chips import Written
    from kvchat.ui.commanding import Commanding
    from kvchat.ui.engines import Engines
    from kvchat.ui.finding import Finding
    from kvchat.ui.notes import Notes
    from kvchat.ui.overflow import Overflow
    from kvchat.ui.prefixes import Prefixes
    from kvchat.ui.purging import Purging
    from kvchat.ui.room import Room
    from kvchat.ui.sending import Sending
    from kvchat.ui.writing import Writing


class PartedScreen(Screen[None]):
    """The base of the chat screen: its parts."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    def _turned(self, conversation: Conversation) -> None:
        raise NotImplementedError

    def _entered(self, draft: Written | None) -> None:
        raise NotImplementedError

    def _looked(self, end: TurnFinished) -> None:
        """What is asked or told when a turn has ended is so now: nobody looked then."""
        self._engines.apply(end, end.turn)
        self._overflow.apply(end, end.turn)

    @cached_property
    def room(self) -> Room:
        """The open conversation and its widgets."""
        from kvchat.ui.room import Room

        return Room(self, self._desk)

    @cached_property
    def _ahead(self) -> Ahead:
        from kvchat.ui.ahead import Ahead

        return Ahead(self.room, lambda: self._sending.edited)

    @cached_property
    def _sending(self) -> Sending:
        from kvchat.ui.sending import Sending

        return Sending(
            self.room,
            self._sent,
            holds=lambda: self._ending.holds,
            not_sent=self._message_not_sent,
        )

    @cached_property
    def _background(self) -> Background:
        from kvchat.ui.background import Background

        return Background(
            self.room,
            self._sending,
            self._turned,
            keep_draft=self._keep_draft,
            beat=self._beat,
        )

    @cached_property
    def _ending(self) -> Ending:
        from kvchat.ui.background_ending import Ending

        return Ending(self.room, self._background)

    def _sent(self, conversation: Conversation) -> None:
        """A turn is on its way; it may be over already."""
        self._turned(conversation)
        self._background.settle()

    def _message_not_sent(self, conversation: Conversation, text: str, error: KvchatError) -> None:
        self._background.not_sent(conversation, text, error)

    def _keep_draft(self, conversation: Conversation, written: Written) -> None:
        self._writing.drafts.write(conversation, written)

    def _beat(self) -> None:
        """An answer is being written in a chat that is not open."""
        self._chats.beat()
        self._ending.show()

    @cached_property
    def _notes(self) -> Notes:
        from kvchat.ui.notes import Notes

        return Notes()

    @cached_property
    def _browsing(self) -> Browsing:
        from kvchat.ui.browsing import Browsing

        return Browsing(self.room, self._sending, self._undo)

    @cached_property
    def _engines(self) -> Engines:
        from kvchat.ui.engines import Engines

        return Engines(self.room, self._ending, self._ahead)

    @cached_property
    def _chats(self) -> Chats:
        from kvchat.ui.chats import Chats

        return Chats(self.room, self._sending, self._background, self._ending, self._entered, self._looked)

    @cached_property
    def _alternatives(self) -> SideBySide:
        from kvchat.ui.alternatives import SideBySide

        return SideBySide(self.room, self._sending, self._turned)

    @cached_property
    def _overflow(self) -> Overflow:
        from kvchat.ui.overflow import Overflow

        return Overflow(self.room, self._sending)

    def _undo(self) -> None:
        """Take back the last deletion or eviction."""
        if not self.room.undo.take():
            self._overflow.undo()

    @cached_property
    def _commanding(self) -> Commanding:
        from kvchat.ui.commanding import Commanding

        parts = self._sending, self._chats, self._engines
        purge, alternatives = self._purging.command, self._alternatives.command
        return Commanding(
            self.room,
            *parts,
            self._choose_theme,
            self._overflow,
            self._undo,
            purge=purge,
            alternatives=alternatives,
            prefixes=self._prefixes,
        )

    @cached_property
    def _prefixes(self) -> Prefixes:
        from kvchat.ui.prefixes import Prefixes

        return Prefixes(self.room, self._chats.show_new)

    @cached_property
    def _purging(self) -> Purging:
        from kvchat.ui.purging import Purging

        return Purging(self.room, self._chats, self._background, self._ending)

    def _choose_theme(self) -> None:
        self._finding.themes()

    @cached_property
    def _finding(self) -> Finding:
        from kvchat.ui.finding import Finding

        keys = cast("KvchatApp", self.app).keys
        return Finding(self.room, self._chats, self._engines, self._commanding, keys)

    @cached_property
    def _writing(self) -> Writing:
        from kvchat.ui.writing import Writing

        return Writing(self.room, self._sending, self._engines, self._background)
