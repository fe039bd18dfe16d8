"""What goes with the prompt: menus, the search in what was sent, the person's editor, drafts. Owns which of them has
the keys, and the overlay that they share. Must not begin a turn.
"""

from __future__ import annotations

from functools import cached_property

from textual import events

from kvchat.backend.values import CACHE_TYPES
from kvchat.config_options import FOLLOWS
from kvchat.conversation import Conversation
from kvchat.conversation.overflow_words import POLICIES
from kvchat.conversation.remote_words import place_of
from kvchat.errors import KvchatError
from kvchat.ui.background import Background
from kvchat.ui.chips import Written
from kvchat.ui.completing import Completing
from kvchat.ui.completing_commands import Values
from kvchat.ui.drafts import Drafts
from kvchat.ui.editor import edit
from kvchat.ui.engines import Engines
from kvchat.ui.incognito import NO_EDITOR
from kvchat.ui.meters import size_text
from kvchat.ui.overlay import Overlay
from kvchat.ui.recall import Recall
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending, joined
from kvchat.ui.themes import ordered

CONTEXTS = (2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072)


class Writing:
    """The companion of the prompt."""

    def __init__(self, room: Room, sending: Sending, engines: Engines, background: Background) -> None:
        def unsent(conversation: Conversation) -> Written:
            return joined((Written(background.queued(conversation)), sending.unsent))

        self._room = room
        self._engines = engines
        self._completing = Completing(room, self._get_overlay, self._values())
        self._recall = Recall(room, self._get_overlay)
        self._quiet = False  # the prompt got another text than the one that was typed
        self.drafts = Drafts(room, unsent)

    # ------------------------------------------------------------------ keys

    async def takes(self, event: events.Key) -> bool:
        """Deal with a key."""
        self._quiet = False
        if self._recall.is_open:
            return await self._recall.takes(event)
        return await self._completing.takes(event.key)

    async def takes_paste(self, text: str) -> bool:
        """A search takes a paste as words to look for."""
        if self._recall.is_open:
            self._recall.paste(text)
        return self._recall.is_open

    def wrote(self, changed: bool) -> None:
        """The prompt has dealt with a key."""
        if not self._quiet and (changed or self._completing.is_open):
            self._completing.look()

    def closed(self) -> None:
        """Another draft, or no keyboard."""
        self._quiet = True
        self._completing.close()
        self._recall.close()

    async def search(self) -> None:
        """^R."""
        self._completing.close()
        self._recall.open()

    async def edit_elsewhere(self) -> None:
        """^G."""
        room, before = self._room, self._room.prompt.written
        if room.conversation.incognito:
            room.refuse(NO_EDITOR)
            return
        try:
            text = await edit(room.screen.app, before.text, room.desk.paths.state_folder)
        except KvchatError as error:
            room.refuse(error)
            return
        if text != before.text:
            now = room.prompt.written  # what waited for an answer may have come back meanwhile
            came = Written(now.text.removesuffix(before.text).removesuffix("\n"), now.files)
            room.prompt.put(joined((came, Written(text, before.files))))

    # ------------------------------------------------------------------ overlay

    @cached_property
    def _overlay(self) -> Overlay:
        overlay = Overlay(self._room.prompt, self._pick, self._step)
        self._room.screen.mount(overlay)
        return overlay

    def _get_overlay(self) -> Overlay:
        return self._overlay

    def _pick(self, index: int) -> None:
        if self._recall.is_open:
            self._recall.take(index)
        else:
            self._completing.take(index)

    def _step(self, step: int) -> None:
        if self._recall.is_open:
            self._recall.step(step)
        else:
            self._completing.step(step)

    # ------------------------------------------------------------------ what commands take

    def _values(self) -> dict[str, Values]:
        return {
            "/model": Values(self._models, closed=False),
            "/cache": Values(lambda: [(name, "") for name in CACHE_TYPES], words=2),
            "/context": Values(self._contexts, closed=False),
            "/draft": Values(self._drafts, closed=False),
            "/export": Values(lambda: [("md", "the branch that is shown"), ("json", "all of it")], closed=False),
            "/theme": Values(self._themes),
            "/follow": Values(lambda: [(word, "") for word in FOLLOWS]),
            "/mouse": Values(lambda: [("on", "for the app"), ("off", "for the terminal")]),
            "/overflow": Values(lambda: list(POLICIES.items())),
            "/summary": Values(lambda: [("show", "read and change it"), ("drop", "the one that waits, or is written")]),
            "/history": Values(lambda: [("append", "what was rendered stays"), ("exact", "as the template says")]),
        }

    def _models(self) -> list[tuple[str, str]]:
        local = [(model.name, size_text(model.size)) for model in self._engines.models]
        return local + [(remote.reference, place_of(remote)) for remote in self._engines.servers.offered]

    def _drafts(self) -> list[tuple[str, str]]:
        def came() -> None:
            if self._completing.is_open:
                self._completing.look()

        return self._engines.drafting.values(came)

    def _themes(self) -> list[tuple[str, str]]:
        return [(name, "") for name in ordered(self._room.screen.app.available_themes)]

    def _contexts(self) -> list[tuple[str, str]]:
        """Sizes up to what the model was trained for, as far as that is known."""
        ready = self._room.desk.engine.ready
        trained = ready.model.context_trained if ready is not None else 0
        sizes = {size: "" for size in CONTEXTS if not trained or size < trained}
        if trained:
            sizes[trained] = "what the model was trained for"
        if ready is not None and ready.cache.context in sizes:
            sizes[ready.cache.context] = "now"
        return [(str(size), what) for size, what in sizes.items()]
