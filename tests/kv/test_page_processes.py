"""Several processes and threads on one folder."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from kv_pages import Disk, page_files, put_chat, read, restore

from kvchat.kv.store import PageDamaged, PageMissing
from kvchat.kv.verify import verify

COMMON = list(range(300))


def work(folder: Path, number: int, budget: int) -> None:
    """Write chats that share a beginning, and read others' meanwhile: exit code 0 if nothing was ever wrong."""
    source = random.Random(number)
    store = Disk(folder).store(budget)
    for turn in range(8):
        put_chat(store, COMMON[: source.randint(1, 300)])  # the same pages as everybody
        put_chat(store, [*COMMON[:128], number, turn, *range(source.randint(0, 150))])  # a page of its own
        for hit in store.match(COMMON).hits:
            try:
                read(store, hit)
            except PageMissing:
                break
            except PageDamaged:
                os._exit(3)
    store.close()


@pytest.mark.parametrize("budget", [2**30, 30_000])
def test_processes_write_the_same_and_different_pages(disk: Disk, budget: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(disk.folder, number, budget)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    report = verify(disk.folder)
    assert (report.damaged, report.unreadable, report.stale, report.added) == (0, 0, 0, 0)
    assert report.pages == len(page_files(disk.folder))
    assert not list(disk.folder.rglob("*.tmp"))
    if budget == 2**30:
        store = disk.store()
        assert restore(store, [*COMMON[:128], 2, 7]) == 130


def test_one_thread_reads_while_another_writes(disk: Disk) -> None:
    store = disk.store()
    failures: list[Exception] = []

    def write() -> None:
        try:
            for length in range(5, 300, 5):
                put_chat(store, COMMON[:length])
        except Exception as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        for hit in store.match(COMMON).hits:
            try:
                read(store, hit)
            except PageMissing:  # the tail was dropped between the two
                break
    writer.join()
    assert failures == []
    assert not (disk.folder / "damaged").exists()
    assert restore(store, COMMON) == 295


KILLED = """
import sys, os, signal
sys.path[:0] = {path!r}
from pathlib import Path
from kv_pages import Disk, put_chat
store = Disk(Path({folder!r})).store()
put_chat(store, list(range(128)))
real = os.writev
def torn(fd, buffers):
    real(fd, buffers[:1])
    os.kill(os.getpid(), signal.SIGKILL)
os.writev = torn
put_chat(store, list(range(200)))
"""


def test_a_writer_killed_in_the_middle_of_a_page(disk: Disk) -> None:
    code = KILLED.format(path=sys.path, folder=str(disk.folder))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    store = disk.store()
    assert restore(store, COMMON) == 128
    (left,) = disk.folder.rglob("*.tmp")
    assert verify(disk.folder).temporary == 0  # it may still be at work
    os.utime(left, (left.stat().st_atime, left.stat().st_mtime - 2 * 3600))
    assert verify(disk.folder).temporary == 1
    assert not left.exists()
    put_chat(store, COMMON)
    assert restore(store, COMMON) == 300


def test_only_what_killed_writers_left_is_tidied_away(disk: Disk) -> None:
    store = disk.store()
    store.tidy()  # nothing is there yet
    put_chat(store, COMMON)
    first, second, third = page_files(disk.folder)
    namespace = disk.folder / "pages" / store.namespace.id
    old = [namespace / ".namespace.json.1.1.tmp", first.with_name(f".{first.name}.1.1.tmp")]
    fresh = second.with_name(f".{second.name}.1.2.tmp")
    strange = third.with_name(f".{third.name}.1.3.tmp")
    strange.mkdir()
    for path in (*old, fresh):
        path.write_bytes(b"half a page")
    for path in (*old, strange, first, second, third):
        os.utime(path, (0, 0))
    store.tidy()
    assert set(disk.folder.rglob(".*")) == {fresh, strange}
    assert restore(store, COMMON) == 300


@pytest.mark.parametrize("function", ["lstat", "unlink", "iterdir"])
def test_tidying_never_fails(disk: Disk, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    store = disk.store()
    put_chat(store, COMMON)
    left = page_files(disk.folder)[0].with_name(".x.1.1.tmp")
    left.write_bytes(b"")
    os.utime(left, (0, 0))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, function, refuse)
        store.tidy()
    assert left.exists()


PASSER_BY = """
import contextlib, sqlite3
with contextlib.closing(sqlite3.connect({index!r})) as connection:
    print(connection.execute("SELECT count(*) FROM pages").fetchone()[0])
"""


def test_another_store_in_this_process_does_not_give_up_the_locks_of_the_first(disk: Disk) -> None:
    """Closing any descriptor of a file releases all POSIX locks of the process on it. Without them, the next process
    that closes the database takes itself for the last one, and deletes the journal that this process writes to."""
    store = disk.store()
    put_chat(store, COMMON[:200])
    second = disk.store(type_k="q8_0")
    second.match(COMMON)
    second.close()
    journal = disk.folder / "index.db-wal"
    before = journal.stat().st_ino
    code = PASSER_BY.format(index=str(disk.folder / "index.db"))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "2\n"
    assert journal.exists()
    assert journal.stat().st_ino == before
    put_chat(store, COMMON)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "3\n"


READ_ONLY = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from kv_pages import Disk, page, restore
from kvchat.kv.store import StoreUnwritable
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
store = Disk(Path({folder!r})).store()
assert restore(store, list(range(300))) == 300
try:
    store.put(page(store.namespace.root, [9], 0))
except StoreUnwritable as error:
    sys.exit(0 if error.hint else "no hint")
sys.exit("written")
"""


def test_a_folder_that_may_not_be_written_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as top:
        disk = Disk(Path(top) / "kv")
        store = disk.store()
        put_chat(store, COMMON)
        store.close()
        everything = [Path(top), disk.folder, *disk.folder.rglob("*")]
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)
        code = READ_ONLY.format(path=sys.path, folder=str(disk.folder))
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
        for path in everything:
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert done.returncode == 0, done.stderr
