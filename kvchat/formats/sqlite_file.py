"""Rows out of a SQLite file that SQLite does not read any more: cut short, with pages overwritten, without its header.

Owns the layout of such files and of their write-ahead logs (https://www.sqlite.org/fileformat2.html); must not know
what the rows mean, nor write anything. Every page is looked at by itself, so that a page that is lost takes along no
more than what was in it. Pages that SQLite has freed are skipped as long as it overwrites them (`secure_delete`).
Texts are UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

Value = int | float | str | bytes | None

MAGIC = b"SQLite format 3\0"
_USUAL_PAGE = 4096  # bytes, where no header says so
_LEAF = 0x0D  # of a table
_LOG_MAGICS = {0x377F0682: "<", 0x377F0683: ">"}  # and the byte order of the words that are summed
_LOG_VERSION = 3007000
_LOG_HEADER = 32
_FRAME_HEADER = 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by serial type
_MOST_COLUMNS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """A row of some table, its values in the order in which they are stored. `number` is the rowid, which stands for an
    INTEGER PRIMARY KEY; that one is None in `values`. `cut`: the rest of the row is lost, from within its last value
    that is not None, or it is not what was written there."""

    number: int
    values: tuple[Value, ...]
    cut: bool = False


def rows(path: Path) -> Iterator[Row]:
    """All rows of all tables, in no order. OSError when the file cannot be read; what makes no sense is left out."""
    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        log = path.with_name(f"{path.name}-wal")
        pages = _Pages(file, stack.enter_context(log.open("rb")) if log.is_file() else None)
        for number in range(1, pages.count + 1):
            page = pages.read(number)
            start = 100 if number == 1 else 0
            if page[start : start + 1] == bytes((_LEAF,)):
                yield from _rows_of(page, start, pages)


def is_sound_log(path: Path) -> bool:
    """Whether SQLite takes over all that was committed to a write-ahead log: it stops at the first frame that is
    damaged, and says nothing. OSError when it cannot be read."""
    with path.open("rb") as log:
        header = log.read(_LOG_HEADER)
        if len(header) < _LOG_HEADER:
            return True  # nothing was committed
        if _log_order(header) is None:
            return False
        broken = False
        for frame in _frames(log):
            if broken and frame.sound and frame.count:
                return False
            broken = broken or not frame.sound
    return True


@dataclass(frozen=True, slots=True)
class _Frame:
    """A page in a log, at byte `at`. `count` is that of all pages where it ends a transaction, else 0. `sound`: it is
    what was written after the frame before it."""

    page: int
    count: int
    at: int
    sound: bool


def _frames(log: BinaryIO) -> Iterator[_Frame]:
    """The frames of a log since it began anew. Each is checked against the sum in the one before it, so that a damaged
    one costs itself, not those after it."""
    log.seek(0)
    header = log.read(_LOG_HEADER)
    order, size = _log_order(header), _page_size_of_log(header)
    if order is None or size is None:
        return
    salts, sums = header[16:24], struct.unpack(">2I", header[24:32])
    length, at = _FRAME_HEADER + size, _LOG_HEADER
    while True:
        log.seek(at)
        frame = log.read(length)
        if len(frame) < length or frame[8:16] != salts:
            return
        stored = struct.unpack(">2I", frame[16:24])
        page, count = struct.unpack(">2I", frame[:8])
        sound = _summed(frame[:8] + frame[_FRAME_HEADER:], sums, order) == stored
        yield _Frame(page, count, at + _FRAME_HEADER, sound)
        sums, at = stored, at + length


class _Pages:
    """The pages of a file as of the last commit that its log tells of."""

    def __init__(self, file: BinaryIO, log: BinaryIO | None) -> None:
        self._file = file
        self._log = log
        header = file.read(100)
        logged = None if log is None else _page_size_of_log(log.read(_LOG_HEADER))
        self.size = _page_size(header) or logged or _USUAL_PAGE
        reserved = header[20] if header.startswith(MAGIC) else 0
        self.usable = self.size - reserved if reserved < self.size // 2 else self.size
        self._logged: dict[int, int] = {}  # where a page stands in the log
        self.count = -(-file.seek(0, 2) // self.size)
        if log is not None and logged == self.size:
            self._read_log(log)

    def read(self, number: int) -> bytes:
        """A page; shorter, or nothing, where the file ends."""
        if number in self._logged and self._log is not None:
            self._log.seek(self._logged[number])
            return self._log.read(self.size)
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size)

    def _read_log(self, log: BinaryIO) -> None:
        """Take over what was committed."""
        pending: dict[int, int] = {}
        for frame in _frames(log):
            if frame.sound:
                pending[frame.page] = frame.at
                if frame.count:
                    self._logged |= pending
                    self.count = frame.count
                    pending = {}


def _rows_of(page: bytes, start: int, pages: _Pages) -> Iterator[Row]:
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for at in range(start + 8, min(start + 8 + 2 * count, len(page) - 1), 2):
        row = _row(page, int.from_bytes(page[at : at + 2], "big"), pages)
        if row is not None:
            yield row


def _row(page: bytes, at: int, pages: _Pages) -> Row | None:
    try:
        length, at = _varint(page, at)
        number, at = _varint(page, at)
        payload = _payload(page, at, length, pages)
        values, cut = _values(payload, length)
    except (IndexError, struct.error):
        return None
    signed = number - (1 << 64) if number >> 63 else number
    return Row(signed, values, cut) if values else None


@dataclass(frozen=True, slots=True)
class _Payload:
    """The bytes of a row: `local` of them from its own page, then `step` from each that it runs over to."""

    data: bytes
    local: int
    step: int

    def page_start(self, at: int) -> int:
        """Where the part begins that has this byte and is from one page; the byte itself, on the row's own page."""
        return at if at < self.local else at - (at - self.local) % self.step


def _payload(page: bytes, at: int, length: int, pages: _Pages) -> _Payload:
    """The bytes of a row; fewer than `length` where a page is lost."""
    most, step = pages.usable - 35, pages.usable - 4
    if length <= most:
        return _Payload(page[at : at + length], length, step)
    if length > pages.count * pages.size:
        raise IndexError(length)
    least = (pages.usable - 12) * 32 // 255 - 23
    local = least + (length - least) % step
    local = local if local <= most else least
    found = bytearray(page[at : at + local])
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    while len(found) < length and 0 < following <= pages.count:
        more = pages.read(following)[: pages.usable]
        if len(more) < pages.usable:
            break
        following = int.from_bytes(more[:4], "big")
        found += more[4 : 4 + length - len(found)]
    return _Payload(bytes(found), local, step)


def _values(payload: _Payload, length: int) -> tuple[tuple[Value, ...], bool]:
    """The values of a record, and whether its end is lost. None at all: it is no record, its sizes do not add up."""
    data = payload.data
    end, at = _varint(data, 0)
    kinds: list[int] = []
    while at < end and len(kinds) <= _MOST_COLUMNS:
        kind, at = _varint(data, at)
        kinds.append(kind)
    if at != end or end + sum(map(_size, kinds)) != length:
        return (), False
    values: list[Value] = []
    cut = len(data) < length
    for kind in kinds:
        raw = data[at : at + _size(kind)]
        try:
            values.append(_value(kind, raw))
        except UnicodeDecodeError as error:
            sound = payload.page_start(at + error.start) - at
            values.append(raw[: max(sound, 0)].decode("utf-8", "ignore"))
            cut = True
            break
        at += _size(kind)
    return (*values, *(None,) * (len(kinds) - len(values))), cut


def _size(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGERS.get(kind, 0)


def _value(kind: int, raw: bytes) -> Value:
    """UnicodeDecodeError: a text is none, or ends within a character."""
    if kind in (8, 9):
        return kind - 8
    if kind >= 12:
        return raw.decode("utf-8") if kind % 2 else raw
    if kind in (0, 10, 11) or len(raw) < _size(kind):
        return None
    return float(struct.unpack(">d", raw)[0]) if kind == 7 else int.from_bytes(raw, "big", signed=True)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to nine bytes, and where it ends. IndexError: there is none."""
    value = 0
    for count in range(8):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    return value << 8 | data[at + 8], at + 9


def _page_size(header: bytes) -> int | None:
    size = int.from_bytes(header[16:18], "big") if header.startswith(MAGIC) else 0
    return _proper(65536 if size == 1 else size)


def _page_size_of_log(header: bytes) -> int | None:
    return _proper(int.from_bytes(header[8:12], "big")) if _log_order(header) else None


def _proper(size: int) -> int | None:
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else None


def _log_order(header: bytes) -> str | None:
    """The byte order of what is summed in a log with this header. None: it is no header."""
    if len(header) < _LOG_HEADER:
        return None
    magic, version = struct.unpack(">2I", header[:8])
    order = _LOG_MAGICS.get(magic)
    sound = order is not None and version == _LOG_VERSION
    return order if sound and _summed(header[:24], (0, 0), order or "") == struct.unpack(">2I", header[24:]) else None


def _summed(data: bytes, sums: Sequence[int], order: str) -> tuple[int, int]:
    first, second = sums
    for one, another in struct.iter_unpack(f"{order}2I", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + another + first) & 0xFFFFFFFF
    return first, second
