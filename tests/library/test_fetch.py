"""One file from a server to the disk, over everything that can go wrong on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import tiny
from pull_server import Web, serving

from kvchat.errors import KvchatError
from kvchat.library import fetch as module
from kvchat.library.fetch import Fetched, Remote, fetch
from kvchat.library.transport import Stopped, Wire

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny.build("llama", tmp_path_factory.mktemp("model")).read_bytes()


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rests between tries."""
    monkeypatch.setattr(Wire, "rest", lambda self, seconds: self.check())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models" / "m.gguf"


def get(
    web: Web, target: Path, sha256: str | None = None, size: int | None = None, wire: Wire | None = None
) -> Fetched:
    told: list[tuple[int, int | None]] = []
    remote = Remote(f"{web.url}/m.gguf", size, sha256)
    return fetch(remote, target, lambda done, total: told.append((done, total)), wire or Wire())


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def left_over(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir()) if target.parent.exists() else []


def test_a_file_is_fetched(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    told: list[tuple[int, int | None]] = []
    found = fetch(Remote(f"{web.url}/m.gguf"), target, lambda done, total: told.append((done, total)), Wire())
    assert found == Fetched(target, len(model), sha(model), checked=False)
    assert target.read_bytes() == model
    assert left_over(target) == ["m.gguf"]
    assert told[0] == (0, len(model)) and told[-1] == (len(model), len(model))
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.parent.stat().st_mode & 0o777 == 0o700


def test_a_checksum_that_agrees(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    assert get(web, target, sha(model), len(model)).checked


def test_the_hubs_own_checksum_counts(web: Web, target: Path, model: bytes) -> None:
    """A hub names the file by its sha256 in the answer that sends us elsewhere for it."""
    web.put("/file", model)
    web.put("/m.gguf", b"", location="/file", headers={"X-Linked-Etag": f'"{sha(model)}"', "X-Linked-Size": "1"})
    assert get(web, target).checked
    web.put("/m.gguf", b"", location="/file", headers={"X-Linked-Etag": f'"{sha(b"other")}"'})
    with pytest.raises(KvchatError, match="checksum"):
        get(web, target.with_name("n.gguf"))


# Each row: after how many bytes the connection breaks, time after time.
@pytest.mark.parametrize("cuts", [[1000], [1, 1, 1], [0, 5000, 0, 0, 0], [4096, 100_000]])
def test_cut_connections_are_gone_on_with(web: Web, target: Path, model: bytes, cuts: list[int]) -> None:
    web.put("/m.gguf", model, cuts=list(cuts))
    assert get(web, target, sha(model)).sha256 == sha(model)
    starts = [sum(cuts[:number]) for number in range(len(cuts) + 1)]
    assert web.ranges() == [f"bytes={start}-" if start else "" for start in starts]


def test_too_many_cut_connections(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model, cuts=[3000, *[0] * 20])
    with pytest.raises(KvchatError, match=r"connection to 127\.0\.0\.1 failed") as caught:
        get(web, target)
    assert "3 KiB have come and stay" in caught.value.hint
    assert left_over(target) == ["m.gguf.part", "m.gguf.part.json"]
    assert target.with_name("m.gguf.part").read_bytes() == model[:3000]
    web.pages["/m.gguf"].cuts = []
    assert get(web, target).sha256 == sha(model)  # goes on there
    assert web.ranges()[-1] == "bytes=3000-"


def test_nobody_listens(target: Path) -> None:
    with pytest.raises(KvchatError, match="refused") as caught:
        fetch(Remote("http://127.0.0.1:9/m.gguf"), target, lambda *_: None, Wire())
    assert "network" in caught.value.hint
    assert left_over(target) == []


def interrupted(web: Web, target: Path, model: bytes, after: int, **page: Any) -> None:
    """What a fetch leaves that was ended after so many bytes."""
    web.put("/m.gguf", model, cuts=[after, *[0] * 20], **page)
    with pytest.raises(KvchatError):
        get(web, target)
    web.asked.clear()
    web.pages["/m.gguf"].cuts = []


def test_another_file_meanwhile(web: Web, target: Path, model: bytes) -> None:
    """The server has another version: what came of the first is worth nothing."""
    interrupted(web, target, model, 5000)
    other = model + bytes(64)
    web.put("/m.gguf", other)
    assert get(web, target).sha256 == sha(other)
    assert web.ranges() == ["bytes=5000-"]


def test_a_server_that_cannot_tell_a_change(web: Web, target: Path, model: bytes) -> None:
    """Neither tag, time nor checksum: what came may be the beginning of another file, so it is fetched anew."""
    interrupted(web, target, model, 5000, etag="")
    assert get(web, target).sha256 == sha(model)
    assert web.ranges() == [""]


def test_a_change_that_only_its_time_tells(web: Web, target: Path, model: bytes) -> None:
    then, now = ({"Last-Modified": f"Mon, 30 Nov 2026 08:0{minute}:00 GMT"} for minute in (1, 2))
    interrupted(web, target, model, 5000, etag="", headers=then)
    web.put("/m.gguf", model, etag="", headers=then)
    assert get(web, target).sha256 == sha(model)
    assert web.ranges() == ["bytes=5000-"]
    target.unlink()
    interrupted(web, target, model, 5000, etag="", headers=then)
    other = model + bytes(64)
    web.put("/m.gguf", other, etag="", headers=now)
    assert get(web, target).sha256 == sha(other)


def test_a_disk_that_fails(web: Web, target: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the network's fault, and no reason to try again."""

    class Broken(FileIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.EIO, "Input/output error")

    web.put("/m.gguf", model)
    monkeypatch.setattr("kvchat.library.unfinished.FileIO", Broken)
    with pytest.raises(KvchatError, match="cannot be written: Input/output error"):
        get(web, target)
    assert len(web.asked) == 1


def test_a_server_without_ranges(web: Web, target: Path, model: bytes) -> None:
    interrupted(web, target, model, 5000, ranges=False)
    assert get(web, target).sha256 == sha(model)


def test_a_part_that_was_damaged(web: Web, target: Path, model: bytes) -> None:
    """The beginning on the disk is not what came: the checksum tells, and it is fetched anew once."""
    interrupted(web, target, model, 5000)
    target.with_name("m.gguf.part").write_bytes(bytes(5000))
    assert get(web, target, sha(model)).sha256 == sha(model)
    assert web.ranges() == [""]  # another checksum is wanted than was known: from the first byte
    target.unlink()
    web.put("/m.gguf", model, headers={"X-Linked-Etag": f'"{sha(model)}"'})
    interrupted(web, target, model, 5000, headers={"X-Linked-Etag": f'"{sha(model)}"'})
    target.with_name("m.gguf.part").write_bytes(bytes(5000))
    assert get(web, target).checked
    assert web.ranges() == ["bytes=5000-", ""]


@pytest.mark.parametrize("known", ["", "[]", "{", '{"url": 1}', '{"url": "http://elsewhere/", "etag": "", "total": 1}'])
def test_damaged_notes_are_forgotten(web: Web, target: Path, model: bytes, known: str) -> None:
    interrupted(web, target, model, 5000)
    target.with_name("m.gguf.part.json").write_text(known)
    assert get(web, target).sha256 == sha(model)
    assert web.ranges() == [""]


def test_a_part_longer_than_the_file(web: Web, target: Path, model: bytes) -> None:
    interrupted(web, target, model, 5000)
    target.with_name("m.gguf.part").write_bytes(model + b"more")
    assert get(web, target).sha256 == sha(model)


def test_a_part_that_is_whole(web: Web, target: Path, model: bytes) -> None:
    """Ended between the last byte and the new name: nothing is fetched again."""
    interrupted(web, target, model, 5000)
    target.with_name("m.gguf.part").write_bytes(model)
    assert get(web, target).sha256 == sha(model)
    assert web.asked == []


def test_a_wrong_checksum(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    with pytest.raises(KvchatError, match="checksum of what came is wrong") as caught:
        get(web, target, "0" * 64)
    assert sha(model) in caught.value.message
    assert left_over(target) == []


def test_a_wrong_size(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    with pytest.raises(KvchatError, match=f"has {len(model):,} bytes there, not 17"):
        get(web, target, size=17)
    assert left_over(target) == []


def test_another_file_is_noticed_before_it_comes(web: Web, target: Path, model: bytes) -> None:
    """The hub says what it has: a file of another checksum is not fetched to its end first."""
    web.put("/file", model)
    web.put("/m.gguf", b"", location="/file", headers={"X-Linked-Etag": f'"{sha(b"other")}"'})
    with pytest.raises(KvchatError, match="a file of another checksum there"):
        get(web, target, sha(model))
    assert left_over(target) == []


def test_an_address_with_other_letters(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", b"", location="/\xfc%20/x.gguf")
    web.put("/%C3%BC%20/x.gguf", model)
    assert get(web, target).sha256 == sha(model)


def test_a_page_instead_of_a_model(web: Web, target: Path) -> None:
    web.put("/m.gguf", b"<html>Please log in</html>")
    with pytest.raises(KvchatError, match="is not a model: not a GGUF file"):
        get(web, target)
    assert left_over(target) == []


@pytest.mark.parametrize("length", ["9" * 5000, "\xb2"])
def test_a_length_that_is_none(web: Web, target: Path, model: bytes, length: str) -> None:
    web.put("/m.gguf", model, sized=False, headers={"Content-Length": length})
    assert get(web, target).sha256 == sha(model)


@pytest.mark.parametrize("span", ["bytes \xb2-9/99", f"bytes 100-9/{'9' * 5000}"])
def test_a_range_that_is_none(web: Web, target: Path, model: bytes, span: str) -> None:
    interrupted(web, target, model, 100, headers={"Content-Range": span})
    assert get(web, target).sha256 == sha(model)


def test_no_end_of_beginning_anew(web: Web, target: Path, model: bytes) -> None:
    """A connection that is cut at the same place each time, to a server whose ranges are of no use."""
    page = web.put("/m.gguf", model, cuts=[100] * 60, headers={"Content-Range": "bytes 7-9/99"})
    with pytest.raises(KvchatError, match="the connection was cut"):
        get(web, target)
    assert len(page.cuts) > 40


def test_more_than_the_server_said(web: Web, target: Path, model: bytes) -> None:
    """Chunks count for HTTP, whatever length stands beside them."""
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(model), model)
    web.put("/m.gguf", chunks, etag="", sized=False, headers={"Transfer-Encoding": "chunked", "Content-Length": "10"})
    assert get(web, target).sha256 == sha(model)
    assert len(web.asked) == 1


def test_a_cut_that_nobody_noticed(web: Web, target: Path, model: bytes) -> None:
    """Without a length the end of the connection is the end of the file: the file itself tells."""
    web.put("/m.gguf", model[:-100], sized=False)
    with pytest.raises(KvchatError, match="is not a model: truncated"):
        get(web, target)
    web.put("/m.gguf", model, sized=False)
    assert get(web, target).size == len(model)


# Each row: a status, what is said, a word of the hint.
@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (401, "does not give this file to everybody", "HF_TOKEN"),
        (403, "does not give this file to everybody", "HF_TOKEN"),
        (404, "no such file", "check the name"),
        (410, "no such file", "check the name"),
        (418, "answered 418", "another source"),
    ],
)
def test_refused(web: Web, target: Path, status: int, message: str, hint: str) -> None:
    web.put("/m.gguf", b"", status=[status])
    with pytest.raises(KvchatError, match=message) as caught:
        get(web, target)
    assert hint in caught.value.hint
    assert len(web.asked) == 1
    assert left_over(target) == []


def test_a_server_that_is_busy(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model, status=[503])
    assert get(web, target).sha256 == sha(model)
    web.put("/m.gguf", model, status=[503] * 20)
    with pytest.raises(KvchatError, match="answered 503"):
        get(web, target.with_name("n.gguf"))


def test_no_room(web: Web, target: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    web.put("/m.gguf", model)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, module.SPARE + len(model) - 1))
    with pytest.raises(KvchatError, match="are to come, and"):
        get(web, target)
    assert left_over(target) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, module.SPARE + len(model)))
    assert get(web, target).size == len(model)


def test_a_disk_that_becomes_full(web: Web, target: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before stays, to the byte; the rest comes when there is room."""
    web.put("/m.gguf", model)
    room = [10_000]

    class Full(FileIO):
        def write(self, data: Any) -> int:
            if room[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = super().write(bytes(data)[: min(len(data), room[0], 7000)])
            room[0] -= written
            return written

    monkeypatch.setattr("kvchat.library.unfinished.FileIO", Full)
    with pytest.raises(KvchatError, match="the disk is full") as caught:
        get(web, target)
    assert "make room" in caught.value.hint
    kept = target.with_name("m.gguf.part").read_bytes()
    assert kept == model[: len(kept)]
    room[0] = 10**9
    assert get(web, target, sha(model)).sha256 == sha(model)


def come(target: Path, size: int) -> None:
    """Wait until so many bytes of the file are on the disk."""
    part = target.with_name(target.name + ".part")
    for _ in range(1000):
        if part.exists() and part.stat().st_size == size:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{size} bytes never came")


def test_stopped_in_the_middle(web: Web, target: Path, model: bytes) -> None:
    """At once, although the server says nothing: another thread cuts the connection."""
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    wire, ends = Wire(), []

    def run() -> None:
        try:
            get(web, target, wire=wire)
        except Stopped:
            ends.append("stopped")

    thread = threading.Thread(target=run)
    thread.start()
    assert web.halfway.wait(60)
    come(target, len(model) // 2)
    wire.stop()
    thread.join(60)
    assert ends == ["stopped"]
    gate.set()
    web.pages["/m.gguf"].gate = None
    assert get(web, target).sha256 == sha(model)
    assert web.ranges()[-1] == f"bytes={len(model) // 2}-"
    with pytest.raises(Stopped):
        get(web, target.with_name("n.gguf"), wire=wire)
    assert left_over(target) == ["m.gguf"]


def test_two_at_once(web: Web, target: Path, model: bytes) -> None:
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    found: list[Fetched] = []
    thread = threading.Thread(target=lambda: found.append(get(web, target)))
    thread.start()
    assert web.halfway.wait(60)
    with pytest.raises(KvchatError, match=r"m\.gguf is being fetched already"):
        get(web, target)
    gate.set()
    thread.join(60)
    assert found[0].sha256 == sha(model)


def test_a_file_that_has_appeared_meanwhile_is_not_replaced(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    target.parent.mkdir()
    target.write_text("mine")
    with pytest.raises(KvchatError, match="has appeared meanwhile"):
        get(web, target)
    assert target.read_text() == "mine"


KILLED = """
import sys
from pathlib import Path
from kvchat.library.fetch import Remote, fetch
from kvchat.library.transport import Wire
fetch(Remote(sys.argv[1]), Path(sys.argv[2]), lambda done, total: None, Wire())
"""


def test_a_process_that_is_killed(web: Web, target: Path, model: bytes) -> None:
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    child = subprocess.Popen([sys.executable, "-c", KILLED, f"{web.url}/m.gguf", str(target)])
    assert web.halfway.wait(20)
    come(target, len(model) // 2)
    child.kill()
    child.wait()
    gate.set()
    web.pages["/m.gguf"].gate = None
    assert get(web, target).sha256 == sha(model)
    assert web.ranges()[-1] == f"bytes={len(model) // 2}-"


# ------------------------------------------------------------------ redirects


def test_redirects_are_followed(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", b"", location="/a")
    web.put("/a", b"", location=f"{web.url}/b?sig=1")
    web.put("/b", model)
    assert get(web, target).sha256 == sha(model)


def test_a_token_stays_with_its_host(web: Web, target: Path, model: bytes) -> None:
    with serving() as elsewhere:
        elsewhere.put("/b", model)
        web.put("/m.gguf", b"", location="/a")
        web.put("/a", b"", location=f"{elsewhere.url}/b")
        remote = Remote(f"{web.url}/m.gguf", headers={"Authorization": "Bearer secret"})
        fetch(remote, target, lambda *_: None, Wire())
        assert [asked.headers.get("Authorization") for asked in web.asked] == ["Bearer secret"] * 2
        assert "Authorization" not in elsewhere.asked[0].headers


def test_a_redirect_without_an_end(web: Web, target: Path) -> None:
    web.put("/m.gguf", b"", location="/m.gguf")
    with pytest.raises(KvchatError, match="redirects without an end"):
        get(web, target)


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//", "data:,x", "http://[", "http:///x"])
def test_a_redirect_to_what_is_no_web_page(web: Web, target: Path, where: str) -> None:
    web.put("/m.gguf", b"", location=where)
    with pytest.raises(KvchatError):
        get(web, target)
    assert left_over(target) == []


def test_resumes_through_a_redirect(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", b"", location="/b", headers={"X-Linked-Etag": f'"{sha(model)}"'})
    web.put("/b", model, cuts=[4000])
    assert get(web, target).checked
    assert web.ranges() == ["", "", "bytes=4000-", "bytes=4000-"]
    assert not any("If-Range" in asked.headers for asked in web.asked)  # mirrors have tags of their own


def test_notes_do_not_hold_tokens(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model, cuts=[3000, *[0] * 20])
    remote = Remote(f"{web.url}/m.gguf", headers={"Authorization": "Bearer secret"})
    with pytest.raises(KvchatError):
        fetch(remote, target, lambda *_: None, Wire())
    notes = target.with_name("m.gguf.part.json")
    assert "secret" not in notes.read_text()
    assert json.loads(notes.read_text())["total"] == len(model)
    assert notes.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(web: Web, target: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    target.parent.mkdir(mode=0o500)
    with pytest.raises(KvchatError, match="cannot be written"):
        get(web, target)
