"""Foreign text made safe. Owns what may reach a terminal and what may reach a database.

Whatever a person typed, a model wrote or a file says can hold escape sequences, direction overrides and halves of
characters. Pure: must not print, and must not know where a text came from.
"""

from __future__ import annotations

import re

_REPLACEMENT = 0xFFFD
_PICTURES = 0x2400  # U+2400 is the picture of NUL, U+241B that of ESC

_TABLE: dict[int, int | None] = {
    **{code: _PICTURES + code for code in range(0x20) if code not in (0x09, 0x0A)},
    0x0D: None,
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT),  # C1: 0x9B alone starts an escape sequence
    **dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT),
    # direction marks and overrides, zero width space, BOM: they make a text look like another one
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0x200B, 0xFEFF), None),
}
_SEQUENCES = re.compile(
    r"\x1b\[[0-9;:?<=>]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` as it may be shown: no control character but newline and tab, nothing invisible that reorders text."""
    return text.translate(_TABLE)


def clean_line(text: str) -> str:
    """`clean`, on one line, runs of white space as one space."""
    return " ".join(clean(text).split())


def cell_width(text: str) -> int:
    """Cells that clean text takes on a terminal: wide characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth  # its tables take a while to load, and the first frame does not need them

    return max(0, wcswidth(text))


def normal(text: str) -> str:
    """`text` as it may go out, to a model too: line feeds for every kind of line end, no control characters."""
    return _SEQUENCES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def encodable(text: str) -> str:
    """`text` with lone surrogates (undecodable bytes of a command line) as U+FFFD, so that it has a UTF-8 form."""
    return _SURROGATE.sub("\ufffd", text)
