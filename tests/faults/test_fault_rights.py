"""A real full disk (a small tmpfs), and rights that are lost: in processes of their own, where they can be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NAMESPACE = ["unshare", "-r", "-m"]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]

FULL = """
import os, sqlite3, sys
sys.path.insert(0, {tests!r})
from contextlib import closing
from pathlib import Path
from kv_pages import Disk, put_chat, restore
from kvchat.chats.schema import NotSavedError
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.kv.store import StoreUnwritable
from kvchat.kv.verify import verify

top = Path({folder!r})
disk = Disk(top / "kv")
pages = disk.store()
old = list(range(300))
put_chat(pages, old)
store = ChatStore(top / "chats.db")
(top / "ballast").write_bytes(bytes(200_000))
parent, count, refused = None, 0, None
while refused is None:
    message = Message(f"m{{count}}", "c", parent, "user", "word " * 2000, 1.0, "")
    try:
        store.add_turn(Chat("c", "t", 1.0, 1.0, "", 1.0, "", None), [message])
    except NotSavedError as error:
        refused = error
    else:
        parent, count = message.id, count + 1
assert "full" in refused.message and refused.hint, refused
assert count > 5, count
first, saved = 1000, True
while saved:
    try:
        put_chat(pages, list(range(first, first + 300)))
    except StoreUnwritable as error:
        saved = False
        assert error.hint
    first += 300
    assert first < 100_000
assert restore(pages, old) == 300
assert not list((top / "kv").rglob("*.tmp"))
(top / "ballast").unlink()
store.add_turn(Chat("c", "t", 1.0, 1.0, "", 1.0, "", None), [message])
put_chat(pages, list(range(9000, 9300)))
store.close(), pages.close()
with closing(ChatStore(top / "chats.db")) as again:
    assert len(again.path(message.id)) == count + 1
with closing(sqlite3.connect(top / "chats.db")) as raw:
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
report = verify(disk.folder)
assert (report.damaged, report.stale, report.added) == (0, 0, 0), report
print("sound")
"""

LOST = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from kv_pages import Disk, put_chat, restore
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.errors import KvchatError
from kvchat.kv.store import PageMissing, StoreUnwritable

top = Path({folder!r})
disk = Disk(top / "kv")
pages, old, new = disk.store(), list(range(300)), list(range(500, 800))
put_chat(pages, old)
store = ChatStore(top / "data" / "chats.db")

def add(name, parent):
    store.add_turn(Chat("c", "t", 1.0, 1.0, "", 1.0, "", None), [Message(name, "c", parent, "user", "words", 1.0, "")])

add("one", None)
(disk.folder / "pages").chmod(0)
(top / "data").chmod(0)
for work, errors in ((lambda: restore(pages, old), PageMissing), (lambda: put_chat(pages, new), StoreUnwritable),
                     (lambda: add("two", "one"), KvchatError)):
    try:
        work()
    except errors as error:
        assert error.hint, error
    else:
        raise AssertionError("it worked without rights")
try:
    ChatStore(top / "data" / "chats.db")
except KvchatError as error:
    assert error.hint
(disk.folder / "pages").chmod(0o700)
(top / "data").chmod(0o700)
put_chat(pages, new)
assert restore(disk.store(), old) == restore(disk.store(), new) == 300
add("two", "one")
assert len(store.path("two")) == 2
store.close()
for file in (top / "data").iterdir():
    file.chmod(0o400)
(top / "data").chmod(0o500)
try:
    store = ChatStore(top / "data" / "chats.db")
    add("three", "two")
except KvchatError as error:
    assert error.hint
else:
    raise AssertionError("written without rights")
(top / "data").chmod(0o700)
print("sound")
"""


def run(command: list[str], code: str, folder: Path) -> None:
    program = code.format(tests=str(Path(__file__).parents[1]), folder=str(folder))
    done = subprocess.run(
        [*command, sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "sound"), done.stderr


def test_a_disk_without_room(tmp_path: Path) -> None:
    mount = [*NAMESPACE, "sh", "-c", f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}" && exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    run(mount, FULL, tmp_path)


def test_rights_that_are_lost() -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        command: list[str] = []
        if os.geteuid() == 0:
            command = NOBODY
            os.chown(folder, 65534, 65534)
            trial = [*command, sys.executable, "-c", f"import kvchat, os; os.listdir({top!r})"]
            if not shutil.which("setpriv") or subprocess.run(trial, check=False, capture_output=True).returncode:
                pytest.skip("root may do everything, and another user cannot be had here")
        run(command, LOST, folder)
