"""`kvchat chats`: the conversations, as a list and one at a time. Owns how they are printed; must not change any.

What people and models wrote is cleaned before it is printed: it may end on a terminal. The JSON is ASCII for the same
reason.
"""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TextIO

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, ChatSummary, Message
from kvchat.clean import clean, clean_line
from kvchat.paths import Paths

_USAGE = ("prompt_tokens", "reused", "computed", "decode_tokens")
_ENDS = {
    None: "not finished: the program was ended, or is still writing it",
    "length": "ended at the limit of new tokens",
    "context": "ended because the context was full",
    "cancelled": "stopped",
    "error": "ended by an error",
    "died": "ended because the engine died",
}


def run_ls(paths: Paths, *, json: bool, out: TextIO) -> int:
    """Print all chats, the last used first."""
    with closing(ChatStore(paths.chats_db)) as store:
        summaries = store.chats()
    if json:
        print(jsonlib.dumps([_listed(summary) for summary in summaries], indent=2), file=out)
    elif summaries:
        _print_table(summaries, out)
    else:
        print('No chats yet. `kvchat ask "..."` starts one.', file=out)
    return 0


def run_show(paths: Paths, chat: str, *, json: bool, out: TextIO) -> int:
    """Print the branch of a chat, named by id, beginning of an id, or title, that was shown last."""
    with closing(ChatStore(paths.chats_db)) as store:
        found = store.resolve(chat)
        messages = store.path(found.head)
    if json:
        print(jsonlib.dumps([_shown(message) for message in messages], indent=2), file=out)
    else:
        _print_chat(found, messages, out)
    return 0


def _listed(summary: ChatSummary) -> dict[str, object]:
    chat = summary.chat
    return {
        "id": chat.id,
        "title": chat.title,
        "created": chat.created,
        "updated": chat.updated,
        "model": chat.model,
        "system": chat.system,
        "messages": summary.messages,
    }


def _shown(message: Message) -> dict[str, object]:
    flat = asdict(message)
    usage = jsonlib.loads(flat.pop("usage") or "{}")
    del flat["deleted_at"]
    return flat | {name: usage.get(name) for name in _USAGE}


def _print_table(summaries: Sequence[ChatSummary], out: TextIO) -> None:
    width = max(len("messages"), *(len(str(summary.messages)) for summary in summaries))
    print(f"{'id':<26}  {'last used':<16}  {'messages':>{width}}  title", file=out)
    for summary in summaries:
        chat = summary.chat
        print(f"{chat.id}  {_when(chat.updated)}  {summary.messages:>{width}}  {clean_line(chat.title)}", file=out)


def _print_chat(chat: Chat, messages: Sequence[Message], out: TextIO) -> None:
    print(f"{clean_line(chat.title)}\n{chat.id} · {_when(chat.updated)}", file=out)
    if chat.system:
        print(f"\n# system\n{clean(chat.system)}", file=out)
    for message in messages:
        name = "you" if message.role == "user" else clean_line(message.model) or "assistant"
        print(f"\n# {name} · {_when(message.created)}\n{clean(message.text)}", file=out)
        if message.role == "assistant" and message.finish != "stop":
            print(f"[{_ENDS.get(message.finish, clean_line(str(message.finish)))}]", file=out)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
