"""The chats, opened for a command. Owns that what there is to say of their file is said; must not read any."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from kvchat.chats.store import ChatStore
from kvchat.commands.printing import Printer
from kvchat.paths import Paths


@contextmanager
def open_chats(paths: Paths) -> Iterator[ChatStore]:
    """The store, closed at the end; remarks about its file go to stderr. KvchatError: it cannot be opened."""
    with closing(ChatStore(paths.chats_db)) as store:
        printer = Printer(sys.stdout, sys.stderr, quiet=False)
        for remark in store.remarks:
            printer.note(remark)
        yield store
