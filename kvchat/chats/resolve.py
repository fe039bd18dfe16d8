"""Which chat a person means, and how a new one is called. Pure: must not touch the database."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kvchat.chats.titles import headline
from kvchat.chats.types import Chat
from kvchat.clean import clean_line, encodable
from kvchat.errors import KvchatError

TITLE_CELLS = 60
LONGEST_TITLE = 200  # of those that a person chooses
_UNTITLED = "Untitled"
_MOST_NAMED = 4
_LIST_HINT = "`kvchat chats ls` lists them"
_TRASH_HINT = "`kvchat chats ls --trash` lists them"


def title_of(text: str) -> str:
    """A title made from a first message: its first sentence, at most TITLE_CELLS wide."""
    return headline(text, TITLE_CELLS) or _UNTITLED


def proper_title(text: str) -> str:
    """A title that a person chose, on one line. KvchatError when it shows nothing or is too long."""
    title = clean_line(encodable(text))
    if not title:
        raise KvchatError("a title must show something", "choose another one")
    if len(title) > LONGEST_TITLE:
        raise KvchatError(f"a title of {len(title)} characters is too long", f"{LONGEST_TITLE} are the most")
    return title


def nearest(wanted: str, chats: Sequence[Chat], *, trashed: bool = False) -> Chat:
    """The one of `chats` with this id or title (case does not matter), or else the only one whose id begins with
    `wanted`, or else the only one whose title contains it. KvchatError names the candidates or the nearest titles.

    `trashed`: the chats are those in the trash.
    """
    folded, hint = wanted.strip().casefold(), _TRASH_HINT if trashed else _LIST_HINT
    if not folded:
        raise KvchatError("an empty name is no chat", hint)
    if not chats and trashed:
        raise KvchatError("the trash is empty", _LIST_HINT)
    if not chats:
        raise KvchatError("there are no chats yet", '`kvchat ask "..."` starts one')
    rules = (
        [chat for chat in chats if chat.id.casefold() == folded],
        [chat for chat in chats if chat.title.casefold() == folded],
        [chat for chat in chats if chat.id.casefold().startswith(folded)],
        [chat for chat in chats if folded in chat.title.casefold()],
    )
    found = next((candidates for candidates in rules if candidates), [])
    if len(found) == 1:
        return found[0]
    name = clean_line(wanted)
    if found:
        raise KvchatError(f'"{name}" can mean {len(found)} chats', f"which one: {_named(found)}")
    titles = {chat.title.casefold(): chat for chat in reversed(chats)}
    close = [titles[title] for title in difflib.get_close_matches(folded, titles, n=3, cutoff=0.4)]
    where = " in the trash" if trashed else ""
    raise KvchatError(f'there is no chat "{name}"{where}', f"did you mean {_named(close)}?" if close else hint)


def _named(chats: Sequence[Chat]) -> str:
    named = ", ".join(f"{chat.id} ({clean_line(chat.title)})" for chat in chats[:_MOST_NAMED])
    return named + (", …" if len(chats) > _MOST_NAMED else "")
