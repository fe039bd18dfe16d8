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
from pathlib import Path

from xxhash import xxh3_128

from kvchat.errors import FormatError
from kvchat.formats.page import MAX_HEADER, PageHeader, decode_header, payload_checksum

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


def read_rows(fd: int, header: PageHeader, skip: int, take: int, views: Sequence[memoryview]) -> None:
    """Fill `views` with the rows of tokens [skip, take) in payload order.

    Raises FormatError when the checksum of the whole payload fails or the views do not fit (the views then hold
    anything), and OSError.
    """
    spans = header.spans(skip, take)
    if [size for _, size in spans] != [view.nbytes for view in views]:
        raise FormatError("page has other layers than the cells that it is read for")
    if sum(size for _, size in spans) == header.payload_bytes:
        _fill(fd, views, header.payload_offset)
        _compare(payload_checksum(views), header)
        return
    payload = memoryview(bytearray(header.payload_bytes))
    _fill(fd, [payload], header.payload_offset)
    _compare(payload_checksum([payload]), header)
    for (offset, size), view in zip(spans, views, strict=True):
        view[:] = payload[offset : offset + size]


def verify_payload(fd: int, header: PageHeader) -> None:
    """Read the whole payload in bounded memory. Raises FormatError when its checksum fails, and OSError."""
    state = xxh3_128()
    scratch = memoryview(bytearray(min(_CHUNK, header.payload_bytes)))
    for start in range(0, header.payload_bytes, _CHUNK):
        part = scratch[: min(_CHUNK, header.payload_bytes - start)]
        _fill(fd, [part], header.payload_offset + start)
        state.update(part)
    _compare(state.digest(), header)


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


def _compare(checksum: bytes, header: PageHeader) -> None:
    if checksum != header.checksum:
        raise FormatError("page fails its checksum")
