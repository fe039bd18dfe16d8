"""A chat into a file, from the app. Owns what the words of the command mean, and where a file goes without them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

from kvchat.chats.export import Form, rendered, write_free, write_new
from kvchat.chats.store import ChatStore
from kvchat.clean import clean_line
from kvchat.errors import KvchatError
from kvchat.paths import ensure_private
from kvchat.ui.room import Room

FOLDER = "exports"  # beside the chats


def export(room: Room, chat_id: str, form: Form, target: Path | None) -> None:
    """Write a chat into this file or folder, without one into a folder beside the chats, and say where it is."""
    default = room.desk.paths.chats_db.parent / FOLDER

    def failed(error: KvchatError) -> None:
        room.say(error, "not exported")

    def said(title: str, path: Path) -> None:
        where = f'"{clean_line(title)}" is in {clean_line(str(path))}'
        room.transcript.note(where)
        if room.sidebar.has_keyboard:  # which may lie over the transcript
            room.toast(where, seconds=8)

    def write(store: ChatStore) -> tuple[str, Path]:
        transcript = store.export(chat_id)
        path = default if target is None else _absolute(target)
        if target is None or os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where a folder is closed)
            return transcript.title, write_free(transcript, form, ensure_private(path))
        write_new(rendered(transcript, form), path)
        return transcript.title, path

    shown = room.conversation
    store = shown.store if shown.chat.id == chat_id else room.desk.store
    room.wait(store.run(write), lambda written: said(*written), failed)


def read_words(words: str) -> tuple[Form, Path | None]:
    """What `[md|json] [path]` means. A path alone says by its ending what is meant."""
    first, _, rest = words.strip().partition(" ")
    if first in get_args(Form):
        path = rest.strip()
        return cast(Form, first), Path(path) if path else None
    path = words.strip()
    return "json" if path.lower().endswith(".json") else "md", Path(path) if path else None


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise KvchatError(str(error), "give the whole path") from error
