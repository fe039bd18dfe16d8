"""What must hold after a soak, and all along: what was said is there, database and page store are sound, no file is too
many. The record of what was said is a file: what the test itself keeps in memory must not grow."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from kvchat.chats.types import Message
from kvchat.kv.verify import VerifyReport, verify

_EXPECTED = re.compile(
    r"chats\.db|state/[\w.-]+\.json|logs/engine(\.old)?\.log|kv/index\.(db|lock)"
    r"|kv/pages/[0-9a-f]{16}/(namespace\.json|[0-9a-f]{2}/[0-9a-f]{64})|kv/pins/[\w.-]+"
)


class Ledger:
    """What was committed: the last state of each message, and which chats were purged."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.touch()

    def said(self, messages: Iterable[Message]) -> None:
        self._add([each.id, each.chat, _digest(each.role, each.text)] for each in messages)

    def gone(self, chats: Sequence[str]) -> None:
        self._add([None, chat, ""] for chat in chats)

    def _add(self, lines: Iterable[Sequence[str | None]]) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)

    def read(self) -> tuple[dict[str, tuple[str, str]], set[str]]:
        """Chat and digest by message, and the chats that were purged."""
        kept: dict[str, tuple[str, str]] = {}
        gone = set()
        for line in self._file.read_text().splitlines():
            message, chat, digest = json.loads(line)
            if message is None:
                gone.add(chat)
            else:
                kept[message] = chat, digest
        return kept, gone


def stored(kv_folder: Path) -> int:
    """Bytes of all pages and checkpoints."""
    return sum(path.stat().st_size for path in kv_folder.glob("pages/*/??/*"))


def check_end(home: Path, ledger: Ledger) -> list[str]:
    """After the end of everything; sentences about what is wrong."""
    files = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    problems = [f"a file is too many: {name}" for name in files if not _EXPECTED.fullmatch(name)]
    report = verify(home / "kv")
    if report != VerifyReport(pages=report.pages, bytes=report.bytes) or not report.pages:
        problems.append(f"the page store is not sound: {report}")
    problems += _check_database(home / "chats.db", ledger)
    for path in home.rglob("*"):
        if path.stat().st_mode & 0o077:
            problems.append(f"others have rights to {path.relative_to(home)}")
    return problems


def _check_database(file: Path, ledger: Ledger) -> list[str]:
    said, gone = ledger.read()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
        checked = {name: raw.execute(f"PRAGMA {name}").fetchall() for name in ("integrity_check", "foreign_key_check")}
        there = {
            name: (chat, _digest(role, text))
            for name, chat, role, text in raw.execute("SELECT id, chat, role, text FROM messages")
        }
        unfinished = raw.execute("SELECT count(*) FROM messages WHERE finish IS NULL").fetchone()[0]
    problems = [f"{name}: {found[:3]}" for name, found in checked.items() if found not in ([], [("ok",)])]
    if unfinished:
        problems.append(f"{unfinished} replies have no end")
    for name, (chat, digest) in said.items():
        if chat in gone:
            if name in there:
                problems.append(f"message {name} of a chat that was purged is there")
        elif there.get(name) != (chat, digest):
            problems.append(f"message {name} is {'another one' if name in there else 'not there'}")
    if not said:
        problems.append("nothing was said")
    return problems


def _digest(role: str, text: str) -> str:
    return hashlib.blake2b(f"{role}\0{text}".encode(), digest_size=16).hexdigest()
