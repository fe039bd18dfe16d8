"""`kvchat chats`: the conversations listed, shown, found, renamed, pinned, thrown away. Owns what is printed.

Must not change what was said in them.

What people and models wrote is cleaned before it is printed: it may end on a terminal. The JSON is ASCII for the same
reason.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TextIO

from kvchat.chats.store import ChatStore
from kvchat.chats.trash import TRASH_DAYS
from kvchat.chats.types import Chat, ChatSummary, Message, SearchHit
from kvchat.clean import clean, clean_line
from kvchat.commands.database import open_chats
from kvchat.commands.table import print_table, time_text
from kvchat.conversation import read_usage
from kvchat.paths import Paths

_USAGE = ("prompt_tokens", "reused", "computed", "decode_tokens")
_MOST_SHOWN = 50  # places where the words of a search stand
_ALL = 1 << 20  # of these, for a script
_ENDS = {
    None: "not finished: the program was ended, or is still writing it",
    "length": "ended at the limit of new tokens",
    "context": "ended because the context was full",
    "cancelled": "stopped",
    "error": "ended by an error",
    "died": "ended because the engine died",
}


def run_ls(paths: Paths, *, json: bool, out: TextIO, trash: bool = False) -> int:
    """Print all chats, the last used first, or those in the trash, the last deleted first."""
    with open_chats(paths) as store:
        summaries = store.trashed() if trash else store.chats()
    if json:
        listed = [_named(summary.chat) | {"messages": summary.messages} for summary in summaries]
        print(jsonlib.dumps(listed, indent=2), file=out)
    elif summaries:
        _print_table(summaries, out, "deleted" if trash else "last used")
    elif trash:
        print("The trash is empty.", file=out)
    else:
        print('No chats yet. `kvchat ask "..."` starts one.', file=out)
    return 0


def run_show(paths: Paths, chat: str, *, json: bool, out: TextIO) -> int:
    """Print the branch of a chat, named by id, beginning of an id, or title, that was shown last."""
    with open_chats(paths) as store:
        found = store.resolve(chat)
        messages = store.path(found.head)
    if json:
        print(jsonlib.dumps([_shown(message) for message in messages], indent=2), file=out)
    else:
        _print_chat(found, messages, out)
    return 0


def run_search(paths: Paths, query: Sequence[str], *, json: bool, out: TextIO) -> int:
    """Print where the words of the query stand, the best match first; with `json` all of it."""
    with open_chats(paths) as store:
        hits = store.search(" ".join(query), _ALL if json else _MOST_SHOWN + 1)
    if json:
        print(jsonlib.dumps([asdict(hit) for hit in hits], indent=2), file=out)
    elif hits:
        _print_hits(hits, out)
    else:
        print("Nothing found.", file=out)
    return 0


def run_rename(paths: Paths, chat: str, title: Sequence[str], *, json: bool, out: TextIO) -> int:
    """Give a chat another title."""
    with open_chats(paths) as store:
        before = store.resolve(chat)
        store.rename(before.id, " ".join(title))
        after = store.get(before.id)
    _print_change(after, f'"{clean_line(before.title)}" is now "{clean_line(after.title)}".', json, out)
    return 0


def run_rm(paths: Paths, chat: str, *, json: bool, out: TextIO) -> int:
    """Move a chat to the trash."""
    with open_chats(paths) as store:
        found = store.resolve(chat)
        store.trash(found.id)
        found = store.get(found.id)
    said = f'"{clean_line(found.title)}" is in the trash, and is removed for good after {TRASH_DAYS} days.'
    _print_change(found, f"{said}\nTo undo: kvchat chats restore {found.id}", json, out)
    return 0


def run_restore(paths: Paths, chat: str, *, json: bool, out: TextIO) -> int:
    """Take a chat out of the trash."""
    with open_chats(paths) as store:
        found = store.resolve(chat, trashed=True)
        store.restore(found.id)
        found = store.get(found.id)
    _print_change(found, f'"{clean_line(found.title)}" is back.', json, out)
    return 0


def run_pin(paths: Paths, chat: str, *, json: bool, out: TextIO) -> int:
    """Keep a chat at the top of the list."""
    return _pin(ChatStore.pin, paths, chat, "is pinned", json, out)


def run_unpin(paths: Paths, chat: str, *, json: bool, out: TextIO) -> int:
    """Let a chat go from the top of the list."""
    return _pin(ChatStore.unpin, paths, chat, "is not pinned any more", json, out)


def _pin(change: Callable[[ChatStore, str], None], paths: Paths, chat: str, said: str, json: bool, out: TextIO) -> int:
    with open_chats(paths) as store:
        found = store.resolve(chat)
        change(store, found.id)
        found = store.get(found.id)
    _print_change(found, f'"{clean_line(found.title)}" {said}.', json, out)
    return 0


def _named(chat: Chat) -> dict[str, object]:
    return {
        "id": chat.id,
        "title": chat.title,
        "created": chat.created,
        "updated": chat.updated,
        "model": chat.model,
        "system": chat.system,
        "deleted_at": chat.deleted_at,
        "pinned_at": chat.pinned_at,
    }


def _shown(message: Message) -> dict[str, object]:
    flat = asdict(message)
    del flat["usage"], flat["deleted_at"]
    usage = read_usage(message)
    return flat | {name: None if usage is None else getattr(usage, name) for name in _USAGE}


def _print_change(chat: Chat, said: str, json: bool, out: TextIO) -> None:
    print(jsonlib.dumps(_named(chat), indent=2) if json else said, file=out)


def _print_hits(hits: Sequence[SearchHit], out: TextIO) -> None:
    for hit in hits[:_MOST_SHOWN]:
        print(f"{hit.chat}  {clean_line(hit.title)}", file=out)
        if hit.snippet:
            print(f"    {clean_line(hit.snippet)}", file=out)
    if len(hits) > _MOST_SHOWN:
        print(f"and more than these {_MOST_SHOWN}: another word narrows it, --json has all", file=out)


def _print_table(summaries: Sequence[ChatSummary], out: TextIO, time_name: str) -> None:
    def cells(summary: ChatSummary) -> tuple[str, ...]:
        chat = summary.chat
        at = chat.updated if chat.deleted_at is None else chat.deleted_at
        return chat.id, time_text(at), str(summary.messages), "*" if chat.pinned_at is not None else "", chat.title

    print_table(("id", time_name, "messages", "pin", "title"), map(cells, summaries), out, numbers={"messages"})


def _print_chat(chat: Chat, messages: Sequence[Message], out: TextIO) -> None:
    print(f"{clean_line(chat.title)}\n{chat.id} · {time_text(chat.updated)}", file=out)
    if chat.system:
        print(f"\n# system\n{clean(chat.system)}", file=out)
    for message in messages:
        name = "you" if message.role == "user" else clean_line(message.model) or "assistant"
        print(f"\n# {name} · {time_text(message.created)}\n{clean(message.text)}", file=out)
        if message.role == "assistant" and message.finish != "stop":
            print(f"[{_ENDS.get(message.finish, clean_line(str(message.finish)))}]", file=out)
