"""What is deleted when, and what happens when nothing can be written."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from kv_pages import Disk, page, page_files, put_chat, restore

from kvchat.kv.budget import effective_budget
from kvchat.kv.overview import chains
from kvchat.kv.rows import Row, worth
from kvchat.kv.store import PAGE_TOKENS, PageStore, StoreUnwritable

A, B, C = ([number] * PAGE_TOKENS * 2 for number in (1, 2, 3))  # chats of two full pages


def page_size(tmp_path: Path) -> int:
    """Bytes of the file of a full page at this position; the digits of the position are in the header."""
    store = Disk(tmp_path / "measure").store()
    return store.put(page(store.namespace.root, A[:PAGE_TOKENS], 128))


def reuse(store: PageStore, ids: list[int]) -> None:
    store.used(store.match(ids).hits)


def test_the_least_recently_used_goes_first_leaves_before_roots(disk: Disk, tmp_path: Path) -> None:
    size = page_size(tmp_path)
    store = disk.store(budget=4 * size)
    put_chat(store, A)
    put_chat(store, B)
    reuse(store, A)
    put_chat(store, C[:PAGE_TOKENS])
    assert [restore(store, chat) for chat in (A, B, C)] == [256, 128, 128]  # the second page of B
    put_chat(store, C)
    assert [restore(store, chat) for chat in (A, B, C)] == [256, 0, 256]
    put_chat(store, B)
    assert [restore(store, chat) for chat in (A, B, C)] == [0, 256, 256]
    assert sum(path.stat().st_size for path in page_files(disk.folder)) <= 4 * size


def test_the_last_page_goes_before_the_first_of_an_equally_old_chain(disk: Disk, tmp_path: Path) -> None:
    store = disk.store(budget=3 * page_size(tmp_path))
    put_chat(store, A)
    reuse(store, A)
    put_chat(store, B)
    assert [restore(store, chat) for chat in (A, B)] == [128, 256]


def test_pages_of_drafts_go_first_however_new_they_are(disk: Disk, tmp_path: Path) -> None:
    budget = 4 * page_size(tmp_path) + 200  # a label takes room, too
    target, draft = disk.store(budget), disk.store(budget, draft=True, fingerprint="dd" * 16)
    put_chat(target, A)
    put_chat(draft, A)
    draft.protect(put_chat(draft, A))
    put_chat(target, B)
    assert [restore(target, A), restore(target, B), restore(draft, A)] == [256, 256, 0]


def test_drafts_displace_nothing_but_drafts(disk: Disk, tmp_path: Path) -> None:
    budget = 3 * page_size(tmp_path) + 200  # as above
    target, draft = disk.store(budget), disk.store(budget, draft=True, fingerprint="dd" * 16)
    put_chat(target, A)
    put_chat(draft, B[:PAGE_TOKENS])
    put_chat(draft, C[:PAGE_TOKENS])
    assert [restore(target, A), restore(draft, B), restore(draft, C)] == [256, 0, 128]
    put_chat(target, B[:PAGE_TOKENS])
    with pytest.raises(StoreUnwritable):
        put_chat(draft, C[:PAGE_TOKENS])
    assert [restore(target, A), restore(target, B)] == [256, 128]


def test_a_page_that_was_saved_for_drafting_counts_for_more_once_a_chat_uses_it(disk: Disk) -> None:
    """The draft model of one chat answers in another."""
    keys = put_chat(disk.store(draft=True), A)
    assert [chain.draft for chain in chains(disk.folder)] == [True]
    disk.store().protect(keys)
    assert [chain.draft for chain in chains(disk.folder)] == [False]
    disk.store(draft=True).protect(keys)
    assert [chain.draft for chain in chains(disk.folder)] == [False]


def test_the_index_is_rebuilt_with_what_is_for_drafting(disk: Disk) -> None:
    put_chat(disk.store(), A)
    put_chat(disk.store(draft=True, fingerprint="dd" * 16), B)
    for file in disk.folder.glob("index.db*"):
        file.unlink()
    assert sorted(chain.draft for chain in chains(disk.folder)) == [False, True]


def test_protected_pages_stay(disk: Disk, tmp_path: Path) -> None:
    store = disk.store(budget=3 * page_size(tmp_path))
    keys = put_chat(store, A)
    put_chat(store, B[:PAGE_TOKENS])
    store.protect(keys)
    reuse(store, B)  # the chain of A is older now
    put_chat(store, C[:PAGE_TOKENS])
    assert [restore(store, chat) for chat in (A, B, C)] == [256, 0, 128]


def test_the_chat_that_is_open_in_another_process_is_the_last_to_go(disk: Disk, tmp_path: Path) -> None:
    size = page_size(tmp_path)
    here, there = disk.store(budget=4 * size), disk.store(budget=4 * size)
    keys = put_chat(there, A)
    put_chat(here, B)
    there.protect(keys)
    put_chat(here, C)
    assert [restore(here, chat) for chat in (A, B, C)] == [256, 0, 256]


def test_pinned_pages_stay(disk: Disk, tmp_path: Path) -> None:
    store = disk.store(budget=2 * page_size(tmp_path))
    put_chat(store, A)
    (row,) = [row for row in store._index.rows() if row.position == PAGE_TOKENS]
    store._index.remove([(row.namespace, row.key)])
    store._index.add(replace(row, pinned=True))
    with pytest.raises(StoreUnwritable, match="budget"):
        put_chat(store, B)
    assert [restore(store, chat) for chat in (A, B)] == [256, 0]


def test_a_page_does_not_push_out_its_own_past(disk: Disk, tmp_path: Path) -> None:
    size = page_size(tmp_path)
    store = disk.store(budget=2 * size)
    put_chat(store, A)
    with pytest.raises(StoreUnwritable) as caught:
        put_chat(store, A + A[:PAGE_TOKENS])
    assert "--kv-budget" in caught.value.hint
    assert restore(store, A) == 256


def test_a_page_larger_than_the_budget_pushes_nothing_out(disk: Disk) -> None:
    put_chat(disk.store(), A)
    store = disk.store(budget=1000)
    with pytest.raises(StoreUnwritable):
        put_chat(store, B)
    assert restore(store, A) == 256


def test_a_growing_tail_needs_room_once(disk: Disk, tmp_path: Path) -> None:
    store = disk.store(budget=2 * page_size(tmp_path))
    put_chat(store, A[:PAGE_TOKENS])
    put_chat(store, B[:100])
    put_chat(store, B[:PAGE_TOKENS])
    assert [restore(store, chat) for chat in (A, B)] == [128, 128]


def test_a_growing_tail_that_is_the_oldest_is_not_counted_twice(disk: Disk, tmp_path: Path) -> None:
    """50 bytes must go for it: those of the tail that it replaces are not among them."""
    budget = 2 * page_size(tmp_path) - 50
    store = disk.store(budget)
    put_chat(store, B[:100])
    put_chat(store, A[:PAGE_TOKENS])
    put_chat(store, B[:PAGE_TOKENS])
    assert [restore(store, chat) for chat in (A, B)] == [0, 128]
    assert sum(path.stat().st_size for path in page_files(disk.folder)) <= budget


def test_the_budget_is_that_of_all_namespaces(disk: Disk, tmp_path: Path) -> None:
    size = page_size(tmp_path)
    put_chat(disk.store(type_k="q8_0"), A)
    store = disk.store(budget=2 * size)
    put_chat(store, B)
    assert restore(store, B) == 256
    assert disk.store(type_k="q8_0").match(A).tokens == 0


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("free", "used", "budget"),
    [
        (10 * 2**30, 0, 2**30),  # a tenth of the free disk
        (9 * 2**30, 2**30, 2**30),  # what is ours counts as free: the budget does not shrink as it fills
        (2**40, 0, 8 * 2**30),  # at most 8 GiB
        (0, 0, 0),
    ],
)
def test_automatic_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, used: int, budget: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**41, 2**41 - free, free))
    assert effective_budget(0, tmp_path / "not" / "there", used) == budget
    assert effective_budget(123, tmp_path, used) == 123


# ------------------------------------------------------------------ nothing can be written


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "folder"),
        (errno.EFBIG, "ulimit"),
        (errno.EIO, "saved"),
    ],
)
@pytest.mark.parametrize("function", ["writev", "open", "mkdir", "replace"])
def test_a_disk_that_refuses(disk: Disk, monkeypatch: pytest.MonkeyPatch, code: int, word: str, function: str) -> None:
    store = disk.store()
    put_chat(store, A)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, refuse)
        with pytest.raises(StoreUnwritable) as caught:
            store.put(page(store.namespace.root, C, 0))
    assert word in caught.value.hint
    assert restore(store, A) == 256
    assert len([path for path in (disk.folder / "pages").rglob("*") if path.is_file()]) == 3  # no temporary file
    assert store.put(page(store.namespace.root, C[:PAGE_TOKENS], 0)) > 0


def test_a_file_that_may_not_grow(disk: Disk) -> None:
    """A real refusal in the middle of a write: the process may not write files of more than 1,000 bytes."""
    store = disk.store()
    put_chat(store, A)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreUnwritable):
            store.put(page(store.namespace.root, B[:PAGE_TOKENS], 0))
        assert restore(store, A) == 256
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(disk.folder.rglob("*.tmp"))
    assert restore(store, B) == 0
    put_chat(store, B)
    assert restore(store, B) == 256


DAY = 86400.0


def test_worth_is_seconds_per_byte_halved_with_each_day() -> None:
    row = Row("0" * 16, bytes(32), "page", bytes(32), "", b"", 0, 0, 1 << 20, 1.0, 0.0)
    assert worth(row) == 0
    assert worth(replace(row, seconds=2.0)) == worth(replace(row, bytes=1 << 19)) == DAY
    assert worth(replace(row, seconds=0.25)) == -2 * DAY
    assert worth(replace(row, seconds=0.0)) == worth(replace(row, bytes=0)) == 0
    assert worth(replace(row, seconds=1e15)) == -worth(replace(row, seconds=1e-15)) == 20 * DAY


@pytest.mark.parametrize(("days", "kept"), [(0.0, "dear"), (1.9, "dear"), (2.1, "cheap")])
def test_what_took_long_to_compute_outlives_what_was_used_later(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, kept: str
) -> None:
    """Four times the seconds per byte are worth two days."""
    store = disk.store(budget=2 * page_size(tmp_path))
    real = time.time
    chats = {"dear": A[:PAGE_TOKENS], "cheap": B[:PAGE_TOKENS]}
    store.put(page(store.namespace.root, chats["dear"], 0, seconds=4.0))
    monkeypatch.setattr(time, "time", lambda: real() + days * DAY)
    store.put(page(store.namespace.root, chats["cheap"], 0, seconds=1.0))
    store.put(page(store.namespace.root, C[:PAGE_TOKENS], 0, seconds=100.0))
    assert [name for name, chat in chats.items() if restore(store, chat)] == [kept]
    assert restore(store, C) == PAGE_TOKENS
