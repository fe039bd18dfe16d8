"""What the screen works with, and how conversations are made from it. Must not know widgets."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.paths import Paths
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.incognito import Incognito
from kvchat.ui.launch import EngineLink

if TYPE_CHECKING:
    from kvchat.chats.prefixes import Prefix
    from kvchat.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Desk:
    """All of it belongs to the app, which ends it."""

    settings: Settings
    paths: Paths
    store: StoreThread
    engine: EngineLink
    inbox: Inbox
    incognito: Incognito = field(default_factory=Incognito)

    @property
    def kv_folder(self) -> Path | None:
        """Where KV is kept on disk; None: nothing of it is to be looked at there."""
        return None if self.settings.incognito else self.paths.kv_folder

    def keeps(self, conversation: Conversation) -> bool:
        """Whether the chat can be opened again once it is left."""
        return conversation.store is self.store

    def new_conversation(
        self, system: str = "", *, incognito: bool = False, prefix: Prefix | None = None
    ) -> Conversation:
        """A chat without messages; `system` "" takes the system prompt of the settings. `incognito`: in memory alone,
        as all are where the store is. `prefix`: it begins with that."""
        from kvchat.conversation import Conversation, Said  # the first frame does without

        settings = self.settings
        store = self.incognito.open(lambda error: self.inbox.post(StoreFailed(error))) if incognito else self.store
        return Conversation.start(
            store,
            self.engine,
            sampling=settings.sampling,
            system=system or settings.system or "" if prefix is None else prefix.text,
            clock=None if prefix is None else prefix.clock,
            prefix=None if prefix is None else prefix.id,
            history=settings.history,
            keep_kv=settings.kv,
            draft=settings.draft,
            overflow=settings.overflow,
            new=Said(settings.new_draft, settings.new_overflow),
        )

    def open_conversation(self, chat_id: str) -> Future[Conversation]:
        """A chat from the disk. The future may have a KvchatError."""
        from kvchat.conversation import Conversation, Said  # the first frame does without

        settings = self.settings
        return Conversation.open(
            self.store,
            self.engine,
            chat_id,
            sampling=settings.sampling,
            system=settings.new_system,
            history=settings.history,
            keep_kv=settings.kv,
            draft=settings.draft,
            overflow=settings.overflow,
            new=Said(settings.new_draft, settings.new_overflow),
        )
