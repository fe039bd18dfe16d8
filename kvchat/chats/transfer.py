"""Whole chats as transcripts: out of the database and into it. Owns the statements for it, and what is there already.

Must not begin or end transactions, nor know a file format. What a person deleted does not go out.

A chat of kvchat keeps its ids, so that the copies of one chat on two machines are known as the same; one of another
program gets new ones, and `chats.origin` remembers what it was there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvchat.chats.ids import new_ulid
from kvchat.chats.resolve import LONGEST_TITLE, title_of
from kvchat.chats.rows import (
    MESSAGE,
    put_chat,
    put_ids,
    put_messages,
    put_summaries,
    read_message,
    read_text,
    summaries_of,
    unpack_ids,
)
from kvchat.chats.types import Chat, Message, Summary
from kvchat.clean import clean_line, encodable
from kvchat.errors import KvchatError
from kvchat.formats.transcript import Transcript, TranscriptMessage, TranscriptSummary, renamed

_PROPER_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_AT_ONCE = 500  # ids in one question


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of a transcript, and of which chat. "present" and "trashed": it was there before, and stays as it
    is."""

    outcome: Literal["imported", "present", "trashed"]
    chat: str
    title: str


def transcript_of(connection: sqlite3.Connection, chat: Chat) -> Transcript:
    """All branches of a chat, with token ids. KvchatError when nothing was said in it."""
    ids = _ids(connection, chat.id)
    said = tuple(
        TranscriptMessage(
            m.id, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, ids.get(m.id, {}), m.pinned
        )
        for m in _messages(connection, chat.id)
    )
    if not said:
        raise KvchatError(f'the chat "{clean_line(chat.title)}" has no messages', "there is nothing to export")
    return Transcript(
        source="kvchat",
        id=chat.id,
        title=chat.title,
        created=chat.created,
        updated=chat.updated,
        messages=said,
        head=chat.head if any(message.id == chat.head for message in said) else said[-1].id,
        system=chat.system,
        clock=chat.clock,
        model=chat.model,
        settings=chat.settings,
        title_by=chat.title_by,
        pinned_at=chat.pinned_at,
        summaries=_summaries(connection, chat.id, {message.id for message in said}),
    )


def take_in(connection: sqlite3.Connection, transcript: Transcript) -> TakenIn:
    """Adds a chat, unless it is there."""
    origin = _origin(transcript)
    there = connection.execute(
        "SELECT id, title, deleted_at FROM chats WHERE origin = ? OR (id = ? AND ? = 'kvchat')",
        (origin, transcript.id, transcript.source),
    ).fetchone()
    if there is not None:
        return TakenIn("present" if there[2] is None else "trashed", read_text(there[0]), read_text(there[1]))
    own = transcript.source == "kvchat" and _are_free(connection, transcript)
    if not own:
        transcript = renamed(transcript, {message.id: new_ulid() for message in transcript.messages})
    chat = _chat(transcript, transcript.id if own else new_ulid())
    put_chat(connection, chat, chat.head)
    if not own:
        connection.execute("UPDATE chats SET origin = ? WHERE id = ?", (origin, chat.id))
    put_messages(
        connection,
        [
            Message(m.id, chat.id, m.parent, m.role, m.text, m.created, m.finish, m.model, m.usage, pinned=m.pinned)
            for m in transcript.messages
        ],
    )
    put_summaries(
        connection,
        [
            Summary(new_ulid(), s.message, s.text, s.created, s.model, s.tokens, s.replaced)
            for s in transcript.summaries
        ],
    )
    for message in transcript.messages:
        for key, values in message.ids.items():
            put_ids(connection, message.id, key, values)
    return TakenIn("imported", chat.id, chat.title)


def _messages(connection: sqlite3.Connection, chat: str) -> list[Message]:
    """Those that are not deleted and hang on one that is not, in their order: each after its parent."""
    rows = connection.execute(
        f"SELECT {MESSAGE} FROM messages m WHERE m.chat = ? AND m.deleted_at IS NULL ORDER BY m.number",  # noqa: S608
        (chat,),
    )
    kept: dict[str | None, Message] = {}
    for message in map(read_message, rows):
        if message.parent is None or message.parent in kept:
            kept[message.id] = message
    return list(kept.values())


def _summaries(connection: sqlite3.Connection, chat: str, said: Collection[str]) -> tuple[TranscriptSummary, ...]:
    """Those of messages that go out, the oldest first."""
    return tuple(
        TranscriptSummary(s.message, s.text, s.created, s.model, s.tokens, s.replaced)
        for s in summaries_of(connection, chat)
        if s.message in said
    )


def _ids(connection: sqlite3.Connection, chat: str) -> dict[str, dict[str, tuple[int, ...]]]:
    rows = connection.execute(
        """SELECT i.message, i.key, i.ids FROM message_ids i JOIN messages m ON m.id = i.message
        WHERE m.chat = ? AND typeof(i.ids) = 'blob' AND length(i.ids) % 4 = 0 ORDER BY i.key""",
        (chat,),
    )
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for message, key, blob in rows:
        found.setdefault(read_text(message), {})[read_text(key)] = unpack_ids(blob)
    return found


def _chat(transcript: Transcript, name: str) -> Chat:
    title = clean_line(encodable(transcript.title))[:LONGEST_TITLE]
    first = next((message.text for message in transcript.messages if message.role == "user"), "")
    chat = Chat(
        id=name,
        title=title or title_of(first),
        created=transcript.created,
        updated=transcript.updated,
        system=encodable(transcript.system),
        clock=transcript.clock,
        model=encodable(transcript.model),
        head=transcript.head,
        settings=transcript.settings,
        pinned_at=transcript.pinned_at,
        title_by=transcript.title_by,
    )
    return chat if title else replace(chat, title_by="message")


def _origin(transcript: Transcript) -> str:
    """What a chat is called where it comes from; for one without a name there, what is in it."""
    name = transcript.id
    if not name:
        import hashlib  # takes a while to load; the first frame does without

        digest = hashlib.sha256(f"{transcript.title}\0{transcript.created}".encode("utf-8", "replace"))
        for message in transcript.messages:
            digest.update(f"\0{message.role}\0{message.text}".encode("utf-8", "replace"))
        name = digest.hexdigest()
    return encodable(f"{transcript.source}:{name[:200]}")


def _are_free(connection: sqlite3.Connection, transcript: Transcript) -> bool:
    """Whether the ids of a transcript are proper ones that nothing else has."""
    names = [message.id for message in transcript.messages]
    if not all(map(_PROPER_ID.fullmatch, (transcript.id, *names))):
        return False
    pieces = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
    return not any(_any_there(connection, piece) for piece in pieces)


def _any_there(connection: sqlite3.Connection, names: Sequence[str]) -> bool:
    marks = ",".join("?" * len(names))
    return connection.execute(f"SELECT 1 FROM messages WHERE id IN ({marks}) LIMIT 1", names).fetchone() is not None  # noqa: S608
