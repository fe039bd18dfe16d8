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
        self._held: list[str] = []  # from the start of a paste on
        self._tail = ""  # what was held last, where the mark of its end may have begun
        self._held_since = 0.0
        self._begun = ""  # what was parsed last, where the mark of a beginning is not complete
        self._given = 0  # characters of what is held, or had begun, that were parsed already
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        """Parse what was read, pastes as a whole."""
        if not data:
            return super().feed(data)
        if self._held and BRACKETED_PASTE_END not in self._tail + data:
            self._hold(data)
            return ()
        if not self._held:
            if self._timeout_time is None:  # what had begun was no paste
                self._begun = ""
            self._given = len(self._begun)
            data = self._begun + data
        data, self._held = "".join((*self._held, data)), []
        parts: list[str] = []
        while True:
            before, start, rest = data.partition(BRACKETED_PASTE_START)
            parts.append(before)
            if not start:
                break
            body, end, data = rest.partition(BRACKETED_PASTE_END)
            if not end:
                self._hold(start + body)
                break
            parts += [start, normal(body), end]
        self._begun = "" if self._held else _beginning(parts[-1])
        joined = "".join(parts)
        whole, self._given = joined[self._given :], max(0, self._given - len(joined))
        return super().feed(whole) if whole else ()

    def _hold(self, data: str) -> None:
        """Keep it apart from the rest: a large paste comes in thousands of pieces, which are joined once."""
        self._held.append(data)
        self._tail = (self._tail + data)[1 - len(BRACKETED_PASTE_END) :]
        self._held_since = monotonic()

    def tick(self) -> Iterable[Message]:
        """Called between reads: gives up waiting for the end of a paste, so that the keyboard is not lost with it."""
        if self._held and monotonic() - self._held_since > LONGEST_WAIT:
            return self.feed(BRACKETED_PASTE_END)
        if self._held and self._given:  # half the mark was parsed, and is no key of its own
            return ()
        return super().tick()


def _beginning(text: str) -> str:
    """The end of a text with which a paste may begin."""
    sizes = range(len(BRACKETED_PASTE_START) - 1, 0, -1)
    return next((text[-size:] for size in sizes if text.endswith(BRACKETED_PASTE_START[:size])), "")


def install() -> None:
    """Make Textual's driver use this parser. It offers no other way than the name in its module."""
    setattr(linux_driver, "XTermParser", SafePasteParser)  # noqa: B010
