"""One file from the network to the disk. Owns when it is whole, and whether a fetch can go on; must not know where URLs
come from.

A fetch that was interrupted, also by a crash, goes on where it stopped if the server still has the same file. Only a
file that is whole, has its checksum and is GGUF gets its name, in one step.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.formats.gguf import read_header
from kvchat.library import unfinished
from kvchat.library.pace import size_words
from kvchat.library.transport import Answer, Wire, host_of
from kvchat.library.unfinished import Known
from kvchat.paths import ensure_private

SPARE = 256 << 20  # bytes of the disk that are left to others
_CHUNK = 256 << 10
_TRIES, _FIRST_TRIES = 5, 2  # connections without one new byte; before the first byte
_LONGEST_REST = 30.0  # seconds between them
_AGAIN_LATER = frozenset((408, 425, 429, 500, 502, 503, 504))
_MOST_DIGITS = 18  # of a number of bytes
_OTHER = "another version of it, perhaps; hf:OWNER/NAME fetches what is there now"
_HEX = frozenset("0123456789abcdef")

Tell = Callable[[int, int | None], None]
"""Bytes that are there, and bytes in all, None where the server does not say; called often."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to fetch. `size` (bytes) and `sha256` (hex) where they are known for sure; `headers` carry a token."""

    url: str
    size: int | None = None
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is there. `sha256`: of its bytes. `checked`: somebody said before what it should be."""

    path: Path
    size: int
    sha256: str
    checked: bool


class _Restart(Exception):
    """What we have is of no use: from the first byte, then."""


def fetch(remote: Remote, target: Path, tell: Tell, wire: Wire) -> Fetched:
    """Fetch a file, or the rest of it.

    KvchatError: refused or gone, too little room, a connection that breaks again and again, wrong checksum, not GGUF,
    being fetched by someone else. Stopped: by `wire.stop`. What has come stays for another try, unless it is wrong.
    """
    ensure_private(target.parent)
    part = unfinished.part_of(target)
    with unfinished.locked(part) as file:
        return _Fetch(remote, target, part, file, tell, wire).run()


class _Fetch:
    def __init__(self, remote: Remote, target: Path, part: Path, file: FileIO, tell: Tell, wire: Wire) -> None:
        self._remote, self._target, self._part = remote, target, part
        self._file, self._tell, self._wire = file, tell, wire
        self._known = unfinished.read(part, remote.url, remote.sha256)
        self._have = 0
        self._digest = hashlib.sha256()
        self._resumed = False
        self._answered = False

    def run(self) -> Fetched:
        self._take_stock()
        tries, furthest = 0, self._have  # of all tries: to come as far again is no progress
        while True:
            try:
                self._receive()
                wrong = self._wrong()
                if not wrong:
                    return self._finish()
                if not self._resumed:
                    unfinished.forget(self._part)
                    raise KvchatError(wrong, "what came was removed; try again, or another source")
                self._start_over()  # the beginning may have been damaged on the disk
            except _Restart:
                self._start_over()
            except (OSError, http.client.HTTPException) as error:
                self._wire.check()
                tries = 1 if self._have > furthest else tries + 1
                self._answered = self._answered or self._have > furthest
                furthest = max(furthest, self._have)
                if tries >= (_TRIES if self._answered else _FIRST_TRIES) or _untrusted(error):
                    raise self._broken(error) from error
                self._wire.rest(min(_LONGEST_REST, 0.5 * 2**tries))

    # ------------------------------------------------------------------ what is there

    def _take_stock(self) -> None:
        """Read what came earlier, for the checksum."""
        size = os.fstat(self._file.fileno()).st_size
        if self._known is None or (self._known.total is not None and size > self._known.total):
            self._start_over()
            return
        self._file.seek(0)
        while data := self._file.read(_CHUNK):
            self._wire.check()
            self._digest.update(data)
            self._have += len(data)
        self._resumed = self._have > 0

    def _start_over(self) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._have, self._known, self._resumed = 0, None, False
        self._digest = hashlib.sha256()

    # ------------------------------------------------------------------ what comes

    def _receive(self) -> None:
        """One connection, from where we are to the end. OSError when it breaks."""
        known = self._known
        if known is not None and known.total is not None and self._have == known.total:
            return
        headers = dict(self._remote.headers)
        if known is not None and self._have and (known.etag or known.sha256):  # else nobody could tell a change
            headers["Range"] = f"bytes={self._have}-"
            if known.sha256 is None:  # else that tells, whatever tags a mirror has
                headers["If-Range"] = known.etag
        answer = self._wire.get(self._remote.url, headers)
        with answer.body:
            total = self._begin(answer)
            self._tell(self._have, total)
            self._room_for(total)
            while data := answer.read(_CHUNK):
                self._write(data)
                self._tell(self._have, total)
                self._wire.check()
        self._wire.check()
        if total is not None and self._have < total:
            raise ConnectionError("the connection was cut")
        if total is None:  # the server ended without saying how much it would be
            self._know(answer, self._have)
        elif self._have > total:
            raise _Restart

    def _begin(self, answer: Answer) -> int | None:
        """What the answer means for what we have; the bytes of the whole file."""
        if answer.status == 206 and self._have:
            start, total = _range(answer.headers.get("Content-Range", ""))
            known = self._known
            if known is None or start != self._have or total != known.total:
                raise _Restart
            if known.sha256 is None and known.etag != _etag(answer):
                raise _Restart
            return self._know(answer, total)
        if answer.status == 416 and self._have:
            raise _Restart
        if answer.status != 200:
            raise self._refused(answer)
        if self._have:
            self._start_over()
        chunked = answer.headers.get("Transfer-Encoding", "").lower() == "chunked"  # a length then says nothing
        return self._know(answer, None if chunked else _count(answer.headers.get("Content-Length", "")))

    def _know(self, answer: Answer, total: int | None) -> int | None:
        remote, linked = self._remote, _linked_sha256(answer)
        if None not in (total, remote.size) and total != remote.size:
            raise KvchatError(f"{host_of(remote.url)} has {total:,} bytes there, not {remote.size:,}", _OTHER)
        if None not in (linked, remote.sha256) and linked != remote.sha256:
            raise KvchatError(f"{host_of(remote.url)} has a file of another checksum there: {linked}", _OTHER)
        known = Known(remote.url, _etag(answer), total, remote.sha256 or linked)
        if known != self._known:
            self._known = known
            unfinished.keep(self._part, known)
        return total

    def _write(self, data: bytes) -> None:
        """All of it; what a full disk still took counts."""
        left = memoryview(data)
        while left:
            try:
                written = self._file.write(left)
            except OSError as error:
                raise self._disk(error) from error
            self._digest.update(left[:written])
            self._have += written
            left = left[written:]

    def _room_for(self, total: int | None) -> None:
        free = shutil.disk_usage(self._part.parent).free
        if total is not None and total - self._have > max(0, free - SPARE):
            raise KvchatError(
                f"{size_words(total - self._have)} are to come, and {self._part.parent} has {size_words(free)} free",
                f"make room ({size_words(SPARE)} are left to others), or choose a smaller model",
            )

    # ------------------------------------------------------------------ the end

    def _wrong(self) -> str:
        """What is wrong with the whole file; "" when nothing is."""
        known, remote = self._known, self._remote
        expected = remote.sha256 or (known.sha256 if known is not None else None)
        if remote.size is not None and self._have != remote.size:
            return f"{host_of(remote.url)} sent {self._have:,} bytes and not {remote.size:,}"
        if expected is not None and self._digest.hexdigest() != expected:
            return f"the checksum of what came is wrong: sha256 {self._digest.hexdigest()}, not {expected}"
        try:
            read_header(self._part)
        except KvchatError as error:
            return f"what {host_of(remote.url)} sent is not a model: {error.message.removeprefix(f'{self._part}: ')}"
        return ""

    def _finish(self) -> Fetched:
        if self._target.exists():
            raise KvchatError(f"{self._target} has appeared meanwhile", "remove one of the two")
        try:
            os.fsync(self._file.fileno())
            self._part.replace(self._target)
            unfinished.forget_known(self._part)
        except OSError as error:
            raise self._disk(error) from error
        checked = bool(self._remote.sha256 or (self._known and self._known.sha256))
        return Fetched(self._target, self._have, self._digest.hexdigest(), checked)

    # ------------------------------------------------------------------ errors

    def _refused(self, answer: Answer) -> Exception:
        host, status = host_of(self._remote.url), answer.status
        if status in _AGAIN_LATER:
            return ConnectionError(f"{host} answered {status}")
        if status in (401, 403):
            hint = "the model may ask for an account and its terms to be accepted; a token goes into HF_TOKEN"
            return KvchatError(f"{host} does not give this file to everybody ({status})", hint)
        if status in (404, 410):
            return KvchatError(f"{host} has no such file ({status})", "check the name; it may have moved")
        return KvchatError(f"{host} answered {status}", "try again later, or another source")

    def _disk(self, error: OSError) -> KvchatError:
        kept = f"{size_words(self._have)} of the model have come and stay"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return KvchatError(f"the disk is full: {kept}", "make room, then pull it again")
        return KvchatError(f"{self._part} cannot be written: {error.strerror}", "look at its rights and the disk")

    def _broken(self, error: Exception) -> KvchatError:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        if _untrusted(error):
            return KvchatError(f"{host_of(self._remote.url)} cannot prove who it is: {reason}", "use another source")
        kept = (
            f"{size_words(self._have)} have come and stay; pull it again to go on"
            if self._have
            else "check the network"
        )
        return KvchatError(f"the connection to {host_of(self._remote.url)} failed: {reason}", kept)


def _untrusted(error: Exception) -> bool:
    """Whether the certificate of the server is wrong, which another try does not change."""
    return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)


def _etag(answer: Answer) -> str:
    """What If-Range takes: the strong tag of the hub that sent us on, or of the server, or the time of the last change;
    "" where there is none."""
    tag = answer.linked.get("Etag") or answer.headers.get("Etag") or ""
    return answer.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag


def _linked_sha256(answer: Answer) -> str | None:
    """The checksum by which a hub names the file."""
    tag = answer.linked.get("Etag", "").strip('"').lower()
    return tag if len(tag) == 64 and set(tag) <= _HEX else None


def _range(text: str) -> tuple[int | None, int | None]:
    """First byte and bytes of the whole file, of "bytes 100-199/200"."""
    span, _, total = text.removeprefix("bytes ").partition("/")
    start = span.partition("-")[0]
    return _count(start), _count(total)


def _count(text: str) -> int | None:
    """A number of bytes; None where the text is none, or one that no disk has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
