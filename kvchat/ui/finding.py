"""What the palette offers, and what becomes of a choice. Owns the making of its entries; each of them hands on to the
part of the screen that can do it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from kvchat.chats.prefixes import Prefix
from kvchat.chats.store import ChatStore
from kvchat.chats.types import ChatSummary
from kvchat.conversation.remote_words import place_of
from kvchat.ui.chats import Chats
from kvchat.ui.engines import Engines
from kvchat.ui.key_catalogue import SECTIONS, actions, keys_text
from kvchat.ui.keys import Keys
from kvchat.ui.meters import size_text
from kvchat.ui.palette import Entry, Palette
from kvchat.ui.room import Room
from kvchat.ui.slash import COMMANDS
from kvchat.ui.themes import AUTO
from kvchat.ui.wording import age

if TYPE_CHECKING:
    from kvchat.ui.commanding import Commanding

OFFERED = ("Chat", "Everywhere")  # places whose actions can be done from anywhere
NOT_OFFERED = frozenset({"chat.palette", "chat.interrupt", "chat.stop", "chat.quit"})  # mean something only as a key
MOST_CHATS = 2_000
FIRST_CHATS = 5


class Finding:
    """Opens the palette."""

    def __init__(self, room: Room, chats: Chats, engines: Engines, commanding: Commanding, keys: Keys) -> None:
        self._room = room
        self._chats = chats
        self._engines = engines
        self._commanding = commanding
        self._keys = keys

    def open(self) -> None:
        """Everything."""
        palette = self._palette([*self._actions(), *self._commands(), *self._models(), *self._themes(first=False)])
        room = self._room

        def come(summaries: tuple[ChatSummary, ...]) -> None:
            palette.add(self._chat_entries(summaries[:MOST_CHATS]))

        def prefixes_come(prefixes: tuple[Prefix, ...]) -> None:
            palette.add(self._prefix_entries(prefixes))

        prefixes = room.desk.store.run(lambda chats: chats.prefixes.all())
        room.wait(prefixes, prefixes_come, lambda error: room.say(error, "no prefixes"))
        room.wait(room.desk.store.run(ChatStore.chats), come, lambda error: room.say(error, "no chats"))

    def themes(self) -> None:
        """Only themes, shown as one moves over them."""
        self._palette(self._themes(first=True), "Themes")

    def _palette(self, entries: list[Entry], title: str = "") -> Palette:
        app = self._room.screen.app
        before = app.theme

        def unlook() -> None:
            if app.theme != before:
                app.theme = before

        def chosen(entry: Entry | None) -> None:
            if entry is not None:
                app.call_later(entry.run)

        palette = Palette(entries, unlook, self._put, title)
        app.push_screen(palette, chosen)
        return palette

    def _put(self, text: str) -> None:
        self._room.prompt.put(text)
        self._room.prompt.focus()

    # ------------------------------------------------------------------ entries

    def _actions(self) -> list[Entry]:
        screen = self._room.screen
        found = [action for section in SECTIONS if section.title in OFFERED for action in actions(section)]
        return [
            Entry(
                "",
                action.words,
                partial((screen if action.name.startswith("chat.") else screen.app).run_action, action.run),
                keys=keys_text(action, self._keys),
            )
            for action in found
            if action.name not in NOT_OFFERED
        ]

    def _commands(self) -> list[Entry]:
        return [
            Entry(
                "",
                " ".join(filter(None, (name, argument))),
                partial(self._commanding.carry_out, name, literal=False),
                note=words,
                put=f"{name} ",
            )
            for name, (argument, words) in COMMANDS.items()
        ]

    def _chat_entries(self, summaries: tuple[ChatSummary, ...]) -> list[Entry]:
        now = time.time()
        return [
            Entry(
                "Chat",
                summary.chat.title,
                partial(self._chats.open, summary.chat.id),
                note=age(now - summary.chat.updated),
                id=summary.chat.id,
                first=place < FIRST_CHATS,
            )
            for place, summary in enumerate(summaries)
        ]

    def _prefix_entries(self, prefixes: tuple[Prefix, ...]) -> list[Entry]:
        return [
            Entry(
                "New chat on prefix",
                prefix.name,
                partial(self._commanding.prefixes.begin, prefix),
                note=f"{prefix.computations[-1].tokens:,} tokens" if prefix.computations else "not computed yet",
                id=prefix.id,
            )
            for prefix in prefixes
        ]

    def _models(self) -> list[Entry]:
        return [
            Entry(
                "Model",
                model.name,
                partial(self._engines.model, str(model.path)),
                note=size_text(model.size),
                id=str(model.path),
                first=False,
            )
            for model in self._engines.models
        ] + [
            Entry(
                "Model",
                remote.name,
                partial(self._engines.model, remote.reference),
                note=place_of(remote),
                id=remote.reference,
                first=False,
            )
            for remote in self._engines.servers.offered
        ]

    def _themes(self, *, first: bool) -> list[Entry]:
        appearance = self._commanding.appearance
        return [
            Entry(
                "Theme",
                name,
                partial(appearance.theme, name),
                note="what suits the terminal" if name == AUTO else "",
                look=partial(appearance.show_theme, name),
                first=first,
            )
            for name in appearance.themes
        ]
