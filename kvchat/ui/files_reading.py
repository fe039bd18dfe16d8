"""A file, or some lines of it, as a part of a message. Owns what lines are meant; must not know chips or widgets."""

from __future__ import annotations

import re
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.fenced import LARGEST, fenced, read_text
from kvchat.ui.chips import FileRef

_LARGEST_CUT = 64 << 20  # bytes of a file of which only some lines are wanted
_RANGE = re.compile(r"#(?:L)?(\d{1,9})(?:-(?:L)?(\d{1,9}))?\Z")
_LEAVE_OUT = "take it out of the message"


def split_range(word: str) -> tuple[str, int | None, int | None]:
    """A name and the lines behind its #: `a.py#10-40`, `a.py#10` for one line. The other way round is meant, too."""
    found = _RANGE.search(word)
    if found is None:
        return word, None, None
    first = int(found[1])
    last = int(found[2]) if found[2] else first
    return word[: found.start()], max(1, min(first, last)), max(1, first, last)


def read_block(file: FileRef) -> str:
    """The file as a fenced block with its language and name. KvchatError, which names the file, when it cannot go out.

    Not for the event loop.
    """
    limit = LARGEST if file.first is None else _LARGEST_CUT
    cut = "give some lines of it, as in @name#1-200"
    text, what = read_text(Path(file.path), file.shown, _LEAVE_OUT, limit=limit, too_large=cut), file.name
    if file.first is not None and file.last is not None:
        lines = text.split("\n")
        count = len(lines) - (not lines[-1])
        if file.first > count:
            raise KvchatError(f"{file.shown}: the file has {count:,} lines", "choose others, or the whole file")
        last = min(file.last, count)
        text = "\n".join(lines[file.first - 1 : last])
        what += f" lines {file.first}-{last}"
    if not text.strip():
        raise KvchatError(f"{file.shown} is empty", _LEAVE_OUT)
    return fenced(text, file.name, what)
