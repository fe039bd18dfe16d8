"""`kvchat chats rm --purge` and `kvchat chats empty-trash`: chats removed for good. Owns the question and what is said.

Must not know what has to go: kvchat.chats.purge knows it of the database, kvchat.kv.purge of the page store.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from functools import partial
from typing import TextIO

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat
from kvchat.clean import clean_line
from kvchat.commands.database import open_chats
from kvchat.commands.printing import confirm
from kvchat.commands.table import size_text
from kvchat.errors import KvchatError
from kvchat.kv.purge import Purged, purge
from kvchat.paths import Paths

_FINAL = "It cannot be taken back."


def run_purge(paths: Paths, chat: str, *, yes: bool, json: bool, out: TextIO, err: TextIO, stdin: TextIO) -> int:
    """Remove one chat, from among the others or from the trash, after a question. KvchatError: there is none, or the
    answer was no."""
    with open_chats(paths) as store:
        found = _found(store, chat)
        if not yes:
            question = f'Remove "{found.title}" for good, with the KV that only it has had? {_FINAL}'
            confirm(question, "chats rm --purge", stdin, err)
        purged = store.purging.purge([found.id], partial(purge, paths.kv_folder))
    _say([found], purged, json=json, out=out)
    return 0


def run_empty_trash(paths: Paths, *, yes: bool, json: bool, out: TextIO, err: TextIO, stdin: TextIO) -> int:
    """Remove all chats in the trash, after a question. KvchatError: the answer was no."""
    with open_chats(paths) as store:
        chats = [summary.chat for summary in store.trashed()]
        if chats and not yes:
            many = "the chat" if len(chats) == 1 else f"the {len(chats)} chats"
            question = f"Remove {many} in the trash for good, with the KV that only they have had? {_FINAL}"
            confirm(question, "chats empty-trash", stdin, err)
        purged = Purged()
        if chats:
            purged = store.purging.purge([chat.id for chat in chats], partial(purge, paths.kv_folder))
        else:
            store.purging.rewrite()
    _say(chats, purged, json=json, out=out)
    return 0


def _found(store: ChatStore, chat: str) -> Chat:
    try:
        return store.resolve(chat)
    except KvchatError as error:
        try:
            return store.resolve(chat, trashed=True)
        except KvchatError:
            raise error from None


def _say(chats: Sequence[Chat], purged: Purged, *, json: bool, out: TextIO) -> None:
    if json:
        told = {"removed": [chat.id for chat in chats], "kv_pages": purged.pages, "kv_bytes": purged.bytes}
        print(jsonlib.dumps(told), file=out)
        return
    if not chats:
        print("The trash is empty.", file=out)
        return
    gone = f'"{clean_line(chats[0].title)}" is' if len(chats) == 1 else f"{len(chats)} chats are"
    pages = f"{purged.pages} page{'' if purged.pages == 1 else 's'}"
    print(f"{gone} removed for good, with {pages} of KV ({size_text(purged.bytes)}).", file=out)
    print("Copies, and files that were exported, stay. An app that has it open may still write: close it.", file=out)
