"""The database file: created private, refused when it is not ours, migrated with a backup, shared by processes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats.schema import APPLICATION_ID, MIGRATIONS, NotSavedError, connect, immediate, translated
from kvchat.chats.store import ChatStore
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction

ADD_COLUMN = ("ALTER TABLE chats ADD COLUMN colour TEXT NOT NULL DEFAULT 'none'",)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def insert_chat(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(
        """INSERT INTO chats (id, title, created, updated, system, clock, model, settings)
        VALUES (?, 'title', 1, 1, '', 1, '', '{}')""",
        (name,),
    )


def test_new_file_is_private_and_durable(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "home" / "chats.db"
    before = os.umask(0)  # the most careless umask there is
    try:
        with closing(connect(path)) as connection:
            insert_chat(connection, "a")
            files = {file.name: mode(file) for file in path.parent.iterdir()}
            assert files == {"chats.db": 0o600, "chats.db-wal": 0o600, "chats.db-shm": 0o600}
            assert mode(path.parent) == 0o700
            assert mode(path.parent.parent) == 0o700
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
            assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
            assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    finally:
        os.umask(before)


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    connect(path).close()
    path.chmod(0o644)
    connect(path).close()
    assert mode(path) == 0o600


def test_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    connect(path, (*MIGRATIONS, ADD_COLUMN)).close()
    content = path.read_bytes()
    with pytest.raises(KvchatError, match="newer kvchat") as caught:
        connect(path)
    assert "update" in caught.value.hint
    assert path.read_bytes() == content


def test_older_version_is_migrated_and_a_backup_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(connect(path)) as connection:
        insert_chat(connection, "kept")
        # Still open, so the row is only in the -wal file: the backup must have it all the same.
        with closing(connect(path, (*MIGRATIONS, ADD_COLUMN))) as newer:
            assert newer.execute("SELECT id, colour FROM chats").fetchall() == [("kept", "none")]
            assert newer.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    backup = tmp_path / f"chats.db.v{len(MIGRATIONS)}.backup"
    assert mode(backup) == 0o600
    assert not backup.with_name(f"{backup.name}.tmp").exists()
    shutil.copy(backup, tmp_path / "restored.db")
    with closing(connect(tmp_path / "restored.db")) as restored:
        assert restored.execute("SELECT id FROM chats").fetchall() == [("kept",)]
        assert restored.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


def test_the_first_version_is_migrated(tmp_path: Path) -> None:
    """Who gave the titles that are there is not known, so nobody but a person replaces them."""
    path = tmp_path / "chats.db"
    with closing(connect(path, MIGRATIONS[:1])) as first:
        first.execute("INSERT INTO chats VALUES ('c', 'title', 1, 1, '', 1, '', NULL, NULL, '{}')")
        first.execute("INSERT INTO messages VALUES (1, 'm', 'c', NULL, 'user', 'words', 1, '', '', NULL, NULL)")
        first.execute("UPDATE chats SET head = 'm'")
    with closing(ChatStore(path)) as store:
        chat = store.get("c")
        assert (chat.title, chat.title_by, chat.pinned_at, chat.head) == ("title", "person", None, "m")
        assert store.search("words")[0].message == "m"
        store.pin("c")
        assert store.get("c").pinned_at is not None
    assert (tmp_path / "chats.db.v1.backup").exists()


def test_failed_migration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(connect(path)) as connection:
        insert_chat(connection, "kept")
    broken = (*ADD_COLUMN, "INSERT INTO nowhere VALUES (1)")
    with pytest.raises(KvchatError, match="nowhere"):
        connect(path, (*MIGRATIONS, broken))
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert "colour" not in [row[1] for row in connection.execute("PRAGMA table_info(chats)")]


@pytest.mark.parametrize(
    "content",
    [
        b"These are my notes, not a database.\n" * 100,
        b"x",  # shorter than a header
        b"SQLite format 3\0" + b"\xff" * 4096,  # the right magic, then rubbish
    ],
)
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(content)
    with pytest.raises(KvchatError) as caught:
        connect(path)
    assert caught.value.hint
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE chats (id TEXT)")
        other.commit()
    content = path.read_bytes()
    with pytest.raises(KvchatError, match="not a chat database"):
        connect(path)
    assert path.read_bytes() == content
    assert not (tmp_path / "chats.db-wal").exists()


def test_unusable_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KvchatError):
        connect(tmp_path / "file" / "chats.db")  # the folder is a file
    (tmp_path / "chats.db").mkdir()
    with pytest.raises(KvchatError, match="not a chat database"):
        connect(tmp_path / "chats.db")
    assert mode(tmp_path / "chats.db") & 0o100  # still a folder that can be entered
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere" / "chats.db")
    with pytest.raises(KvchatError, match="cannot be opened"):
        connect(tmp_path / "link.db")


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "chats.db")) as connection:
        with pytest.raises(ZeroDivisionError), immediate(connection):
            insert_chat(connection, "a")
            raise ZeroDivisionError
        assert not connection.in_transaction
        assert connection.execute("SELECT count(*) FROM chats").fetchone() == (0,)


def test_a_locked_file_may_be_written_later(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(connect(path)) as one, closing(connect(path)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        with immediate(one), pytest.raises(NotSavedError, match="locked"), translated(path), immediate(other):
            pass


WRITER = """
import sys
from pathlib import Path
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
path, name = Path(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
store = ChatStore(path)
for turn in range(20):
    chat = Chat(f"{name}{turn}", "t", 1.0, 1.0, "", 1.0, "", None)
    store.add_turn(chat, [Message(f"{name}{turn}m", chat.id, None, "user", "words", 1.0, "")])
store.close()
"""


def test_processes_create_and_write_the_file_together(tmp_path: Path) -> None:
    path = tmp_path / "home" / "chats.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    errors = [writer.communicate(timeout=60)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], errors
    with closing(ChatStore(path)) as store:
        assert len(store.chats()) == 60
        assert all(summary.messages == 1 for summary in store.chats())


def test_a_file_from_before_evictions_keeps_its_ids(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(connect(path, MIGRATIONS[:3])) as third:
        insert_chat(third, "c")
        third.execute("INSERT INTO messages VALUES (1, 'm', 'c', NULL, 'user', 'words', 1, '', '', NULL, NULL)")
        third.execute("INSERT INTO message_ids VALUES ('m', 'key', ?)", (b"\x07\0\0\0\x08\0\0\0",))
        third.execute("INSERT INTO drafts VALUES ('c', 'half a', '[]')")
        third.execute("UPDATE chats SET head = 'm'")
    with closing(ChatStore(path)) as store:
        known = store.known_ids("m", "key")["m"]
        assert (known.ids, known.evictions) == ((7, 8), ())
        assert store.draft("c").text == "half a"
        store.set_evictions("m", "key", (Eviction(2, ((0, 1),)),))
        assert store.known_ids("m", "key")["m"].evictions == (Eviction(2, ((0, 1),)),)
    assert (tmp_path / "chats.db.v3.backup").exists()
