"""A file, or some lines of it, as a part of a message. Owns what is refused, and why; must not know chips or widgets.

What stands in the file is foreign text, and its name is, too.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from kvchat.clean import clean, clean_line
from kvchat.errors import KvchatError
from kvchat.ui.chips import FileRef
from kvchat.ui.paste import normal

LARGEST = 1 << 20  # bytes; some 300,000 tokens, more than most contexts hold
_LARGEST_CUT = 64 << 20  # bytes of a file of which only some lines are wanted
_RANGE = re.compile(r"#(?:L)?(\d{1,9})(?:-(?:L)?(\d{1,9}))?\Z")
_LANGUAGES = {
    "bash": "bash", "c": "c", "cc": "cpp", "cpp": "cpp", "cs": "csharp", "css": "css", "csv": "csv", "diff": "diff",
    "go": "go", "h": "c", "hpp": "cpp", "hs": "haskell", "htm": "html", "html": "html", "ini": "ini", "java": "java",
    "jl": "julia", "js": "javascript", "json": "json", "jsx": "jsx", "kt": "kotlin", "lua": "lua", "md": "markdown",
    "mjs": "javascript", "patch": "diff", "php": "php", "pl": "perl", "proto": "protobuf", "ps1": "powershell",
    "py": "python", "pyi": "python", "r": "r", "rb": "ruby", "rs": "rust", "rst": "rst", "scala": "scala",
    "scss": "scss", "sh": "bash", "sql": "sql", "swift": "swift", "tex": "latex", "toml": "toml", "ts": "typescript",
    "tsx": "tsx", "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zig": "zig",
}  # fmt: skip
_NAMES = {"makefile": "makefile", "dockerfile": "dockerfile", "cmakelists.txt": "cmake"}


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
    text = clean(normal(_text(file)))
    what = clean_line(file.name).replace("`", "'")
    if file.first is not None and file.last is not None:
        lines = text.split("\n")
        count = len(lines) - (not lines[-1])
        if file.first > count:
            raise KvchatError(f"{file.shown}: the file has {count:,} lines", "choose others, or the whole file")
        last = min(file.last, count)
        text = "\n".join(lines[file.first - 1 : last])
        what += f" lines {file.first}-{last}"
    if not text.strip():
        raise KvchatError(f"{file.shown} is empty", "take it out of the message")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language_of(file.name)} {what}\n{text.rstrip()}\n{fence}"


def language_of(name: str) -> str:
    """What a code block calls the language of a file with this name."""
    file = name.rpartition("/")[2].lower()
    return _NAMES.get(file) or _LANGUAGES.get(file.rpartition(".")[2], "text")


def _text(file: FileRef) -> str:
    limit = LARGEST if file.first is None else _LARGEST_CUT
    try:
        data = _bytes(Path(file.path), limit)
    except FileNotFoundError:
        raise KvchatError(f"{file.shown} is not there any more", "take it out of the message") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KvchatError(f"{file.shown} cannot be read: {reason}", "take it out of the message") from error
    if data is None:
        raise KvchatError(f"{file.shown} is no file that can be read", "take it out of the message")
    if len(data) > limit:
        size = f"more than {limit >> 20} MiB"
        raise KvchatError(f"{file.shown} is too large: {size}", "give some lines of it, as in @name#1-200")
    if b"\0" in data:
        raise KvchatError(f"{file.shown} is no text", "take it out of the message")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise KvchatError(f"{file.shown} is no text in UTF-8", "take it out of the message") from None


def _bytes(path: Path, limit: int) -> bytes | None:
    """At most one byte more than `limit`; None for what is no regular file. A pipe is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit + 1)
    finally:
        os.close(descriptor)
