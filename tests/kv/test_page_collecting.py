"""What `kv gc` deletes, and what it leaves."""

from __future__ import annotations

import fcntl
import io
import json
import os
import time
from pathlib import Path

import pytest
from kv_pages import Disk, page_files, pin, put_chat, restore

from kvchat.commands.kv import run_gc
from kvchat.config import Settings
from kvchat.kv.collecting import Collected, collect
from kvchat.kv.problems import StoreUnwritable
from kvchat.paths import Paths

A, B = list(range(300)), list(range(500, 800))
NO_LIMIT = 2**30


def old(path: Path, seconds: float) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def temporary(disk: Disk, seconds: float) -> Path:
    path = page_files(disk.folder)[0].with_name(f".{'0' * 64}.1.{int(seconds)}.tmp")
    path.write_bytes(b"half a page")
    return old(path, seconds)


def test_nothing_to_do(disk: Disk) -> None:
    assert collect(disk.folder, NO_LIMIT) == Collected()
    put_chat(disk.store(), A)
    size = sum(path.stat().st_size for path in page_files(disk.folder))
    assert collect(disk.folder, NO_LIMIT) == Collected(pages=3, bytes=size, budget=NO_LIMIT)


def test_unfinished_files_go_at_once_unless_somebody_writes_them(disk: Disk) -> None:
    put_chat(disk.store(), A)
    dead, fresh, alive = (temporary(disk, seconds) for seconds in (30, 0, 40))
    with alive.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert collect(disk.folder, NO_LIMIT).temporary == 1
        assert (dead.exists(), fresh.exists(), alive.exists()) == (False, True, True)
        old(alive, 4000)  # no write takes an hour
        assert collect(disk.folder, NO_LIMIT).temporary == 1
    assert not alive.exists()


def test_damaged_pages_and_rows_without_a_file_go(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, A)
    first, second, third = page_files(disk.folder)
    (disk.folder / "damaged").mkdir()
    first.rename(disk.folder / "damaged" / first.name)
    second.unlink()
    found = collect(disk.folder, NO_LIMIT)
    assert (found.damaged, found.stale, found.pages) == (1, 2, 1)
    assert not list((disk.folder / "damaged").iterdir())
    assert third.exists()


def test_pages_that_the_index_lost_count_again(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, A)
    (row, *_) = disk.rows()
    store._index.remove([(row.namespace, row.key)])
    assert collect(disk.folder, NO_LIMIT).added == 1
    assert restore(disk.store(), A) == len(A)


def test_down_to_the_budget_leaves_before_roots_and_never_what_is_pinned(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, A)
    pin(store, keys[0])
    put_chat(store, B)
    store.used(store.match(B).hits)
    size = disk.file(keys[0]).stat().st_size
    whole = sum(path.stat().st_size for path in page_files(disk.folder))
    found = collect(disk.folder, whole - size)
    assert found.evicted >= 1
    assert found.bytes == whole - found.freed <= found.budget
    assert restore(disk.store(), B) == len(B)
    everything = collect(disk.folder, 1)
    assert (everything.pages, everything.over) == (1, size - 1)
    assert restore(disk.store(), A) == 128


def test_what_cannot_be_deleted_is_told(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    put_chat(disk.store(), A)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(StoreUnwritable):
            collect(disk.folder, 1)
    assert restore(disk.store(), A) == len(A)


def test_the_command(home: Path) -> None:
    paths = Paths.find(os.environ)
    disk = Disk(paths.kv_folder)
    put_chat(disk.store(), A)
    out = io.StringIO()
    assert run_gc(paths, Settings(kv_budget=1), json=False, out=out) == 0
    assert out.getvalue().splitlines()[0].startswith("3 pages evicted, ")
    assert "0 pages left" in out.getvalue()
    out = io.StringIO()
    assert run_gc(paths, Settings(kv_budget=1), json=True, out=out) == 0
    assert json.loads(out.getvalue())[0]["pages"] == 0
