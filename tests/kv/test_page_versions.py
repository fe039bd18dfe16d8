"""Pages that an older or newer program wrote: left alone, counted, and the first to make room."""

from __future__ import annotations

from pathlib import Path

import pytest
from kv_pages import Disk, page_files, put_chat, read, restore

from kvchat.formats.page import VERSION
from kvchat.kv.overview import chains
from kvchat.kv.store import PageMissing
from kvchat.kv.verify import verify

CHAT = list(range(300))


def make_foreign(file: Path) -> bytes:
    """As a page of the next version, of which this program knows nothing but the beginning."""
    raw = bytearray(file.read_bytes())
    raw[8:12] = (VERSION + 1).to_bytes(4, "little")
    file.write_bytes(raw)
    return bytes(raw)


def forget(disk: Disk) -> None:
    for path in disk.folder.glob("index*"):
        path.unlink()


def with_foreign_pages(disk: Disk) -> list[Path]:
    """Three pages of CHAT in the namespace of another version, and no index."""
    store = disk.store(page_version=VERSION + 1)
    put_chat(store, CHAT)
    store.close()
    files = page_files(disk.folder)
    for file in files:
        make_foreign(file)
    forget(disk)
    return files


def test_reading_one_is_a_miss_and_leaves_it(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    (file,) = [path for path in page_files(disk.folder) if path.name == keys[1].hex()]
    raw = make_foreign(file)
    with pytest.raises(PageMissing):
        read(store, store.match(CHAT).hits[1])
    assert restore(store, CHAT) == 128
    assert file.read_bytes() == raw
    assert not (disk.folder / "damaged").exists()
    put_chat(store, CHAT)  # computed again
    assert restore(store, CHAT) == 300
    assert restore(disk.store(), CHAT) == 300


def test_a_put_does_not_set_one_aside(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    for file in page_files(disk.folder):
        make_foreign(file)
    put_chat(store, CHAT)
    assert restore(store, CHAT) == 300
    assert not (disk.folder / "damaged").exists()


def test_verify_counts_them(disk: Disk) -> None:
    files = with_foreign_pages(disk)
    put_chat(disk.store(), CHAT)
    for _ in range(2):
        report = verify(disk.folder)
        assert (report.pages, report.foreign, report.damaged) == (3, 3, 0)
        assert (report.stale, report.added, report.corrected) == (0, 0, 0)
    assert all(file.is_file() for file in files)
    assert [chain.tokens for chain in chains(disk.folder)] == [300]


def test_verify_makes_them_known(disk: Disk) -> None:
    store = disk.store()
    files = with_foreign_pages(disk)
    (disk.folder / "pages" / "nothing").mkdir()
    store = disk.store()
    store._index.remove([(row.namespace, row.key) for row in store._index.rows()])
    assert verify(disk.folder).foreign == 3
    assert store._index.total_bytes() == sum(file.stat().st_size for file in files)


def test_they_take_part_in_the_budget(disk: Disk) -> None:
    files = with_foreign_pages(disk)
    size = sum(file.stat().st_size for file in files)
    store = disk.store(budget=size + 1000)
    put_chat(store, CHAT)
    assert restore(store, CHAT) == 300
    assert sum(file.stat().st_size for file in page_files(disk.folder)) <= size + 1000
    assert len([file for file in files if file.is_file()]) < 3
