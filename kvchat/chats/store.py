"""ChatStore: the chats on disk. Owns the connection and what is one transaction.

Synchronous; for one thread (the one that made it). Must not know of models, turns in progress or widgets. Two
processes may have the file open: each write is one transaction, and what another one renamed is not undone.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chats import drafts, trash, tree
from kvchat.chats.prefixes import Prefixes
from kvchat.chats.presence import Presence
from kvchat.chats.purge import Purging
from kvchat.chats.rescue import open_sound
from kvchat.chats.rows import (
    CHAT,
    put_chat,
    put_evictions,
    put_ids,
    put_messages,
    put_summaries,
    read_chat,
)
from kvchat.chats.schema import IN_MEMORY, connect_in_memory, immediate, translated
from kvchat.chats.search import search
from kvchat.chats.types import Branch, Chat, ChatSummary, Draft, KnownIds, Message, SearchHit, Sent, Summary
from kvchat.errors import KvchatError

if TYPE_CHECKING:  # titles and whole chats: the first frame of the app does without
    from kvchat.chats.transfer import TakenIn
    from kvchat.formats.past import Eviction
    from kvchat.formats.transcript import Transcript

_NEWEST = "ORDER BY c.updated DESC, c.id DESC"


class ChatStore:
    """The database at `path`, created when it does not exist; None: one in memory, which `close` ends. `prefixes` are
    the beginnings that have a name, `purging` removes for good. All methods: KvchatError when SQLite cannot do it."""

    def __init__(self, path: Path | None) -> None:
        """Removes for good what has been in the trash for too long."""
        self._path = path or IN_MEMORY
        self.remarks: list[str] = []  # what a person should know of the file
        self._connection = connect_in_memory() if path is None else open_sound(path, self.remarks.append)
        self._presence = Presence(path)
        self.prefixes = Prefixes(self._connection, self._path)
        self.purging = Purging(self._connection, self._path)
        try:
            self.purging.expired()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file. Everything that was written is on disk already."""
        self._connection.close()

    # ------------------------------------------------------------------ writing messages

    def add_turn(self, chat: Chat, messages: Sequence[Message], head: str = "") -> tuple[str, ...]:
        """Adds new messages (each after its parent) and makes `head`, or the last, the head; writes a chat that is new.
        The ids of what stands in the place of the first one now, which other processes may have added to.

        Of a chat that exists, only system prompt, model, head and time are taken from `chat`, and whether it is in the
        trash.
        """
        with self._writing() as connection:
            put_chat(connection, chat, head or messages[-1].id)
            put_messages(connection, messages)
            tree.revive(connection, messages[0].id)
            return tree.beside(connection, messages[0].id)

    def reopen(self, chat: Chat, message: str) -> None:
        """Marks a message as being written again, and makes it the head."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE chats SET updated = ?, system = ?, prefix = ?, head = ?, deleted_at = ? WHERE id = ?",
                (chat.updated, chat.system, chat.prefix, message, chat.deleted_at, chat.id),
            )
            self._update(message, "finish = NULL")
            tree.revive(connection, message)

    def update_partial(
        self, message: str, text: str, model: str, ids: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """The text so far of a message that is being written. `ids` by key; those of other keys are dropped, since
        they belong to another text."""
        with self._writing():
            self._update(message, "text = ?, model = ?", text, model)
            self._replace_ids(message, ids)

    def finish(self, message: Message, at: float, ids: Mapping[str, Sequence[int]] | None = None) -> None:
        """The end of a message: its text, finish, model and usage, at the time `at`. `ids` as in `update_partial`."""
        with self._writing() as connection:
            self._update(
                message.id,
                "text = ?, finish = ?, model = ?, usage = ?",
                message.text,
                message.finish,
                message.model,
                message.usage,
            )
            self._replace_ids(message.id, ids)
            connection.execute(
                "UPDATE chats SET updated = max(updated, ?), model = iif(? <> '', ?, model) WHERE id = ?",
                (at, message.model, message.model, message.chat),
            )

    def set_ids(self, key: str, ids: Mapping[str, Sequence[int]]) -> None:
        """Token ids under `key`, by message."""
        with self._writing() as connection:
            for message, values in ids.items():
                put_ids(connection, message, key, values)

    def set_evictions(self, message: str, key: str, log: Sequence[Eviction]) -> None:
        """What left the context while a message was made, in its order, under the key of its token ids."""
        with self._writing() as connection:
            put_evictions(connection, message, key, log)

    # ------------------------------------------------------------------ what a model reads of a chat

    def set_pinned(self, message: str, pinned: bool) -> None:
        """Whether a message stays in the context, whatever else leaves it."""
        with self._writing():
            self._update(message, "pinned = ?", pinned)

    def put_summary(self, summary: Summary) -> None:
        """Adds a summary, or changes the text of one that is there."""
        with self._writing() as connection:
            put_summaries(connection, [summary])

    def remove_summary(self, summary: str) -> None:
        """Removes a summary: the messages are read themselves again."""
        with self._writing() as connection:
            connection.execute("DELETE FROM summaries WHERE id = ?", (summary,))

    # ------------------------------------------------------------------ changing the tree; see kvchat.chats.tree

    def show(self, chat: str, message: str) -> Branch:
        """Makes the newest leaf below a message the head of its chat; the branch that ends with it."""
        with self._writing() as connection:
            return tree.show(connection, chat, message)

    def delete_message(self, message: Message) -> tuple[float, Branch]:
        """Deletes a message and all below it, softly: what `undelete` needs to take it back, and what is shown now."""
        with self._writing() as connection:
            return tree.delete(connection, message)

    def undelete(self, chat: str, at: float, head: str | None) -> Branch:
        """Takes back the deletion at `at`, and makes `head` the head again; the branch that ends with it."""
        with self._writing() as connection:
            return tree.undelete(connection, chat, at, head)

    # ------------------------------------------------------------------ changing chats

    def set_system(self, chat: str, system: str) -> None:
        """The system prompt of a chat. With another one it is not on its prefix any more."""
        self._change(chat, "prefix = iif(system = ?, prefix, NULL), system = ?", system, system)

    def set_settings(self, chat: str, settings: str) -> None:
        """What is the chat's own, a JSON object."""
        self._change(chat, "settings = ?", settings)

    def rename(self, chat: str, title: str) -> None:
        """Another title, by a person. KvchatError for one that shows nothing or is too long."""
        from kvchat.chats.resolve import proper_title

        self._change(chat, "title = ?, title_by = 'person'", proper_title(title))

    def name_by_model(self, chat: str, title: str) -> None:
        """The title that a model found. One that a person gave is not replaced."""
        from kvchat.chats.resolve import proper_title

        title = proper_title(title)
        change = "title = iif(title_by = 'person', title, ?), title_by = iif(title_by = 'person', 'person', 'model')"
        self._change(chat, change, title)

    def pin(self, chat: str) -> None:
        """Keeps a chat at the top of the list, below those that were pinned before. One that is pinned stays there."""
        self._change(chat, "pinned_at = coalesce(pinned_at, ?)", time.time())

    def unpin(self, chat: str) -> None:
        """Lets a chat go back among the others."""
        self._change(chat, "pinned_at = NULL")

    def trash(self, chat: str) -> None:
        """Moves a chat to the trash, from where it is removed after TRASH_DAYS days."""
        self._change(chat, "deleted_at = ?", time.time(), condition="deleted_at IS NULL")

    def restore(self, chat: str) -> None:
        """Takes a chat out of the trash."""
        self._change(chat, "deleted_at = NULL", condition="deleted_at IS NOT NULL")

    def duplicate(self, chat: str) -> Chat:
        """A copy of a chat with its tree and token ids, under ids of its own. Nothing that is changed later in one of
        the two changes in the other."""
        with self._writing() as connection:
            return trash.duplicate(connection, self.get(chat))

    # ------------------------------------------------------------------ whole chats; see kvchat.chats.transfer

    def export(self, chat: str) -> Transcript:
        """All that was said in a chat and not deleted. KvchatError when that is nothing."""
        from kvchat.chats.transfer import transcript_of

        found = self.get(chat)
        with translated(self._path):
            return transcript_of(self._connection, found)

    def take_in(self, transcripts: Sequence[Transcript]) -> tuple[TakenIn, ...]:
        """Adds chats, all or none; those that are there already are left as they are."""
        from kvchat.chats.transfer import take_in

        with self._writing() as connection:
            return tuple(take_in(connection, transcript) for transcript in transcripts)

    # ------------------------------------------------------------------ reading

    def get(self, chat: str) -> Chat:
        """The chat with this id, also from the trash. KvchatError when there is none."""
        with translated(self._path):
            row = self._connection.execute(f"SELECT {CHAT} FROM chats c WHERE c.id = ?", (chat,)).fetchone()  # noqa: S608
        if row is None:
            raise KvchatError(f"there is no chat {chat}", "`kvchat chats ls` lists them")
        return read_chat(row)

    def chats(self) -> tuple[ChatSummary, ...]:
        """All chats that are not in the trash, the last used first."""
        return self._summaries(f"c.deleted_at IS NULL {_NEWEST}")

    def trashed(self) -> tuple[ChatSummary, ...]:
        """The chats in the trash, the last deleted first."""
        return self._summaries("c.deleted_at IS NOT NULL ORDER BY c.deleted_at DESC, c.id DESC")

    def latest(self) -> Chat | None:
        """The chat that was used last; None when there is no chat."""
        with translated(self._path):
            row = self._connection.execute(
                f"SELECT {CHAT} FROM chats c WHERE c.deleted_at IS NULL {_NEWEST} LIMIT 1"  # noqa: S608
            ).fetchone()
        return None if row is None else read_chat(row)

    def resolve(self, wanted: str, *, trashed: bool = False) -> Chat:
        """The one chat that `wanted` names, see `kvchat.chats.resolve`. KvchatError names the nearest ones."""
        from kvchat.chats.resolve import nearest

        among = self.trashed() if trashed else self.chats()
        return nearest(wanted, [summary.chat for summary in among], trashed=trashed)

    def path(self, head: str | None) -> tuple[Message, ...]:
        """The branch that ends with `head`, root first. None: the empty branch."""
        with translated(self._path):
            return tree.path(self._connection, head)

    def branch(self, chat: str, head: str | None) -> Branch:
        """`path`, with the siblings of its messages."""
        with translated(self._path):
            return tree.branch(self._connection, chat, head)

    def answers(self, chat: str) -> tuple[Message, ...]:
        """What each answer of a chat cost: those of all branches that are not deleted, the oldest first, with "" in
        place of their texts."""
        with translated(self._path):
            return tree.answers(self._connection, chat)

    def known_ids(self, head: str, key: str) -> dict[str, KnownIds]:
        """What is stored of the token ids of each message on the branch that ends with `head`; messages without
        any are left out."""
        with translated(self._path):
            return tree.known_ids(self._connection, head, key)

    def search(self, query: str, most: int = 50, *, per_chat: bool = False) -> tuple[SearchHit, ...]:
        """Chats whose title has every word of `query`, and messages that have, see `kvchat.chats.search`."""
        with translated(self._path):
            return search(self._connection, query, most, per_chat=per_chat)

    # ------------------------------------------------------------------ what is being written; see kvchat.chats.drafts

    def set_draft(self, chat: str, draft: Draft) -> None:
        """Keeps what is written in a chat, `drafts.NEW` for the one without a message; nothing removes it."""
        with self._writing() as connection:
            drafts.put(connection, chat, draft)

    def draft(self, chat: str) -> Draft:
        """What is written in a chat."""
        with translated(self._path):
            return drafts.get(self._connection, chat)

    def sent(self, query: str, chat: str, most: int = 100) -> tuple[Sent, ...]:
        """Texts that the person sent, see `drafts.sent`."""
        with translated(self._path):
            return drafts.sent(self._connection, query, chat, most)

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path), immediate(self._connection):
            self._presence.check()
            yield self._connection

    def _summaries(self, which: str) -> tuple[ChatSummary, ...]:
        with translated(self._path):
            rows = self._connection.execute(
                f"""SELECT {CHAT}, (SELECT count(*) FROM messages m WHERE m.chat = c.id AND m.deleted_at IS NULL)
                FROM chats c WHERE {which}"""  # noqa: S608
            ).fetchall()
        return tuple(ChatSummary(read_chat(row[:-1]), row[-1]) for row in rows)

    def _change(self, chat: str, change: str, *values: object, condition: str = "TRUE") -> None:
        statement = f"UPDATE chats SET {change} WHERE id = ? AND {condition}"  # noqa: S608
        with self._writing() as connection:
            if connection.execute(statement, (*values, chat)).rowcount == 0:
                raise KvchatError(f"there is no chat {chat} any more", "was it removed elsewhere?")

    def _update(self, message: str, change: str, *values: object) -> None:
        statement = f"UPDATE messages SET {change} WHERE id = ?"  # noqa: S608
        if self._connection.execute(statement, (*values, message)).rowcount == 0:
            raise KvchatError(f"message {message} is not in {self._path} any more", "was its chat removed elsewhere?")

    def _replace_ids(self, message: str, ids: Mapping[str, Sequence[int]] | None) -> None:
        if ids is None:
            return
        self._connection.execute("DELETE FROM message_ids WHERE message = ?", (message,))
        for key, values in ids.items():
            put_ids(self._connection, message, key, values)
