"""The index is a copy of what the headers say: losing or breaking it loses nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from kv_pages import Disk, page, page_files, put_chat, restore

from kvchat.kv.elsewhere import reason_elsewhere
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.store import PageStore, StoreUnwritable

CHAT = list(range(300))


def index_file(disk: Disk) -> Path:
    return disk.folder / "index.db"


def delete(file: Path) -> None:
    for path in file.parent.glob("index.db*"):
        path.unlink()


def delete_only_the_main_file(file: Path) -> None:
    file.unlink()


def garbage(file: Path) -> None:
    file.write_bytes(b"this is no database, whatever its name says" * 100)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    os.truncate(file, 4096)


def scribble(file: Path) -> None:
    """The header stays, all pages behind it are noise."""
    with file.open("r+b") as out:
        out.seek(100)
        out.write(os.urandom(file.stat().st_size - 100))


def other_version(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def other_schema(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.executescript("DROP TABLE pages; CREATE TABLE pages (surprise)")
    connection.close()


BREAKERS = [delete, delete_only_the_main_file, garbage, empty, cut, scribble, other_version, other_schema]


@pytest.mark.parametrize("breaker", BREAKERS)
def test_broken_between_two_starts(disk: Disk, breaker: Callable[[Path], None]) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    store.close()
    breaker(index_file(disk))
    store = disk.store()
    assert restore(store, CHAT) == 300
    put_chat(store, [*CHAT, 1])
    store.close()
    assert restore(disk.store(), [*CHAT, 1]) == 301


@pytest.mark.parametrize("breaker", [delete, delete_only_the_main_file, garbage, scribble, other_schema])
def test_broken_while_open(disk: Disk, breaker: Callable[[Path], None]) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    with sqlite3.connect(index_file(disk)) as connection:  # so that all is in the main file
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    breaker(index_file(disk))
    put_chat(store, [7, 8, 9])
    assert restore(store, CHAT) == 300
    assert restore(store, [7, 8, 9]) == 3
    assert restore(disk.store(), CHAT) == 300


def test_rebuild_leaves_out_what_is_no_page(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    files = page_files(disk.folder)
    files[0].write_bytes(b"nonsense")
    (files[1].parent / ("e" * 64)).write_bytes(b"")
    (files[1].parent / "notes.txt").write_bytes(b"")
    files[2].rename(files[2].with_name(files[2].name[:2] + "0" * 62))  # a name that is not its key
    store.close()
    delete(index_file(disk))
    index = PageIndex(PageFolder(disk.folder))
    assert [row.key.hex() for row in index.rows()] == [files[1].name]


def test_two_stores_of_one_folder_see_each_other(disk: Disk) -> None:
    one, other = disk.store(), disk.store()
    put_chat(one, CHAT)
    assert restore(other, CHAT) == 300
    put_chat(other, [*CHAT, 5])
    assert restore(one, [*CHAT, 5]) == 301


def test_an_index_rebuilt_by_another_store_is_followed(disk: Disk) -> None:
    one = disk.store()
    put_chat(one, CHAT)
    delete(index_file(disk))
    other = disk.store()
    put_chat(other, [7, 8, 9])
    assert restore(one, [7, 8, 9]) == 3
    put_chat(one, [4, 5])
    assert restore(other, [4, 5]) == 2


def test_files_of_the_index_are_private(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    modes = {path.name: path.stat().st_mode & 0o777 for path in disk.folder.glob("index*")}
    assert modes == dict.fromkeys(("index.db", "index.db-shm", "index.db-wal", "index.lock"), 0o600)


# ------------------------------------------------------------------ errors of SQLite


def put_fails(store: PageStore) -> None:
    with pytest.raises(StoreUnwritable) as caught:
        store.put(page(store.namespace.root, [1], 0))
    assert caught.value.hint


def test_after_close_nothing_is_found_and_nothing_written(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    hits = store.match(CHAT).hits
    store.close()
    store.close()
    assert store.match(CHAT).tokens == 0
    assert reason_elsewhere(store, CHAT, 0) is None
    store.used(hits)
    store.protect([hits[0].key])
    put_fails(store)
    delete(index_file(disk))  # and it does not come back to life
    assert store.match(CHAT).tokens == 0
    put_fails(store)
    assert len(page_files(disk.folder)) == 3


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
        sqlite3.IntegrityError,
        sqlite3.OperationalError,
        sqlite3.DatabaseError,
        sqlite3.Error,
    ],
)
def test_whatever_sqlite_says_is_a_miss_or_not_saved(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, error: type[sqlite3.Error]
) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    hits = store.match(CHAT).hits

    def refuse(*_: object, **__: object) -> None:
        raise error("no")

    with monkeypatch.context() as patch:
        patch.setattr("kvchat.kv.database._transaction", refuse)
        assert store.match(CHAT).tokens == 0
        store.used(hits)
        store.protect([hits[0].key])
        put_fails(store)
    assert len(page_files(disk.folder)) == 3
    assert restore(store, CHAT) == 300
    assert store.put(page(store.namespace.root, [1], 0)) > 0
    assert restore(disk.store(), [1]) == 1


# ------------------------------------------------------------------ a folder that cannot be written


def test_an_index_that_cannot_be_opened_is_read_from_the_headers(disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    delete(index_file(disk))
    index_file(disk).mkdir()
    store = disk.store()
    assert restore(store, CHAT) == 300
    store.used(store.match(CHAT).hits)
    store.protect([])
    with pytest.raises(StoreUnwritable) as caught:
        store.put(page(store.namespace.root, [1], 0))
    assert caught.value.hint
    assert len(page_files(disk.folder)) == 3
    index_file(disk).rmdir()  # and once it can be opened, it is
    assert store.put(page(store.namespace.root, [1], 0)) > 0
    assert restore(disk.store(), [1]) == 1


def test_a_place_that_is_a_file(disk: Disk) -> None:
    disk.folder.write_bytes(b"")
    store = disk.store()
    assert store.match(CHAT).tokens == 0
    with pytest.raises(StoreUnwritable) as caught:
        store.put(page(store.namespace.root, [1], 0))
    assert caught.value.hint
    assert disk.folder.read_bytes() == b""


def test_reading_goes_on_while_another_process_keeps_the_index_locked(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.kv.database.BUSY_SECONDS", 0.05)
    store = disk.store()
    put_chat(store, CHAT)
    other = sqlite3.connect(index_file(disk), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert restore(store, CHAT) == 300
    with pytest.raises(StoreUnwritable):
        store.put(page(store.namespace.root, [1], 0))
    assert len(page_files(disk.folder)) == 3  # no file without a row
    other.execute("ROLLBACK")
    other.close()
    assert store.put(page(store.namespace.root, [1], 0)) > 0
