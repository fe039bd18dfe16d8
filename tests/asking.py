"""What one `kvchat ask` in a test is given, says and leaves behind."""

from __future__ import annotations

import io

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Message
from kvchat.paths import Paths


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Asked:
    """The result of one `kvchat ask`."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.err = io.StringIO()
        self.stdin: io.StringIO = Terminal()
        self.code: int | None = None


def kept(paths: Paths) -> tuple[Message, ...]:
    """The messages of the last chat, as another process sees them."""
    store = ChatStore(paths.chats_db)
    try:
        chat = store.latest()
        return store.path(chat.head) if chat else ()
    finally:
        store.close()
