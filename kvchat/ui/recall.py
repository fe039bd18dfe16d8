"""The search in what was sent before. Owns the words that are looked for and what was found; must not send anything.

All keys are its own while it is open, in their order; the draft stays in the prompt until something takes its place.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from textual import events
from textual.timer import Timer

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Sent
from kvchat.errors import KvchatError
from kvchat.ui.key_catalogue import action_of
from kvchat.ui.key_hints import keys_at, told
from kvchat.ui.overlay import Choice, Overlay
from kvchat.ui.room import Room
from kvchat.ui.wording import age

SEARCH = "prompt.search"  # its key moves on in what was found
KEYS = ("{prompt.send} takes", "↑↓ or {prompt.search} move", "esc back to the draft")
REST = 0.08  # seconds without a key before the chats are read
PATIENCE = 3.0  # seconds that Enter waits for what is found
MOST = 100
LONGEST_SHOWN = 200  # characters of a text that make its line
_BEFORE = 30  # characters before the first word that was found, where the text begins with others
_FILES = re.compile(r"\A(?:(`{3,})[^\n`]*\n.*?\n\1\n+)+", re.DOTALL)
_STEPS = {"up": -1, "down": 1, "ctrl+p": -1}
_LEAVES = frozenset({"escape", "ctrl+c", "ctrl+g"})


class Recall:
    """One search."""

    def __init__(self, room: Room, overlay: Callable[[], Overlay]) -> None:
        self._room = room
        self._overlay = overlay
        self._query = ""
        self._found: tuple[Sent, ...] = ()
        self._marked = 0
        self._timer: Timer | None = None
        self._known = asyncio.Event()
        self.is_open = False

    def open(self) -> None:
        """Begin with all that was sent."""
        if self._overlay().room < 1:
            self._room.toast("There is no room for a list here.")
            return
        self.is_open = True
        self._query, self._found, self._marked = "", (), 0
        self._look()

    def close(self) -> None:
        """Leave the draft as it is."""
        if self.is_open:
            self.is_open = False
            self._stop()
            self._overlay().hide()

    # ------------------------------------------------------------------ keys

    async def takes(self, event: events.Key) -> bool:
        """Deal with a key; one that means nothing here ends the search and goes on to the prompt."""
        key = event.key
        if key in _STEPS or key in self._search_keys():
            await self._wait()
            self.step(_STEPS.get(key, 1))
        elif key in _LEAVES:
            self.close()
        elif key in ("enter", "tab"):
            await self._wait()
            if self._found:
                self.take(self._marked)
        elif key in ("backspace", "ctrl+h"):
            self._ask(self._query[:-1])
        elif key in ("ctrl+u", "ctrl+w"):
            self._ask("" if key == "ctrl+u" else self._query.rstrip().rpartition(" ")[0])
        elif event.is_printable and event.character:
            self._ask(self._query + event.character)
        else:
            self.close()
            return False
        return True

    def _search_keys(self) -> tuple[str, ...]:
        return keys_at(self._room.screen).keys_of(SEARCH, action_of(SEARCH).usual)

    def paste(self, text: str) -> None:
        """Look for a pasted text."""
        self._ask(self._query + " ".join(text.split()))

    def step(self, step: int) -> None:
        """Move the mark."""
        if self._found:
            self._marked = (self._marked + step) % len(self._found)
            self._show()

    def take(self, index: int) -> None:
        """Put what was found into the prompt."""
        self.close()
        if index < len(self._found):
            self._room.prompt.replace_draft(self._found[index].text)

    # ------------------------------------------------------------------ looking

    def _ask(self, query: str) -> None:
        self._query = query
        self._known.clear()
        self._stop()
        self._timer = self._room.screen.set_timer(REST, self._look)
        self._show()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = None

    def _look(self) -> None:
        self._stop()
        self._known.clear()
        room, query = self._room, self._query

        def found(texts: tuple[Sent, ...]) -> None:
            if self.is_open and query == self._query:
                self._found, self._marked = texts, 0
                self._known.set()
                self._show()

        def failed(error: KvchatError) -> None:
            self._known.set()
            self.close()
            room.say(error, "not searched")

        asked = room.conversation.store.run(ChatStore.sent, query, room.conversation.chat.id, MOST)
        room.wait(asked, found, failed)

    async def _wait(self) -> None:
        """Until it is known what there is."""
        if self._timer is not None:
            self._look()
        try:
            await asyncio.wait_for(self._known.wait(), PATIENCE)
        except TimeoutError:
            self._found = ()

    def _show(self) -> None:
        now = time.time()
        choices = [_choice(sent, self._query, now) for sent in self._found]
        keys = "  ".join(told(KEYS, keys_at(self._room.screen)))
        nothing = "" if choices or not self._known.is_set() else "  (nothing)"
        self._overlay().show(f"sent before: {self._query}▏{nothing}", choices, self._marked if choices else None, keys)


def _choice(sent: Sent, query: str, now: float) -> Choice:
    where = "" if sent.here else "another chat  "
    return Choice(line_of(sent.text, query), aside=f"{where}{age(now - sent.created):>3}")


def line_of(text: str, query: str) -> str:
    """A text on one line: its beginning without the files in front of it, or the part that was found."""
    files = _FILES.match(text)
    words = text[files.end() :] if files is not None else text
    wanted = query.casefold().split()[:1]
    at = words[:LONGEST_SHOWN].casefold().find(wanted[0]) if wanted else 0
    start = 0
    if at < 0:
        words = text
        start = max(0, text.casefold().find(wanted[0]) - _BEFORE)
    part = words[start : start + LONGEST_SHOWN].strip().replace("\n", " ⏎ ")
    return f"…{part}" if start else part
