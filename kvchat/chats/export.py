"""Exported chats as files. Owns their names, their modes and their forms; must not know the database.

What was said is nobody else's: files are made 0600, and one that is there is never written over, unless it is the
export of the same chat in a folder of all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kvchat.clean import clean_line, encodable
from kvchat.errors import KvchatError
from kvchat.formats.transcript import Transcript
from kvchat.formats.transcript_json import write_json
from kvchat.formats.transcript_markdown import write_markdown

Form = Literal["md", "json"]
_LONGEST_SLUG = 48  # characters; of four bytes each they fit where a name has 255
_NO_WORD = re.compile(r"[^\w]+")


def rendered(transcript: Transcript, form: Form) -> str:
    """A chat as the text of a file: the branch that is shown as Markdown, or all of it as JSON."""
    return write_json(transcript) if form == "json" else encodable(write_markdown(transcript))


def file_name(transcript: Transcript, form: Form) -> str:
    """The name of the file of a chat: its title as far as a name can hold it, and its id."""
    slug = _NO_WORD.sub("-", clean_line(transcript.title))[:_LONGEST_SLUG].strip("-").lower()
    name = _NO_WORD.sub("-", transcript.id)
    return f"{slug or 'chat'}-{name}.{form}"


def write_new(text: str, path: Path) -> None:
    """Makes a file with this text. KvchatError when there is one, or it cannot be made."""
    with (
        _explained(path),
        open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file,  # noqa: PTH123
        _whole(path),
    ):
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def write_over(text: str, path: Path) -> None:
    """Makes a file with this text, in place of one that is there. KvchatError when it cannot be made."""
    unfinished = path.with_name(path.name + ".tmp")
    with _explained(path):
        unfinished.unlink(missing_ok=True)
    write_new(text, unfinished)
    with _explained(path), _whole(unfinished):
        unfinished.replace(path)


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """A file that could not be finished is removed."""
    try:
        yield
    except OSError:
        path.unlink(missing_ok=True)
        raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise KvchatError(f"{clean_line(str(path))} is there already", "choose another name, or remove it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KvchatError(f"{clean_line(str(path))} cannot be written: {reason}", "choose another place") from error


def write_free(transcript: Transcript, form: Form, folder: Path) -> Path:
    """Makes a file of a chat in this folder under its own name, or that with a number; where it is now."""
    path = folder / file_name(transcript, form)
    stem, number = path.stem, 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"{stem}-{number}.{form}"
    write_new(rendered(transcript, form), path)
    return path
