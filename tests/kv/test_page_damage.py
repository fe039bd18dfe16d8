"""Whatever happens to a page file: a miss, never wrong rows."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kv_pages import Disk, page, page_files, put_chat, read, restore

from kvchat.errors import FormatError
from kvchat.kv.pagefile import opened
from kvchat.kv.store import PageDamaged, PageMissing, PageStore, Wanted

CHAT = list(range(500, 800))


def path_of(disk: Disk, key: bytes) -> Path:
    (found,) = [path for path in page_files(disk.folder) if path.name == key.hex()]
    return found


def expect_damage(store: PageStore, disk: Disk, key: bytes, index: int) -> None:
    """Reading the page raises, the page is moved away, what was before it is still found, and it can be put again."""
    hit = store.match(CHAT).hits[index]
    assert hit.key == key
    with pytest.raises(PageDamaged) as caught:
        read(store, hit)
    assert isinstance(caught.value, FormatError)
    assert key.hex() not in {path.name for path in page_files(disk.folder)}
    assert [path.name for path in (disk.folder / "damaged").iterdir()] == [f"{store.namespace.id}-{key.hex()}"]
    assert restore(store, CHAT) == hit.start
    put_chat(store, CHAT)
    assert restore(store, CHAT) == 300
    shutil.rmtree(disk.folder / "damaged")


def test_a_flipped_byte_anywhere_is_seen(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    size = path_of(disk, keys[1]).stat().st_size
    payload = size - 128 * 20
    checksum = path_of(disk, keys[1]).read_bytes().index(b'"checksum":"') + len('"checksum":"')
    # magic, counts, payload size, both checksums, parent, ids, JSON, padding, first and last bytes of rows
    regions = [0, 13, 17, 21, 25, 33, 47, 48, 79, 80, 80 + 511, 80 + 512, checksum, checksum + 31]
    regions += [payload - 1, payload, size - 1]
    regions += random.Random(3).sample(range(12, size), 25)  # not the version: see test_page_versions.py
    for offset in regions:
        file = path_of(disk, keys[1])
        raw = bytearray(file.read_bytes())
        raw[offset] ^= 0x10
        file.write_bytes(raw)
        expect_damage(store, disk, keys[1], 1)


def test_a_flipped_byte_is_seen_when_a_part_is_read(disk: Disk) -> None:
    store = disk.store()
    (key,) = put_chat(store, CHAT[:128])
    raw = bytearray(path_of(disk, key).read_bytes())
    raw[-1] ^= 1  # in the last row, which is not asked for
    path_of(disk, key).write_bytes(raw)
    hit = store.match(CHAT[:10]).hits[0]
    with pytest.raises(PageDamaged):
        read(store, hit)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def truncate_to_nothing(file: Path) -> None:
    os.truncate(file, 0)


def truncate_in_the_header(file: Path) -> None:
    os.truncate(file, 100)


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage", [truncate, truncate_to_nothing, truncate_in_the_header, append, zeros, link, pipe, directory]
)
def test_damaged_files_are_moved_away(disk: Disk, damage: Callable[[Path], None]) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    damage(path_of(disk, keys[1]))
    expect_damage(store, disk, keys[1], 1)


def test_a_page_of_another_chat_in_its_place(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    others = put_chat(store, list(range(300)))
    shutil.copy(path_of(disk, others[1]), path_of(disk, keys[1]))
    expect_damage(store, disk, keys[1], 1)


def test_a_page_of_another_place_in_the_same_chat(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    shutil.copy(path_of(disk, keys[0]), path_of(disk, keys[1]))
    expect_damage(store, disk, keys[1], 1)


def test_a_page_of_another_namespace_in_its_place(disk: Disk) -> None:
    """Of another cache type: same tokens, same sizes, but the rows mean something else."""
    store = disk.store()
    keys = put_chat(store, CHAT)
    others = put_chat(disk.store(type_k="bf16"), CHAT)
    shutil.copy(path_of(disk, others[1]), path_of(disk, keys[1]))
    expect_damage(store, disk, keys[1], 1)


def test_other_layers_than_the_cells_have(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    hit = store.match(CHAT).hits[0]
    with pytest.raises(PageDamaged):
        store.read(hit, [Wanted("full", 0, 128, [memoryview(bytearray(128 * 20))])])


def test_what_cannot_be_moved_away_is_not_matched_again(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    truncate(path_of(disk, keys[1]))
    hit = store.match(CHAT).hits[1]

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(PageDamaged):
            read(store, hit)
        assert store.match(CHAT).tokens == 128
    store.put(page(keys[0], CHAT[128:256], 128))
    assert restore(store, CHAT) == 300


def test_a_bad_disk_is_damage(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    hit = store.match(CHAT).hits[0]

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", fail)
        with pytest.raises(PageDamaged):
            read(store, hit)
    assert store.match(CHAT).tokens == 0


def test_a_passing_failure_loses_no_page(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files says nothing about the page."""
    store = disk.store()
    put_chat(store, CHAT)
    hit = store.match(CHAT).hits[0]

    def fail(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        with pytest.raises(PageMissing):
            read(store, hit)
    assert store.match(CHAT).tokens == 0  # not again and again in this process
    assert restore(disk.store(), CHAT) == 300


def test_only_the_last_damaged_files_are_kept(disk: Disk) -> None:
    store = disk.store()
    for first in range(20):
        (key,) = put_chat(store, [first])
        truncate(path_of(disk, key))
        with pytest.raises(PageDamaged):
            read(store, store.match([first]).hits[0])
    assert len(list((disk.folder / "damaged").iterdir())) == 16


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_descriptors_are_closed(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    before = open_descriptors()
    truncate(path_of(disk, keys[1]))
    with pytest.raises(PageDamaged):
        read(store, store.match(CHAT).hits[1])
    with pytest.raises(FormatError), opened(disk.folder):
        pass
    assert open_descriptors() == before


def test_a_put_heals_a_damaged_page_that_was_not_read(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    for key in keys:
        file = path_of(disk, key)
        file.write_bytes(file.read_bytes()[:-1])
    fresh = disk.store()
    put_chat(fresh, CHAT)
    assert len(list((disk.folder / "damaged").iterdir())) == 3
    assert restore(fresh, CHAT) == 300
