"""Files as parts of what a model reads: fenced blocks with their language and name. Owns what is refused, and why; must
not know who wants one.

What stands in a file is foreign text, and its name is, too.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from kvchat.clean import clean, clean_line, normal
from kvchat.errors import KvchatError

LARGEST = 1 << 20  # bytes; some 300,000 tokens, more than most contexts hold
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


def fenced(text: str, name: str, what: str = "") -> str:
    """The text as a block with the language that the name of its file means, and the name, or `what` in its place. The
    fence is longer than any in the text."""
    told = clean_line(what or name).replace("`", "'")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language_of(name)} {told}\n{text.rstrip()}\n{fence}"


def language_of(name: str) -> str:
    """What a code block calls the language of a file with this name."""
    file = name.rpartition("/")[2].lower()
    return _NAMES.get(file) or _LANGUAGES.get(file.rpartition(".")[2], "text")


def read_text(path: Path, shown: str, hint: str, *, limit: int = LARGEST, too_large: str = "") -> str:
    """The text of a file, without what a terminal would obey. KvchatError, which calls it `shown`, when it is none, is
    not there, or has more than `limit` bytes; `hint` is what to do then, `too_large` in the last case.

    Takes as long as the disk does.
    """
    try:
        data = _bytes(path, limit)
    except FileNotFoundError:
        raise KvchatError(f"{shown} is not there", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KvchatError(f"{shown} cannot be read: {reason}", hint) from error
    if data is None:
        raise KvchatError(f"{shown} is no file that can be read", hint)
    if len(data) > limit:
        raise KvchatError(f"{shown} is too large: more than {limit >> 20} MiB", too_large or hint)
    if b"\0" in data:
        raise KvchatError(f"{shown} is no text", hint)
    try:
        return clean(normal(data.decode("utf-8-sig")))
    except UnicodeDecodeError:
        raise KvchatError(f"{shown} is no text in UTF-8", hint) from None


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
