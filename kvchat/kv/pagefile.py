"""Page files through file descriptors: rows into buffers, buffers into a file.

Owns the reads and writes of one open file; must not know where files lie or what an index says. A page is read with
plain reads, never mapped: a bad disk is then an error and not a signal.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_128

from kvchat.errors import FormatError
from kvchat.formats.page import MAX_HEADER, LayerGroup, PageHeader, decode_header, payload_checksum

_IOV_MAX = os.sysconf("SC_IOV_MAX")  # buffers that one preadv or writev takes
_FIRST_READ = 8192  # the whole header of most models
_CHUNK = 2**20


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a page file. Raises OSError, or FormatError when it is no regular file or the disk is bad."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FormatError("it is not a regular file")
            yield fd
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ELOOP):
            raise FormatError(f"it cannot be read: {error.strerror}") from error
        raise


def read_header(fd: int) -> PageHeader:
    """The header, in bounded memory; the file has the length that it promises. Raises FormatError or OSError."""
    raw = os.pread(fd, _FIRST_READ, 0)
    offset = int.from_bytes(raw[20:24], "little")
    if len(raw) == _FIRST_READ < offset <= MAX_HEADER:
        raw += os.pread(fd, offset - len(raw), len(raw))
    header = decode_header(raw)
    size = os.fstat(fd).st_size
    if size != header.payload_offset + header.payload_bytes:
        raise FormatError(f"page file has {size} bytes, its header promises another length")
    return header


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of one layer group to be read: of tokens [skip, take) of the page, into `views` in payload order."""

    group: str
    skip: int
    take: int
    views: Sequence[memoryview]


def read_rows(fd: int, header: PageHeader, wanted: Wanted) -> None:
    """Fill the views. Raises FormatError when the checksum of the group fails, or when it does not have these rows (the
    views then hold anything), and OSError."""
    group, offset = header.group(wanted.group)
    first = wanted.skip - (group.start - header.position)
    count = wanted.take - wanted.skip
    if not 0 <= first <= group.cells - count or [count * row for row in group.rows] != [v.nbytes for v in wanted.views]:
        raise FormatError("page has other rows than the cells that it is read for")
    if count == group.cells:
        _fill(fd, wanted.views, header.payload_offset + offset)
        _compare(payload_checksum(wanted.views), group)
        return
    payload = memoryview(bytearray(group.payload_bytes))
    _fill(fd, [payload], header.payload_offset + offset)
    _compare(payload_checksum([payload]), group)
    at = 0
    for row, view in zip(group.rows, wanted.views, strict=True):
        view[:] = payload[at + first * row : at + (first + count) * row]
        at += group.cells * row


def verify_payload(fd: int, header: PageHeader) -> None:
    """Read the whole payload in bounded memory. Raises FormatError when a checksum fails, and OSError."""
    offset = header.payload_offset
    for group in header.groups:
        state = xxh3_128()
        scratch = memoryview(bytearray(min(_CHUNK, group.payload_bytes)))
        for start in range(0, group.payload_bytes, _CHUNK):
            part = scratch[: min(_CHUNK, group.payload_bytes - start)]
            _fill(fd, [part], offset + start)
            state.update(part)
        _compare(state.digest(), group)
        offset += group.payload_bytes


def write_all(fd: int, parts: Sequence[memoryview]) -> None:
    """Append all parts to an open file. Raises OSError."""
    _each(parts, lambda buffers, _: os.writev(fd, buffers))


def _fill(fd: int, views: Sequence[memoryview], offset: int) -> None:
    def read(buffers: Sequence[memoryview], done: int) -> int:
        count = os.preadv(fd, buffers, offset + done)
        if not count:
            raise FormatError("page file ends within its payload")
        return count

    _each(views, read)


def _each(parts: Sequence[memoryview], move: Callable[[Sequence[memoryview], int], int]) -> None:
    """Call `move(buffers, bytes done)`, which says how many bytes it moved, until all parts are through."""
    pending = [part for part in parts if part.nbytes]
    first = done = 0
    while first < len(pending):
        moved = move(pending[first : first + _IOV_MAX], done)
        done += moved
        while first < len(pending) and moved >= pending[first].nbytes:
            moved -= pending[first].nbytes
            first += 1
        if moved:
            pending[first] = pending[first][moved:]


def _compare(checksum: bytes, group: LayerGroup) -> None:
    if checksum != group.checksum:
        raise FormatError("page fails its checksum")
