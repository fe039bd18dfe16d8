"""Prefixes: beginnings of chats that have a name. Owns their rows and what was computed of them; not the KV, which the
page store keeps under their ids.

Belongs to a ChatStore, and to its thread. A prefix is text: a system prompt, and documents as they stand behind it.
"""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvchat.chats.rows import read_count, read_text, read_time
from kvchat.chats.schema import immediate, translated
from kvchat.clean import clean_line
from kvchat.config_values import nearest
from kvchat.errors import KvchatError

LONGEST_NAME = 60
_NAME = re.compile(rf"[^\W_](?:[\w .+-]{{0,{LONGEST_NAME - 2}}}[\w+-])?")
_PREFIX = "p.id, p.name, p.system, p.documents, p.created, p.clock, p.uses, p.seconds_saved"
_COMPUTATION = (
    "c.prefix, c.fingerprint, c.type_k, c.type_v, c.namespace, c.model, c.model_path, c.tokens, c.bytes, c.seconds, "
    "c.computed_at, c.last_key"
)
_LIST_HINT = "`kvchat kv ls` lists them"


@dataclass(frozen=True, slots=True)
class Document:
    """A file behind a system prompt: its name, and the block that goes out, fenced."""

    name: str
    block: str


@dataclass(frozen=True, slots=True)
class Computation:
    """What computing a prefix with one model and one pair of cache types came to.

    It has `tokens`, of which nothing depends on what a person says first; its pages lie in the `namespace` of the page
    store, `size` bytes in all, and the last one has the key `last_key`. Computing all of it took `seconds`;
    `computed_at` is in seconds since the epoch.
    """

    fingerprint: str
    type_k: str
    type_v: str
    namespace: str
    model: str
    model_path: str
    tokens: int
    size: int
    seconds: float
    computed_at: float
    last_key: bytes


@dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning with a name, unique but for case.

    `id` is a ULID. A chat that is started on it has `text` for its system prompt, and its `clock` (see `Chat`). `uses`
    counts the first answers that did not have to compute it, which saved `seconds_saved`; `chats` are those that
    are on it and not in the trash.
    """

    id: str
    name: str
    system: str
    documents: tuple[Document, ...]
    created: float
    clock: float
    uses: int = 0
    seconds_saved: float = 0.0
    computations: tuple[Computation, ...] = ()
    chats: int = 0

    @property
    def text(self) -> str:
        """The system prompt with the documents behind it."""
        return "\n\n".join(filter(None, (self.system, *(document.block for document in self.documents))))

    def of_model(self, fingerprint: str, type_k: str, type_v: str) -> Computation | None:
        """What there is for a model and these cache types."""
        wanted = fingerprint, type_k, type_v
        return next((c for c in self.computations if (c.fingerprint, c.type_k, c.type_v) == wanted), None)


def proper_name(text: str) -> str:
    """A name as a person chose it. KvchatError when a prefix cannot be called so."""
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not _NAME.fullmatch(name):
        raise KvchatError(
            f'a prefix cannot be called "{clean_line(text)[:LONGEST_NAME]}"',
            f"take letters, digits, spaces and . + - _, at most {LONGEST_NAME}",
        )
    return name


def folded(name: str) -> str:
    """What is the same for two names that mean the same prefix."""
    return " ".join(unicodedata.normalize("NFC", name).split()).casefold()


class Prefixes:
    """All prefixes of a database. All methods: KvchatError when SQLite cannot do it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def all(self) -> tuple[Prefix, ...]:
        """By name."""
        return self._read("ORDER BY p.folded")

    def get(self, prefix: str) -> Prefix | None:
        """The one with this id."""
        return next(iter(self._read("WHERE p.id = ?", prefix)), None)

    def named(self, name: str) -> Prefix | None:
        """The one with this name, in any case."""
        return next(iter(self._read("WHERE p.folded = ?", folded(name))), None)

    def find(self, name: str) -> Prefix:
        """As `named`. KvchatError when there is none, with the one that was probably meant."""
        found = self.named(name)
        if found is None:
            guess = nearest(folded(name), [each.name for each in self.all()])
            hint = f"did you mean {guess}?" if guess else _LIST_HINT
            raise KvchatError(f'there is no prefix "{clean_line(name)[:LONGEST_NAME]}"', hint)
        return found

    def put(self, prefix: Prefix) -> None:
        """Adds a prefix without its computations, in place of the one that has its name: chats that are on that one
        keep its text."""
        documents = json.dumps([[each.name, each.block] for each in prefix.documents])
        with self._writing() as connection:
            connection.execute("DELETE FROM prefixes WHERE folded = ?", (folded(prefix.name),))
            connection.execute(
                """INSERT INTO prefixes (id, name, folded, system, documents, created, clock)
                VALUES (?, ?, ?, ?, ?, ?, ?)""",
                (
                    *(prefix.id, prefix.name, folded(prefix.name), prefix.system, documents),
                    *(prefix.created, prefix.clock),
                ),
            )

    def computed(self, prefix: str, found: Computation) -> None:
        """Keeps what computing came to, in place of what was known for its model and types. Nothing, for a prefix that
        is gone meanwhile."""
        with self._writing() as connection:
            connection.execute(
                """INSERT OR REPLACE INTO prefix_computations (prefix, fingerprint, type_k, type_v, namespace, model,
                    model_path, tokens, bytes, seconds, computed_at, last_key)
                SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM prefixes WHERE id = ?""",
                (
                    *(found.fingerprint, found.type_k, found.type_v, found.namespace, found.model, found.model_path),
                    *(found.tokens, found.size, found.seconds, found.computed_at, found.last_key, prefix),
                ),
            )

    def used(self, prefix: str, reused: int, fingerprint: str, type_k: str, type_v: str) -> None:
        """Counts a first answer on a prefix, of whose prompt the first `reused` tokens were not computed: the seconds
        that those of the prefix took. Nothing, where it is not computed for this model and these types."""
        with self._writing() as connection:
            connection.execute(
                """UPDATE prefixes SET uses = uses + 1,
                    seconds_saved = seconds_saved + c.seconds * min(1.0, cast(? AS REAL) / max(c.tokens, 1))
                FROM prefix_computations c
                WHERE c.prefix = id AND c.fingerprint = ? AND c.type_k = ? AND c.type_v = ? AND id = ?""",
                (reused, fingerprint, type_k, type_v, prefix),
            )

    def remove(self, prefix: str) -> None:
        """Removes a prefix. Chats that are on it keep its text."""
        with self._writing() as connection:
            connection.execute("DELETE FROM prefixes WHERE id = ?", (prefix,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with translated(self._path), immediate(self._connection):
            yield self._connection

    def _read(self, which: str, *values: str) -> tuple[Prefix, ...]:
        with translated(self._path):
            rows = self._connection.execute(
                f"""SELECT {_PREFIX},
                (SELECT count(*) FROM chats WHERE chats.prefix = p.id AND chats.deleted_at IS NULL)
                FROM prefixes p {which}""",  # noqa: S608
                values,
            ).fetchall()
            found: defaultdict[str, list[Computation]] = defaultdict(list)
            for row in self._connection.execute(
                f"""SELECT {_COMPUTATION} FROM prefix_computations c JOIN prefixes p ON p.id = c.prefix
                {which.partition("ORDER")[0]} ORDER BY c.computed_at""",  # noqa: S608
                values,
            ):
                found[read_text(row[0])].append(_computation(row))
        return tuple(_prefix(row, found[read_text(row[0])]) for row in rows)


def _prefix(row: Sequence[Any], computations: Sequence[Computation]) -> Prefix:
    prefix, name, system, documents, created, clock, uses, seconds_saved, chats = row
    return Prefix(
        id=read_text(prefix),
        name=read_text(name),
        system=read_text(system),
        documents=_documents(read_text(documents)),
        created=read_time(created),
        clock=read_time(clock),
        uses=read_count(uses),
        seconds_saved=read_time(seconds_saved),
        computations=tuple(computations),
        chats=read_count(chats),
    )


def _documents(stored: str) -> tuple[Document, ...]:
    """Those of a damaged column are none: the text is then another one, and is computed as it is."""
    try:
        return tuple(Document(str(name), str(block)) for name, block in json.loads(stored))
    except (ValueError, TypeError, RecursionError):
        return ()


def _computation(row: Sequence[Any]) -> Computation:
    _, fingerprint, type_k, type_v, namespace, model, path, tokens, size, seconds, at, key = row
    return Computation(
        fingerprint=read_text(fingerprint),
        type_k=read_text(type_k),
        type_v=read_text(type_v),
        namespace=read_text(namespace),
        model=read_text(model),
        model_path=read_text(path),
        tokens=read_count(tokens),
        size=max(size, 0) if isinstance(size, int) else 0,
        seconds=read_time(seconds),
        computed_at=read_time(at),
        last_key=key if isinstance(key, bytes) else b"",
    )
