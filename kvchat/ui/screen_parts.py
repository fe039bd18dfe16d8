"""The parts of the chat screen that the first frame does without. Owns when they are made: when they are first needed.

Must not decide anything: each part does, and the screen hands on what happens.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from kvchat.ui.desk import Desk

if TYPE_CHECKING:
    from kvchat.ui.ahead import Ahead
    from kvchat.ui.app import KvchatApp
    from kvchat.ui.browsing import Browsing
    from kvchat.ui.chats import Chats
    from kvchat.ui.commanding import Commanding
    from kvchat.ui.engines import Engines
    from kvchat.ui.finding import Finding
    from kvchat.ui.notes import Notes
    from kvchat.ui.overflow import Overflow
    from kvchat.ui.room import Room
    from kvchat.ui.sending import Sending
    from kvchat.ui.writing import Writing


class PartedScreen(Screen[None]):
    """The base of the chat screen: its parts."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    def _turned(self) -> None:
        raise NotImplementedError

    def _entered(self) -> None:
        raise NotImplementedError

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

        return Sending(self.room, self._turned)

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

        return Engines(self.room, self._sending, self._ahead)

    @cached_property
    def _chats(self) -> Chats:
        from kvchat.ui.chats import Chats

        return Chats(self.room, self._sending, self._entered)

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
        return Commanding(self.room, *parts, self._choose_theme, self._overflow, self._undo)

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

        return Writing(self.room, self._sending, self._engines)
