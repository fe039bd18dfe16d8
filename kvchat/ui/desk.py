"""What the screen works with, and how conversations are made from it. Must not know widgets."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.paths import Paths
from kvchat.ui.inbox import Inbox
from kvchat.ui.launch import EngineLink

if TYPE_CHECKING:
    from kvchat.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Desk:
    """All of it belongs to the app, which ends it."""

    settings: Settings
    paths: Paths
    store: StoreThread
    engine: EngineLink
    inbox: Inbox

    def new_conversation(self, system: str = "") -> Conversation:
        """A chat without messages; `system` "" takes the system prompt of the settings."""
        from kvchat.conversation import Conversation, Said  # the first frame does without

        settings = self.settings
        return Conversation.start(
            self.store,
            self.engine,
            sampling=settings.sampling,
            system=system or settings.system or "",
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
