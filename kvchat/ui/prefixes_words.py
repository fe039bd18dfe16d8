"""What stands behind `/prefix pin`: a name, and files. Pure; must not read them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvchat.errors import KvchatError
from kvchat.paths import typed_path
from kvchat.ui.chips import FileRef
from kvchat.ui.files_reading import split_range

_FILE = re.compile(r"(?:^|\s)@(\S+)")


def read_words(words: str, files: Mapping[str, FileRef]) -> tuple[str, list[FileRef]]:
    """The name, and the files behind it: `files` by their labels, which may have been shortened, and names of the
    working folder behind an @. KvchatError where there is no name."""
    found: list[FileRef] = []
    for label, file in files.items():
        written = next((each for each in (label, file.shown) if each in words), None)
        if written is not None:
            words = words.replace(written, " ")
            found.append(file)
    for written in _FILE.findall(words):
        name, first, last = split_range(written)
        found.append(FileRef(str(typed_path(name)), name, first, last))
    words = _FILE.sub(" ", words).strip()
    name = words.strip("\"'")
    if not name:
        raise KvchatError("/prefix pin takes a name", "as in /prefix pin brief @notes.md")
    return name, found
