"""The page store on a disk that fails at any one of its calls, on a full one, and without its folder."""

from __future__ import annotations

import errno
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from failing_disk import CALLS, FailingDisk, files_of_at_most
from kv_pages import Disk, page, page_files, put_chat, restore

from kvchat.kv.store import PageMissing, StoreUnwritable
from kvchat.kv.verify import verify

OLD, NEW = list(range(300)), list(range(500, 800))
CASES = [*((function, 0) for function in CALLS), *(("writev", short) for short in (1, 900, 2000))]


def temporary(disk: Disk) -> list[Path]:
    return [path for path in disk.folder.rglob("*") if path.name.endswith(".tmp")]


def assert_sound(disk: Disk, expected: int, left: int = 0) -> None:
    """Nothing of what was whole before is lost, nothing is half there but `left` files that could not be deleted, and
    writing works again."""
    store = disk.store()
    assert restore(store, OLD) == len(OLD)
    assert restore(store, NEW) == expected
    report = verify(disk.folder)
    assert (report.damaged, report.stale, report.added, report.corrected) == (0, 0, left, 0)
    put_chat(store, NEW)
    assert restore(store, NEW) == len(NEW)
    store.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "bad"])
@pytest.mark.parametrize(("function", "short"), CASES)
def test_a_failure_at_every_call(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, function: str, short: int, code: int
) -> None:
    for nth in range(1, 20):
        shutil.rmtree(disk.folder, ignore_errors=True)
        store = disk.store()
        put_chat(store, OLD)
        put_chat(store, NEW[:200])  # a tail, which a longer page will replace
        failing = FailingDisk(function, nth, code, short)
        with failing.in_force(monkeypatch), suppress(StoreUnwritable):
            put_chat(store, NEW)
        store.close()
        come_back = restore(disk.store(), NEW)
        condemned = (function, code) == ("open", errno.EIO)  # a page that the disk cannot read is damaged
        assert come_back in (200, 256, 300) or (condemned and come_back == 0)
        assert not temporary(disk)
        assert_sound(disk, come_back, left=int(function == "unlink" and failing.failed))
        if not failing.failed:
            return
    raise AssertionError("the calls do not come to an end")


def test_files_that_may_not_grow_beyond_any_size(disk: Disk) -> None:
    """Pages, index and its journal run into the limit, wherever it is."""
    size = put_one(disk)
    for limit in (*range(0, 2 * size, size // 5), 16_384, 32_768, 65_536):
        shutil.rmtree(disk.folder)
        store = disk.store()
        put_chat(store, OLD)
        with files_of_at_most(limit), suppress(StoreUnwritable):
            put_chat(store, NEW)
        come_back = restore(store, NEW)
        store.close()
        assert not temporary(disk)
        assert_sound(disk, come_back)


def put_one(disk: Disk) -> int:
    store = disk.store()
    return store.put(page(store.namespace.root, OLD[:128], 0))


def test_the_folder_is_removed_under_an_open_store(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, OLD)
    shutil.rmtree(disk.folder)
    with suppress(PageMissing):
        assert restore(store, OLD) == 0
    assert store.match(OLD).tokens == 0
    put_chat(store, OLD)
    assert restore(store, OLD) == restore(disk.store(), OLD) == len(OLD)


def test_only_the_pages_are_removed_under_an_open_store(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, OLD)
    shutil.rmtree(disk.folder / "pages")
    with pytest.raises(PageMissing):
        restore(store, OLD)
    put_chat(store, OLD)
    assert restore(store, OLD) == len(OLD)
    assert verify(disk.folder).pages == 3


def test_the_folder_becomes_a_file(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, OLD)
    shutil.rmtree(disk.folder)
    disk.folder.write_text("not a folder")
    assert store.match(OLD).tokens == 0
    with pytest.raises(StoreUnwritable) as caught:
        put_chat(store, OLD)
    assert caught.value.hint
    disk.folder.unlink()
    put_chat(store, OLD)
    assert restore(store, OLD) == len(OLD)


@pytest.mark.parametrize("jump", [-10.0 * 365 * 86400, -3600.0, 10.0 * 365 * 86400])
def test_a_clock_that_jumps(disk: Disk, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """What is put and used after the clock was set is there, within the budget, and no temporary file of a writer that
    lives is taken for an old one."""
    store = disk.store()
    put_chat(store, OLD)
    size = sum(path.stat().st_size for path in page_files(disk.folder))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    small = disk.store(budget=2 * size)
    for first in (1000, 2000, 3000, 4000):
        chat = list(range(first, first + 300))
        put_chat(small, chat)
        small.used(small.match(chat).hits)
        assert restore(small, chat) == len(chat)
    assert sum(path.stat().st_size for path in page_files(disk.folder)) <= 2 * size
    report = verify(disk.folder)
    assert (report.damaged, report.stale, report.added) == (0, 0, 0)
