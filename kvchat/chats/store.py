"""ChatStore: the chats on disk. Owns every statement that reads or writes them, and what is one transaction.

Synchronous; for one thread (the one that made it). Must not know of models, turns in progress or widgets. Two
processes may have the file open: each write is one transaction, and what another one renamed is not undone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvchat.chats.resolve import nearest
from kvchat.chats.schema import connect, immediate, translated
from kvchat.chats.types import Chat, ChatSummary, KnownIds, Message, SearchHit
from kvchat.errors import KvchatError

_CHAT = "c.id, c.title, c.created, c.updated, c.system, c.clock, c.model, c.head, c.deleted_at"
_MESSAGE = "m.id, m.chat, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, m.deleted_at"
_BRANCH = """WITH RECURSIVE branch (id, parent, depth) AS (
    SELECT id, parent, 0 FROM messages WHERE id = ?
    UNION ALL
    SELECT m.id, m.parent, b.depth + 1 FROM branch b JOIN messages m ON m.id = b.parent
)"""
_MOST_WORDS = 32


class ChatStore:
    """The database at `path`, created when it does not exist. All methods: KvchatError when SQLite cannot do it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)

    def close(self) -> None:
        """Close the file. Everything that was written is on disk already."""
        self._connection.close()

    # ------------------------------------------------------------------ writing

    def add_turn(self, chat: Chat, messages: Sequence[Message]) -> None:
        """Adds new messages (each after its parent) and makes the last one the head; writes the chat if it is new.

        Of a chat that exists, only system prompt, model, head and time are taken from `chat`.
        """
        with translated(self._path), immediate(self._connection):
            self._connection.execute(
                """INSERT INTO chats (id, title, created, updated, system, clock, model, head, deleted_at)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, system = excluded.system,
                    model = excluded.model, head = excluded.head""",
                (
                    chat.id,
                    chat.title,
                    chat.created,
                    chat.updated,
                    chat.system,
                    chat.clock,
                    chat.model,
                    messages[-1].id,
                    chat.deleted_at,
                ),
            )
            self._connection.executemany(
                """INSERT INTO messages (id, chat, parent, role, text, created, finish, model, usage, deleted_at)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                [
                    (m.id, m.chat, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, m.deleted_at)
                    for m in messages
                ],
            )

    def reopen(self, chat: Chat, message: str) -> None:
        """Marks a message as being written again, and makes it the head."""
        with translated(self._path), immediate(self._connection):
            self._connection.execute(
                "UPDATE chats SET updated = ?, system = ?, head = ? WHERE id = ?",
                (chat.updated, chat.system, message, chat.id),
            )
            self._update(message, "finish = NULL")

    def update_partial(
        self, message: str, text: str, model: str, ids: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """The text so far of a message that is being written. `ids` by key; those of other keys are dropped, since
        they belong to another text."""
        with translated(self._path), immediate(self._connection):
            self._update(message, "text = ?, model = ?", text, model)
            self._replace_ids(message, ids)

    def finish(self, message: Message, at: float, ids: Mapping[str, Sequence[int]] | None = None) -> None:
        """The end of a message: its text, finish, model and usage, at the time `at`. `ids` as in `update_partial`."""
        with translated(self._path), immediate(self._connection):
            self._update(
                message.id,
                "text = ?, finish = ?, model = ?, usage = ?",
                message.text,
                message.finish,
                message.model,
                message.usage,
            )
            self._replace_ids(message.id, ids)
            self._connection.execute(
                "UPDATE chats SET updated = max(updated, ?), model = iif(? <> '', ?, model) WHERE id = ?",
                (at, message.model, message.model, message.chat),
            )

    def set_ids(self, key: str, ids: Mapping[str, Sequence[int]]) -> None:
        """Token ids under `key`, by message."""
        with translated(self._path), immediate(self._connection):
            for message, values in ids.items():
                self._put_ids(message, key, values)

    # ------------------------------------------------------------------ reading

    def get(self, chat: str) -> Chat:
        """The chat with this id. KvchatError when there is none."""
        with translated(self._path):
            row = self._connection.execute(f"SELECT {_CHAT} FROM chats c WHERE c.id = ?", (chat,)).fetchone()  # noqa: S608
        if row is None:
            raise KvchatError(f"there is no chat {chat}", "`kvchat chats ls` lists them")
        return Chat(*row)

    def chats(self) -> tuple[ChatSummary, ...]:
        """All chats that are not in the trash, the last used first."""
        with translated(self._path):
            rows = self._connection.execute(
                f"""SELECT {_CHAT}, (SELECT count(*) FROM messages m WHERE m.chat = c.id AND m.deleted_at IS NULL)
                FROM chats c WHERE c.deleted_at IS NULL ORDER BY c.updated DESC, c.id DESC"""  # noqa: S608
            ).fetchall()
        return tuple(ChatSummary(Chat(*row[:-1]), row[-1]) for row in rows)

    def latest(self) -> Chat | None:
        """The chat that was used last; None when there is no chat."""
        with translated(self._path):
            row = self._connection.execute(
                f"SELECT {_CHAT} FROM chats c WHERE c.deleted_at IS NULL ORDER BY c.updated DESC, c.id DESC LIMIT 1"  # noqa: S608
            ).fetchone()
        return None if row is None else Chat(*row)

    def resolve(self, wanted: str) -> Chat:
        """The one chat that `wanted` names, see `kvchat.chats.resolve`. KvchatError names the nearest ones."""
        return nearest(wanted, [summary.chat for summary in self.chats()])

    def path(self, head: str | None) -> tuple[Message, ...]:
        """The branch that ends with `head`, root first. None: the empty branch."""
        with translated(self._path):
            rows = self._connection.execute(
                f"{_BRANCH} SELECT {_MESSAGE} FROM branch b JOIN messages m ON m.id = b.id ORDER BY b.depth DESC",  # noqa: S608
                (head,),
            ).fetchall()
        return tuple(Message(*row) for row in rows)

    def children(self, chat: str, parent: str | None) -> tuple[Message, ...]:
        """The messages that follow `parent` (None: the beginnings of the chat), the oldest first."""
        with translated(self._path):
            rows = self._connection.execute(
                f"SELECT {_MESSAGE} FROM messages m WHERE m.chat = ? AND m.parent IS ? ORDER BY m.number",  # noqa: S608
                (chat, parent),
            ).fetchall()
        return tuple(Message(*row) for row in rows)

    def known_ids(self, head: str, key: str) -> dict[str, KnownIds]:
        """What is stored of the token ids of each message on the branch that ends with `head`; messages without
        any are left out."""
        with translated(self._path):
            rows = self._connection.execute(
                f"""{_BRANCH} SELECT i.message, i.key, CASE WHEN i.key = ? THEN i.ids END
                FROM branch b JOIN message_ids i ON i.message = b.id ORDER BY i.message, i.key""",  # noqa: S608
                (head, key),
            ).fetchall()
        known: dict[str, KnownIds] = {}
        for message, stored_key, blob in rows:
            before = known.get(message, KnownIds(None, ()))
            if stored_key == key:
                known[message] = KnownIds(_unpack(blob), before.other_keys)
            else:
                known[message] = KnownIds(before.ids, (*before.other_keys, stored_key))
        return known

    def search(self, query: str, most: int = 50) -> tuple[SearchHit, ...]:
        """Messages that contain every word of `query` (the last one may be a beginning), the best match first."""
        quoted = _quoted(query)
        if not quoted:
            return ()
        with translated(self._path):
            rows = self._connection.execute(
                """SELECT m.chat, m.id, c.title, snippet(message_text, 0, '', '', '…', 16)
                FROM message_text JOIN messages m ON m.number = message_text.rowid JOIN chats c ON c.id = m.chat
                WHERE message_text MATCH ? AND m.deleted_at IS NULL AND c.deleted_at IS NULL
                ORDER BY message_text.rank LIMIT ?""",
                (quoted, most),
            ).fetchall()
        return tuple(SearchHit(*row) for row in rows)

    # ------------------------------------------------------------------ inside a transaction

    def _update(self, message: str, change: str, *values: object) -> None:
        statement = f"UPDATE messages SET {change} WHERE id = ?"  # noqa: S608
        if self._connection.execute(statement, (*values, message)).rowcount == 0:
            raise KvchatError(f"message {message} is not in {self._path} any more", "was its chat removed elsewhere?")

    def _replace_ids(self, message: str, ids: Mapping[str, Sequence[int]] | None) -> None:
        if ids is None:
            return
        self._connection.execute("DELETE FROM message_ids WHERE message = ?", (message,))
        for key, values in ids.items():
            self._put_ids(message, key, values)

    def _put_ids(self, message: str, key: str, ids: Sequence[int]) -> None:
        self._connection.execute(
            "INSERT INTO message_ids (message, key, ids) VALUES (?, ?, ?) "
            "ON CONFLICT (message, key) DO UPDATE SET ids = excluded.ids",
            (message, key, struct.pack(f"<{len(ids)}i", *ids)),
        )


def _unpack(blob: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(blob) // 4}i", blob)


def _quoted(query: str) -> str:
    """Each word as an FTS5 string, so that nothing in it is an operator."""
    words = query.replace("\0", " ").split()[:_MOST_WORDS]
    strings = ['"' + word.replace('"', '""') + '"' for word in words]
    return " ".join(strings) + "*" if strings else ""
