"""Full-text search in the chats. Owns what a query means; must not write.

Words are looked up in the FTS5 index `message_text`, the last one as a beginning, so that each key typed gives hits.
Its tokenizer takes a run of Chinese or Japanese for one word, and knows no symbols: words with such characters are
found by reading the texts instead. That takes 70 ms for 25 MB; an index of trigrams would find nothing shorter than
three characters, would be three times as large as the texts, and would cost 14 ms at every commit of a long reply.
"""

from __future__ import annotations

import re
import sqlite3

from kvchat.chats.rows import read_text
from kvchat.chats.types import SearchHit
from kvchat.clean import encodable

_MOST_WORDS = 32
_LONGEST_WORD = 200
_MOST_LOOKED_AT = 2000  # messages among which the best one of each chat is chosen
_BEFORE, _AFTER = 30, 70  # characters around a match
# Scripts that are written without spaces or with particles at the words: Thai to Khmer, Han, Kana, Hangul.
_UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
_VISIBLE = "m.deleted_at IS NULL AND c.deleted_at IS NULL"


def search(connection: sqlite3.Connection, query: str, most: int, *, per_chat: bool = False) -> tuple[SearchHit, ...]:
    """Chats whose title has every word of `query`, then messages that have, the best first; at most `most` of both.

    A chat of which both have them begins with the best of its messages, and that one is not there once more. Those in
    the trash are left out. Upper and lower case are the same. `per_chat`: the best message of each chat only,
    so that a long chat does not hide the others.
    """
    words = [word[:_LONGEST_WORD] for word in encodable(query).replace("\0", " ").split()[:_MOST_WORDS]]
    if not words:
        return ()
    titles = _titles(connection, words, most)
    parts = [word for word in words if re.search(_UNSPACED, word) or not any(map(str.isalnum, word))]
    # A part may itself be a beginning; only where the last word is in the index it is looked up as one there.
    indexed = [word for word in words if word not in parts]
    prefix = bool(indexed) and indexed[-1] == words[-1]
    find = _indexed if indexed else _read
    found = find(connection, _match(indexed, prefix), parts, most, per_chat)
    best = {hit.chat: hit for hit in reversed(found)}
    first = [best.get(hit.chat, hit) for hit in titles]
    listed = set(first)
    return (*first, *(hit for hit in found if hit not in listed))[:most]


def _titles(connection: sqlite3.Connection, words: list[str], most: int) -> list[SearchHit]:
    """In Python, since SQLite's LIKE knows case only in ASCII; there are not many titles."""
    folded = [word.casefold() for word in words]
    rows = connection.execute(
        "SELECT id, head, title FROM chats WHERE deleted_at IS NULL AND head IS NOT NULL ORDER BY updated DESC, id DESC"
    )
    found = [hit for hit in (_hit(*row, "") for row in rows) if all(word in hit.title.casefold() for word in folded)]
    return found[:most]


def _match(words: list[str], prefix: bool) -> str:
    """Each word as an FTS5 string, so that nothing in it is an operator."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words) + ("*" if prefix else "")


def _indexed(
    connection: sqlite3.Connection, match: str, parts: list[str], most: int, per_chat: bool
) -> list[SearchHit]:
    """A snippet takes milliseconds in a long text: it is made of those that are given out only."""
    chosen = _best(connection, match, parts, most) if per_chat else None
    only = "" if chosen is None else f" AND m.number IN ({','.join('?' * len(chosen))})"
    rows = connection.execute(
        f"""SELECT m.chat, m.id, c.title, snippet(message_text, 0, '', '', '…', 16)
        FROM message_text JOIN messages m ON m.number = message_text.rowid JOIN chats c ON c.id = m.chat
        WHERE message_text MATCH ? AND {_VISIBLE}{_likes(parts)}{only}
        ORDER BY message_text.rank LIMIT ?""",  # noqa: S608
        (match, *map(_pattern, parts), *(chosen or ()), most),
    )
    return [_hit(*row) for row in rows]


def _best(connection: sqlite3.Connection, match: str, parts: list[str], most: int) -> list[int]:
    """The number of the best message of each chat."""
    rows = connection.execute(
        f"""SELECT m.chat, m.number
        FROM message_text JOIN messages m ON m.number = message_text.rowid JOIN chats c ON c.id = m.chat
        WHERE message_text MATCH ? AND {_VISIBLE}{_likes(parts)} ORDER BY message_text.rank LIMIT ?""",  # noqa: S608
        (match, *map(_pattern, parts), _MOST_LOOKED_AT),
    )
    best: dict[object, int] = {}
    for chat, number in rows:
        best.setdefault(chat, number)
    return list(best.values())[:most]


def _read(connection: sqlite3.Connection, _match: str, parts: list[str], most: int, per_chat: bool) -> list[SearchHit]:
    """The newest first."""
    each = "m.chat" if per_chat else "m.number"
    rows = connection.execute(  # the other columns are those of the row with the highest number
        f"""SELECT m.chat, m.id, c.title, m.text, max(m.number) AS newest FROM messages m JOIN chats c ON c.id = m.chat
        WHERE {_VISIBLE}{_likes(parts)} GROUP BY {each} ORDER BY newest DESC LIMIT ?""",  # noqa: S608
        (*map(_pattern, parts), most),
    )
    return [_hit(chat, message, title, _around(read_text(text), parts[0])) for chat, message, title, text, _ in rows]


def _hit(*columns: object) -> SearchHit:
    return SearchHit(*map(read_text, columns))


def _likes(parts: list[str]) -> str:
    return r" AND m.text LIKE ? ESCAPE '\'" * len(parts)


def _pattern(part: str) -> str:
    return "%" + re.sub(r"([%_\\])", r"\\\1", part) + "%"


def _around(text: str, part: str) -> str:
    at = max(text.lower().find(part.lower()), 0)
    start, end = max(at - _BEFORE, 0), at + _AFTER
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
