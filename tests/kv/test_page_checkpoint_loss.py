"""Checkpoints that are dropped, evicted or damaged: the chat loses a state, never gets a wrong one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from kv_pages import (
    BUFFERS,
    STATE_BYTES,
    Disk,
    empty_page,
    page,
    page_files,
    pin,
    put_chat,
    put_state,
    put_states,
    read_state,
    restore,
    state_ends,
)

from kvchat.errors import FormatError
from kvchat.formats.page import chain_tokens
from kvchat.kv.store import Checkpoint, PageDamaged, PageMissing, PageStore, StoreUnwritable, Wanted
from kvchat.kv.verify import verify

CHAT = list(range(1000, 1300))  # two full pages and a tail of 44


# ------------------------------------------------------------------ dropped, evicted


def test_drop_deletes_states_and_no_page(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, [100, 200, 290])
    found = store.checkpoints(store.match(CHAT))
    store.drop(found[:2])
    assert state_ends(store, CHAT) == [290]
    assert len(page_files(disk.folder)) == 3 + 1
    assert restore(store, CHAT) == 300
    store.drop(found)  # two are gone already
    store.drop([])
    assert len(page_files(disk.folder)) == 3
    assert [row.kind for row in disk.rows()] == ["page"] * 3
    assert put_state(store, CHAT[:200]) > 0
    assert state_ends(store, CHAT) == [200]


def test_drop_spares_what_is_pinned(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, [100, 200])
    found = store.checkpoints(store.match(CHAT))
    pin(store, found[0].key)
    store.drop(found)
    assert state_ends(store, CHAT) == [100]


def test_drop_never_fails(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, [100, 200])
    found = store.checkpoints(store.match(CHAT))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        store.drop(found)
    assert state_ends(store, CHAT) == [100, 200]
    disk.file(found[0].key).unlink()  # another process was faster
    store.drop(found)
    assert state_ends(store, CHAT) == []
    store.close()
    store.drop(found)


def test_a_state_goes_before_the_page_it_hangs_on(disk: Disk, tmp_path: Path) -> None:
    """The page is older, but without it nothing would lead to the state."""
    store = disk.store()
    put_chat(store, CHAT[:128])
    put_state(store, CHAT[:150])
    measure = Disk(tmp_path / "measure").store()
    size = measure.put(page(measure.namespace.root, [7], 0))
    small = disk.store(budget=size + sum(file.stat().st_size for file in page_files(disk.folder)) - 1)
    put_chat(small, [7])  # one byte more than there is room for
    assert sorted((row.kind, row.tokens) for row in disk.rows()) == [("page", 1), ("page", 128)]
    assert len(page_files(disk.folder)) == 2
    assert restore(small, CHAT) == 128


def test_of_equally_old_ones_a_state_goes_before_its_own_page(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT[:128])
    put_states(store, CHAT, [40, 100, 128])
    store.protect([*keys, *(each.key for each in store.checkpoints(store.match(CHAT)))])
    assert [row.kind for row in store._index.leaves(9)] == ["checkpoint"] * 3 + ["page"]


def test_states_of_the_open_chat_stay(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT[:128])
    put_state(store, CHAT[:100])
    states = store.checkpoints(store.match(CHAT))
    small = disk.store(budget=sum(file.stat().st_size for file in page_files(disk.folder)))
    small.protect([*keys, *(each.key for each in states)])
    with pytest.raises(StoreUnwritable, match="budget"):
        put_chat(small, [7])
    assert state_ends(small, CHAT) == [100]
    small.protect(keys)
    put_chat(small, [7])
    assert state_ends(small, CHAT) == []
    assert restore(small, CHAT) == 128


def test_a_pinned_state_keeps_the_page_it_hangs_on(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT[:128])
    store.put(empty_page(chain_tokens(store.namespace.root, "", CHAT[:128]), CHAT[128:150], 128))
    put_state(store, CHAT[:150])
    (state,) = store.checkpoints(store.match(CHAT))
    pin(store, state.key)
    assert [row.position for row in store._index.leaves(9)] == [128]


# ------------------------------------------------------------------ damage


def expect_damage(store: PageStore, disk: Disk, found: Checkpoint) -> None:
    with pytest.raises(PageDamaged) as caught:
        read_state(store, found)
    assert isinstance(caught.value, FormatError)
    assert state_ends(store, CHAT) == [100]
    assert restore(store, CHAT) == 300
    assert put_state(store, CHAT[:200]) > 0
    assert state_ends(store, CHAT) == [100, 200]


def with_two_states(disk: Disk) -> tuple[PageStore, Checkpoint]:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, [100, 200])
    return store, store.checkpoints(store.match(CHAT))[1]


def test_a_flipped_byte_anywhere_in_a_state_is_seen(disk: Disk) -> None:
    store, found = with_two_states(disk)
    size = disk.file(found.key).stat().st_size
    offsets = {0, 13, 33, 48, 80, size - STATE_BYTES, size - 1, *random.Random(3).sample(range(12, size), 25)}
    for offset in offsets:  # not in the version: see test_page_versions.py
        raw = bytearray(disk.file(found.key).read_bytes())
        raw[offset] ^= 0x10
        disk.file(found.key).write_bytes(raw)
        expect_damage(store, disk, found)


def test_a_state_of_other_tokens_in_its_place(disk: Disk) -> None:
    store, found = with_two_states(disk)
    put_state(store, CHAT[:199])
    other = next(each for each in store.checkpoints(store.match(CHAT)) if each.end == 199)
    disk.file(found.key).write_bytes(disk.file(other.key).read_bytes())
    store.drop([other])
    expect_damage(store, disk, found)


def test_a_page_in_the_place_of_a_state(disk: Disk) -> None:
    store, found = with_two_states(disk)
    tail = store.match(CHAT).hits[1]
    disk.file(found.key).write_bytes(disk.file(tail.key).read_bytes())
    expect_damage(store, disk, found)


def test_other_layers_than_the_model_has(disk: Disk) -> None:
    store, found = with_two_states(disk)
    views = [memoryview(bytearray(row)) for row in reversed(BUFFERS["state"])]
    with pytest.raises(PageDamaged):
        store.read(found, [Wanted("state", found.rows - 1, found.rows, views)])


def test_a_state_that_is_gone_is_a_miss(disk: Disk) -> None:
    store, found = with_two_states(disk)
    disk.file(found.key).unlink()
    with pytest.raises(PageMissing):
        read_state(store, found)
    assert state_ends(store, CHAT) == [100]
    assert not (disk.folder / "damaged").exists()
    assert put_state(store, CHAT[:200]) > 0


def test_a_put_heals_a_damaged_state_that_was_not_read(disk: Disk) -> None:
    _, found = with_two_states(disk)
    file = disk.file(found.key)
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    fresh = disk.store()
    assert put_state(fresh, CHAT[:200]) > 0
    assert state_ends(fresh, CHAT) == [100, 200]


@pytest.mark.parametrize("kind", ["page", "checkpoint"])
def test_a_file_is_not_blamed_for_a_row_that_calls_it_the_other_kind(disk: Disk, kind: str) -> None:
    store, found = with_two_states(disk)
    key = store.match(CHAT).hits[2].key if kind == "page" else found.key
    files = page_files(disk.folder)
    row = store._index.get(store.namespace.id, key)
    assert row is not None
    wrong = replace(row, kind="checkpoint" if kind == "page" else "page")
    if kind == "checkpoint":  # so that it is what continues the first page best
        gone = store.match(CHAT).hits[1].key
        store._index.remove([(store.namespace.id, gone)])
    store._index.add(wrong)
    with pytest.raises(PageMissing):
        if kind == "page":
            read_state(store, next(each for each in store.checkpoints(store.match(CHAT)) if each.key == key))
        else:
            store.read(next(hit for hit in store.match(CHAT).hits if hit.key == key), [])
    assert page_files(disk.folder) == files
    corrected = store._index.get(store.namespace.id, key)
    assert corrected is not None and corrected.facts == row.facts


def test_verify_sees_damage_in_a_state(disk: Disk) -> None:
    store, found = with_two_states(disk)
    files = page_files(disk.folder)
    report = verify(disk.folder)
    assert (report.pages, report.bytes) == (5, sum(file.stat().st_size for file in files))
    assert (report.damaged, report.corrected, report.added, report.stale) == (0, 0, 0, 0)
    file = disk.file(found.key)
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    report = verify(disk.folder)
    assert (report.pages, report.damaged) == (4, 1)
    assert [path.name for path in (disk.folder / "damaged").iterdir()] == [f"{store.namespace.id}-{found.key.hex()}"]
    assert state_ends(store, CHAT) == [100]


def test_an_index_rebuilt_from_the_files_knows_them(disk: Disk) -> None:
    store, _ = with_two_states(disk)
    before = sorted(row.facts for row in disk.rows())
    store.close()
    for path in disk.folder.glob("index*"):
        path.unlink()
    assert state_ends(disk.store(), CHAT) == [100, 200]
    assert sorted(row.facts for row in disk.rows()) == before
    assert verify(disk.folder).corrected == 0
