"""Rows of the index that say something else than the pages: corrected, and never believed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from kv_pages import SECONDS, Disk, page_files, put_chat, read, restore

from kvchat.errors import FormatError
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.overview import chains
from kvchat.kv.rows import LATEST, LONGEST, MOST, Row, check_row
from kvchat.kv.store import PageDamaged, PageMissing, StoreUnwritable
from kvchat.kv.verify import verify

CHAT = list(range(300))

WRONG = {  # of the second page, in SQL
    "ids": f"x'{(77).to_bytes(4, 'little').hex()}'",
    "parent": f"x'{'05' * 32}'",
    "tag": "'f16'",
    "position": "5",
    "kind": "'checkpoint'",
    "complete": "5",
    "bytes": "1",
    "seconds": "1e6",
}


def change(disk: Disk, column: str, value: str) -> None:
    """As damage would: what the schema demands is not asked for."""
    with closing(sqlite3.connect(disk.folder / "index.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        changed = connection.execute(f"UPDATE pages SET {column} = {value} WHERE position = 128")
        assert changed.rowcount == 1


def all_rows(disk: Disk) -> list[Row]:
    with closing(PageIndex(PageFolder(disk.folder))) as index:
        return index.rows()


@pytest.mark.parametrize("column", WRONG)
def test_verify_corrects_rows_that_differ_from_their_page(disk: Disk, column: str) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    store.used(store.match(CHAT).hits)
    right = all_rows(disk)
    change(disk, column, WRONG[column])
    assert all_rows(disk) != right
    report = verify(disk.folder)
    assert (report.pages, report.corrected, report.added, report.damaged, report.stale) == (3, 1, 0, 0, 0)
    assert all_rows(disk) == right  # with the record of use
    assert verify(disk.folder).corrected == 0
    assert restore(store, CHAT) == 300


@pytest.mark.parametrize("column", ["ids", "tag", "complete"])
def test_a_page_is_not_blamed_for_its_row(disk: Disk, column: str) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    files = page_files(disk.folder)
    ids = b"".join(number.to_bytes(4, "little") for number in [*CHAT[128:255], 9])
    change(disk, column, f"x'{ids.hex()}'" if column == "ids" else WRONG[column])
    hits = store.match(CHAT[:256]).hits
    assert len(hits) == 2
    with pytest.raises(PageMissing):
        read(store, hits[1])
    assert page_files(disk.folder) == files
    assert not (disk.folder / "damaged").exists()
    assert restore(store, CHAT) == 300


def test_a_row_that_cannot_be_corrected_is_not_believed_again(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.kv.database.BUSY_SECONDS", 0.05)
    store = disk.store()
    put_chat(store, CHAT)
    change(disk, "tag", "'f16'")
    hits = store.match(CHAT).hits
    with closing(sqlite3.connect(disk.folder / "index.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PageMissing):
            read(store, hits[1])
        assert store.match(CHAT).tokens == 128
        other.execute("ROLLBACK")


BAD = ["'text'", "x'00'", "x''", "-1", "1.5", "9223372036854775807", "1e400", "-1e400", "''"]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    "column",
    [
        "namespace",
        "key",
        "kind",
        "parent",
        "tag",
        "ids",
        "position",
        "complete",
        "bytes",
        "seconds",
        "last_use",
        "hits",
        "seconds_saved",
        "pinned",
    ],
)
def test_a_row_of_anything_is_a_miss_at_most(disk: Disk, column: str, value: str) -> None:
    store = disk.store(budget=12_000)  # about four pages: some must go
    put_chat(store, CHAT)
    change(disk, column, value)
    match = store.match(CHAT)
    for hit in match.hits:
        try:
            read(store, hit)
        except PageMissing:
            break
        except PageDamaged:
            pytest.fail("all pages are sound")
    store.used(match.hits)
    store.protect([hit.key for hit in match.hits])
    try:
        put_chat(store, [*CHAT[:128], *range(7000, 7300)])
    except StoreUnwritable as problem:
        assert "budget" in problem.message
    assert not (disk.folder / "damaged").exists()
    assert verify(disk.folder).damaged == 0
    assert sum(chain.bytes for chain in chains(disk.folder)) <= 12_000
    assert sum(file.stat().st_size for file in page_files(disk.folder)) <= 12_000
    assert [check_row(row) for row in all_rows(disk)]


@pytest.mark.parametrize(
    "column",
    ["namespace", "key", "kind", "parent", "tag", "ids", "position", "complete", "bytes", "last_use", "hits", "pinned"],
)
@pytest.mark.parametrize("value", ["NULL", "x'00'"])
def test_the_schema_refuses_such_rows(disk: Disk, column: str, value: str) -> None:
    put_chat(disk.store(), CHAT)
    with closing(sqlite3.connect(disk.folder / "index.db")) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"UPDATE pages SET {column} = {value}")


def test_rows_at_the_edge() -> None:
    good = Row("0" * 16, bytes(32), "page", bytes(32), "", b"", MOST, MOST, MOST, LONGEST, LATEST, MOST, LONGEST)
    assert check_row(good) is good
    assert check_row(replace(good, kind="checkpoint")).kind == "checkpoint"
    wrong: list[dict[str, Any]] = [
        {"namespace": "../../../../tmp/x"},
        {"key": bytes(31)},
        {"kind": "state"},
        {"kind": None},
        {"parent": bytes(33)},
        {"ids": b"123"},
        {"seconds": float("nan")},
        {"position": -1},
        {"complete": MOST + 1},
        {"bytes": MOST + 1},
    ]
    for changes in wrong:
        with pytest.raises(FormatError):
            check_row(replace(good, **changes))


@pytest.mark.parametrize("changed", [-1e10, 1e15])
def test_files_of_any_age_are_indexed(disk: Disk, changed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    put_chat(disk.store(), CHAT)
    (disk.folder / "index.db").unlink()
    real = PageFolder.files
    monkeypatch.setattr(PageFolder, "files", lambda self: (replace(file, changed=changed) for file in real(self)))
    assert [row.tokens for row in all_rows(disk)] == [128, 128, 44]
    assert verify(disk.folder).corrected == 0


def test_seconds_saved_has_an_end(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    change(disk, "seconds_saved", str(LONGEST))
    store.used(store.match(CHAT).hits)
    assert [row.seconds_saved for row in all_rows(disk)] == [SECONDS, LONGEST, SECONDS]
