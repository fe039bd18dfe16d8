"""A file that is read forward in bounded memory. Owns one file descriptor; must not know any format.

Buffered reads and no memory map: with a map a bad disk kills the process with SIGBUS.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from types import TracebackType

from kvchat.errors import FormatError, KvchatError

_CHUNK = 1 << 20
_U64 = struct.Struct("<Q")
_AGAIN = "copy or download it again"


class BoundedReader:
    """Reads little-endian values and never past the end of the file.

    KvchatError when the file cannot be opened or read, FormatError when it is no regular file or ends too early.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # O_NONBLOCK: opening a named pipe must not wait for a writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(self._fd)
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise FormatError(f"{path} is {kind}, not a model file", "give the path of a .gguf file")
        self.size = info.st_size
        self._buffer = b""
        self._start = 0  # file offset of _buffer[0]
        self._at = 0  # read position within _buffer

    def __enter__(self) -> BoundedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    @property
    def position(self) -> int:
        """Offset in the file of the next byte."""
        return self._start + self._at

    @property
    def remaining(self) -> int:
        """Bytes between the position and the end of the file."""
        return self.size - self.position

    def read_at(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset`, or fewer at the end of the file. Does not move the position."""
        try:
            return os.pread(self._fd, count, offset)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self._at + count > len(self._buffer):
            self._fill(count)
        data = self._buffer[self._at : self._at + count]
        self._at += count
        return data

    def skip(self, count: int) -> None:
        """Moves the position without reading."""
        if count > self.remaining:
            raise self._ended()
        self._at += count

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def skip_strings(self, count: int, most: int) -> None:
        """Passes `count` strings, each a 64-bit length and so many bytes. FormatError: all take more than `most`."""
        unpack, left, end = _U64.unpack_from, count, self.position + most
        while left:
            if self._at + 8 > len(self._buffer):
                self._fill(8)
            buffer, at, last = self._buffer, self._at, len(self._buffer) - 8
            for _ in range(left):
                if at > last:
                    break
                at += 8 + unpack(buffer, at)[0]
                left -= 1
            self._at = at
            if self.position > self.size:
                raise self._ended()
            if self.position > end:
                raise FormatError(f"{self._path}: damaged header: more than {most >> 20} MiB of strings", _AGAIN)

    def _fill(self, need: int) -> None:
        if need > self.remaining:
            raise self._ended()
        start = self.position
        parts = []
        length = 0
        while length < need:
            part = self.read_at(start + length, max(_CHUNK, need - length))
            if not part:
                raise self._ended()
            parts.append(part)
            length += len(part)
        self._buffer, self._start, self._at = b"".join(parts), start, 0

    def _ended(self) -> FormatError:
        return FormatError(f"{self._path} is truncated: it ends inside its header", _AGAIN)


def _unreadable(path: Path, error: OSError | ValueError) -> KvchatError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return KvchatError(f"cannot read {str(path)!r}: {reason}", "check the path and its permissions")
