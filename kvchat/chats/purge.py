"""Chats removed for good: their words, their place in the index, titles, drafts and token ids, from the copies of older
versions too. Owns what of a database has to go with a chat, and which histories its token ids tell.

Belongs to a ChatStore, and to its thread. Must not know the page store, which is told the histories.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kvchat.chats import trash
from kvchat.chats.backup import backups
from kvchat.chats.damage import all_aside
from kvchat.chats.rows import read_evictions, read_text, unpack_ids
from kvchat.chats.schema import NotSavedError, immediate, translated
from kvchat.errors import KvchatError

if TYPE_CHECKING:  # the first frame of the app does without
    from kvchat.formats.past import Eviction, Past

    Forget = Callable[[Iterable[Past], Iterable[Past]], "T"]

T = TypeVar("T")


class Purging:
    """What removes for good."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def expired(self) -> None:
        """Remove what has been in the trash for too long. Nothing, when the disk is full or somebody else writes: the
        next start tries again."""
        with suppress(NotSavedError), translated(self._path):
            if chats := trash.expired(self._connection):
                with immediate(self._connection):
                    trash.remove(self._connection, chats)
                self._truncate()
                for backup in _copies(self._path):
                    with suppress(KvchatError):  # no reason not to open; a purge says so
                        _purge_copy(backup, chats)

    def purge(self, chats: Sequence[str], forget: Forget[T]) -> T:
        """Remove chats so that no byte of them is left in the database, and in its copies. `forget` is told the
        histories of theirs and those of all others before anything is removed: what it raises leaves all as it was."""
        with translated(self._path):
            told = forget(self.histories(chats), self.others(chats))
            with immediate(self._connection):
                trash.remove(self._connection, list(chats))
        for backup in _copies(self._path):
            _purge_copy(backup, chats)
        self.rewrite()
        for aside in all_aside(self._path):  # nobody can tell what is in it
            raise KvchatError(f"{aside} may still have it", "the chats themselves do not; remove that damaged file")
        return told

    def rewrite(self) -> None:
        """Leave no byte of what was removed before in the file and its log. KvchatError: something else has it open."""
        try:
            _rewrite(self._connection)
            busy = self._truncate()
        except sqlite3.OperationalError as error:
            raise self._left(str(error)) from error
        if busy:
            raise self._left("another program reads the file")

    def _left(self, why: str) -> KvchatError:
        return KvchatError(
            f"what is removed is not shown any more, but bytes of it may be left in {self._path}: {why}",
            "close other programs that have the chats open, then: kvchat chats empty-trash",
        )

    def histories(self, chats: Iterable[str]) -> Iterator[Past]:
        """All that models have read of these chats, as far as its token ids are stored: of every branch, deleted ones
        too, with what was evicted on the way."""
        for chat in chats:
            yield from _histories(self._connection, chat)

    def others(self, chats: Sequence[str]) -> Iterator[Past]:
        """The histories of all other chats, those in the trash too."""
        every = [read_text(row[0]) for row in self._connection.execute("SELECT id FROM chats ORDER BY id").fetchall()]
        yield from self.histories(each for each in every if each not in set(chats))

    def _truncate(self) -> bool:
        """The log still holds what was removed. Whether it could not be cut."""
        return bool(self._connection.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchone()[0])


def _rewrite(connection: sqlite3.Connection) -> None:
    """Write the whole file anew: pages keep copies of rows that were moved within the file, and those are not
    overwritten when the rows are deleted. The copy that SQLite makes for it stays in memory."""
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("VACUUM")


def _copies(path: Path) -> list[Path]:
    try:
        return list(backups(path))
    except FileNotFoundError:  # chats in memory have no folder
        return []


def _purge_copy(backup: Path, chats: Sequence[str]) -> None:
    """A copy may be of any older version: these have the tables that `trash.remove` needs from the first one on."""
    try:
        with closing(sqlite3.connect(backup, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            with immediate(connection):
                trash.remove(connection, list(chats))
            _rewrite(connection)
    except sqlite3.Error as error:
        raise KvchatError(
            f"{backup} may still have it: {error}", "the chats themselves do not; remove that copy"
        ) from error


# ---------------------------------------------------------------------- histories


def _histories(connection: sqlite3.Connection, chat: str) -> Iterator[Past]:
    keyed = _by_key(connection, chat)
    if not keyed:
        return
    parents = {
        read_text(message): None if parent is None else read_text(parent)
        for message, parent in connection.execute("SELECT id, parent FROM messages WHERE chat = ?", (chat,))
    }
    inner = set(parents.values())
    branches = [_branch(parents, message) for message in parents if message not in inner]
    for ids, logs in keyed:
        told: set[tuple[str, ...]] = set()
        for branch in branches:
            read = _read(branch, ids)
            if read and read not in told:
                told.add(read)
                tokens = [token for message in read for token in ids[message]]
                yield from _stages(tokens, [each for message in read for each in logs.get(message, ())])


def _branch(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """From the root to a leaf. A damaged file may have a circle."""
    branch: list[str] = []
    at: str | None = leaf
    while at is not None and at in parents and len(branch) < len(parents):
        branch.append(at)
        at = parents[at]
    return branch[::-1]


def _by_key(
    connection: sqlite3.Connection, chat: str
) -> list[tuple[dict[str, tuple[int, ...]], dict[str, tuple[Eviction, ...]]]]:
    """Token ids and evictions by message, for each vocabulary, template and system prompt."""
    rows = connection.execute(
        """SELECT i.key, i.message, i.ids, e.log FROM message_ids i JOIN messages m ON m.id = i.message
        LEFT JOIN message_evictions e ON e.message = i.message AND e.key = i.key
        WHERE m.chat = ? AND typeof(i.ids) = 'blob' AND length(i.ids) % 4 = 0 ORDER BY i.key""",
        (chat,),
    )
    found: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, tuple[Eviction, ...]]]] = {}
    for key, message, blob, log in rows:
        ids, logs = found.setdefault(read_text(key), ({}, {}))
        ids[read_text(message)] = unpack_ids(blob)
        logs[read_text(message)] = read_evictions(log)
    return list(found.values())


def _read(branch: Sequence[str], ids: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """The messages of a branch that were read in one go: where a summary stands for the first ones, the others."""
    first = next((at for at, message in enumerate(branch) if message in ids), len(branch))
    end = next((at for at in range(first, len(branch)) if branch[at] not in ids), len(branch))
    return tuple(branch[first:end])


def _stages(ids: Sequence[int], log: Sequence[Eviction]) -> Iterator[Past]:
    """The history of a branch, and what it was before each eviction: where that can be taken back, its pages stay."""
    from kvchat.formats.past import resolve

    for number, eviction in enumerate(log):
        if eviction.at <= len(ids):
            yield resolve(ids[: eviction.at], log[:number])[0]
    yield resolve(ids, [each for each in log if each.at <= len(ids)])[0]
