"""Menus for what is being typed: commands, their arguments, files. Owns what is offered, and when it is not.

Keys come from the prompt in their order, and the offer follows the text at once: what Enter takes is what would be seen
if there were time to look. Nothing is offered for a text that was recalled or put into the prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic

from kvchat.errors import KvchatError
from kvchat.ui.completing_commands import Offer, Values, command_offer, moved
from kvchat.ui.completing_files import at_of, file_offer, reference, size_of
from kvchat.ui.files import Listing, list_files
from kvchat.ui.key_hints import hints, keys_at
from kvchat.ui.overlay import Choice, Overlay
from kvchat.ui.room import Room

# The prompt is asked for Tab, arrows and Escape only when nothing is offered: they cannot be others here.
KEYS = "{prompt.send} or tab takes  ↑↓ move  esc leaves the text"
KEYS_UNMARKED = "tab takes  ↑↓ move  {prompt.send} as it is  esc"
KEYS_WITHOUT = "esc leaves the text"
FRESH = 5.0  # seconds for which the list of files is taken for what is there
PATIENCE = 3.0  # seconds that Enter and Tab wait for the list of files
TAKES_FILES = "/prefix pin "  # begins a command with files behind it


class Completing:
    """What is offered for the word at the cursor."""

    def __init__(self, room: Room, overlay: Callable[[], Overlay], values: Mapping[str, Values]) -> None:
        self._room = room
        self._overlay = overlay
        self._values = values
        self._offer: Offer | None = None
        self._left: tuple[int, int] | None = None  # row and column of the word for which Escape was pressed
        self._listing: Listing | None = None
        self._listed_at = -FRESH
        self._listed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether something is offered."""
        return self._offer is not None

    # ------------------------------------------------------------------ keys

    async def takes(self, key: str) -> bool:
        """Deal with a key while something is offered; False leaves it to the prompt."""
        if self._offer is not None and self._offer.waits and key in ("enter", "tab"):
            await self._wait_for_files()
        offer = self._offer
        if offer is None:
            return False
        match key:
            case "up" | "down":
                self.step(-1 if key == "up" else 1)
            case "tab":
                self.take(offer.marked or 0)
            case "enter" if offer.marked is not None:
                self.take(offer.marked)
            case "escape":
                self._left = (self._room.prompt.cursor_location[0], offer.start)
                self.close()
            case _:
                return False
        return True

    def step(self, step: int) -> None:
        """Move the mark."""
        if self._offer is not None:
            self._show(moved(self._offer, step))

    def take(self, index: int) -> None:
        """Put a choice in the place of what was typed."""
        offer, prompt = self._offer, self._room.prompt
        if offer is None or index >= len(offer.choices):
            return
        choice, row = offer.choices[index], prompt.cursor_location[0]
        self.close()
        if offer.is_file:
            self._take_file(choice)
        else:
            start, end = (row, offer.start), (row, offer.end)
            result = prompt.replace(choice.put, start, end, maintain_selection_offset=False)
            prompt.move_cursor(result.end_location)
            self.look()

    def _take_file(self, choice: Choice) -> None:
        """The place is looked for anew: a chip before it may have got another label."""
        prompt = self._room.prompt
        row, column = prompt.cursor_location
        line = prompt.document.get_line(row)
        at = at_of(line, column, prompt.chips.spans(line))
        if at is not None and self._listing is not None:
            file = reference(at, choice, self._listing)
            prompt.put_file((row, at.start), (row, at.end), file, size_of(file, self._listing))

    # ------------------------------------------------------------------ offering

    def look(self) -> None:
        """The text or the cursor changed: offer what can stand there."""
        offer = self._found()
        place = (self._room.prompt.cursor_location[0], offer.start) if offer is not None else None
        if place is None or place != self._left:
            self._left = None
        if offer is None or self._left is not None or self._overlay().room < 1:
            self.close()
        else:
            self._show(offer)

    def close(self) -> None:
        """Nothing is offered."""
        if self._offer is not None:
            self._offer = None
            self._overlay().hide()

    def _found(self) -> Offer | None:
        prompt = self._room.prompt
        if prompt.selection.start != prompt.selection.end:
            return None
        row, column = prompt.cursor_location
        line = prompt.document.get_line(row)
        first = prompt.document.get_line(0)
        if first.startswith("/") and not prompt.is_literal and not first.startswith(TAKES_FILES):
            return command_offer(line, column, self._values) if row == 0 else None
        at = at_of(line, column, prompt.chips.spans(line))
        if at is None:
            return None
        self._list_files()
        return file_offer(at, self._listing)

    def _show(self, offer: Offer) -> None:
        self._offer = offer
        template = KEYS_WITHOUT if not offer.choices else KEYS if offer.marked is not None else KEYS_UNMARKED
        keys = hints(template, keys_at(self._room.screen))
        self._overlay().show(offer.title, offer.choices, offer.marked, keys)

    # ------------------------------------------------------------------ files

    def _list_files(self) -> None:
        """Read the working folder when that was not done just now."""
        if monotonic() - self._listed_at < FRESH:
            return
        self._listed_at = monotonic()
        self._listed.clear()
        self._room.aside(lambda: list_files(Path.cwd()), self._know_files, self._no_files)

    def _know_files(self, listing: Listing) -> None:
        self._listing = listing
        self._listed_at = monotonic()
        self._listed.set()
        if self._offer is not None and self._offer.is_file:
            before = self._offer.marked
            self.look()
            if before and self._offer is not None and before < len(self._offer.choices):
                self._show(replace(self._offer, marked=before))

    def _no_files(self, _: KvchatError) -> None:
        self._know_files(Listing(Path()))

    async def _wait_for_files(self) -> None:
        try:
            await asyncio.wait_for(self._listed.wait(), PATIENCE)
        except TimeoutError:
            self.close()
