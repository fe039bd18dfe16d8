"""Pastes as one piece of text. Owns the terminal parser that keeps them whole; must not know widgets.

Textual's parser ends a bracketed paste at any ESC inside it. The rest then arrives as typed keys, its line feeds as
Enter: half a paste would be sent. Here a paste is taken out of the input first, freed of control sequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers import linux_driver
from textual.message import Message

from kvchat.clean import normal

LONGEST_WAIT = 2.0  # seconds without input after which a paste whose end never comes is taken as it is


class SafePasteParser(XTermParser):
    """Holds a paste back until its end has come."""

    def __init__(self, debug: bool = False) -> None:
        self._held = ""
        self._held_since = 0.0
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        """Parse what was read, pastes as a whole."""
        if not data:
            return super().feed(data)
        data, self._held = self._held + data, ""
        parts: list[str] = []
        while True:
            before, start, rest = data.partition(BRACKETED_PASTE_START)
            parts.append(before)
            if not start:
                break
            body, end, data = rest.partition(BRACKETED_PASTE_END)
            if not end:
                self._held = start + body
                self._held_since = monotonic()
                break
            parts += [start, normal(body), end]
        whole = "".join(parts)
        return super().feed(whole) if whole else ()

    def tick(self) -> Iterable[Message]:
        """Called between reads: gives up waiting for the end of a paste, so that the keyboard is not lost with it."""
        if self._held and monotonic() - self._held_since > LONGEST_WAIT:
            return self.feed(BRACKETED_PASTE_END)
        return super().tick()


def install() -> None:
    """Make Textual's driver use this parser. It offers no other way than the name in its module."""
    setattr(linux_driver, "XTermParser", SafePasteParser)  # noqa: B010
