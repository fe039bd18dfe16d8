"""What `/prefix` does in `kvchat --plain`: lists pinned prefixes, begins a chat on one, makes and computes them, lets
them go. Owns what it prints; the work is that of `kv pin`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kvchat.backend.protocol import Ready
from kvchat.chats.prefixes import Prefix
from kvchat.clean import clean_line
from kvchat.commands.plain_chat import PlainChat
from kvchat.commands.prefixes import entries, seconds_text
from kvchat.commands.prefixes_pin import Wanted, chosen, read_document
from kvchat.conversation.prefixes import NOT_KEPT, not_computed
from kvchat.errors import KvchatError
from kvchat.kv.pinned import held, unpin

PREFIX = (
    "[NAME | pin NAME @FILE... | compute NAME | drop NAME]",
    "list pinned beginnings, begin a chat on one, or make one of this chat's system prompt and files",
)
_FILE = re.compile(r"(?:^|\s)@(\S+)")


class PlainPrefixes:
    """Carries out `/prefix`."""

    def __init__(self, chat: PlainChat, say: Callable[[str], None]) -> None:
        self._chat = chat
        self._say = say

    def command(self, words: str) -> None:
        """KvchatError: it cannot be done."""
        first, _, rest = words.partition(" ")
        rest = rest.strip()
        if not words:
            self._list()
        elif first == "pin":
            self._pin(rest)
        elif first == "compute":
            self._compute(self._named(rest), new=False)
        elif first == "drop":
            self._drop(self._named(rest))
        else:
            self._begin(self._named(words))

    def _named(self, name: str) -> Prefix:
        if not name:
            raise KvchatError("which prefix?", "/prefix lists them")
        return self._chat.store.run(lambda chats: chats.prefixes.find(name)).result()

    def _list(self) -> None:
        prefixes = self._chat.store.run(lambda chats: chats.prefixes.all()).result()
        found = held(self._chat.kv_folder)
        for prefix in prefixes:
            computed = [f"{each.tokens:,} tokens" for each in prefix.computations[-1:]]
            kept = [each.state for each in entries([prefix], found)]
            why = self._why_not(prefix, self._chat.engine.ready)
            used = f"used {prefix.uses} times, saved {seconds_text(prefix.seconds_saved)}"
            self._say(", ".join((clean_line(prefix.name), *computed, why or kept[-1], used)))
        if not prefixes:
            self._say("Nothing is pinned yet: /prefix pin NAME keeps this chat's system prompt, and @files.")

    def _why_not(self, prefix: Prefix, ready: Ready | None) -> str:
        return "" if ready is None or ready.remote is not None else not_computed(prefix, ready)

    def _begin(self, prefix: Prefix) -> None:
        self._chat.new(prefix=prefix)
        ready = self._chat.engine.ready
        why = self._why_not(prefix, ready)
        hint = f" {why[:1].upper()}{why[1:]}: /prefix compute {prefix.name} does so." if why and why != NOT_KEPT else ""
        self._say(f"A new chat on {clean_line(prefix.name)}.{hint}")

    def _pin(self, words: str) -> None:
        conversation = self._chat.conversation
        if conversation.incognito:
            raise KvchatError("a prefix is kept on disk, and this chat is not", "/new begins one that is")
        name = _FILE.sub(" ", words).strip()
        if not name:
            raise KvchatError("what is it to be called?", "/prefix pin brief @notes.md")
        documents = [read_document(each) for each in _FILE.findall(words)]
        system = conversation.chat.system
        if not system and not documents:
            raise KvchatError("this chat has no system prompt to pin", "/system sets one; @FILE adds a document")
        old = self._chat.store.run(lambda chats: chats.prefixes.named(name)).result()
        prefix = chosen(Wanted(name, system=system), old, documents, taken=f"/prefix drop {name} lets that one go")
        self._compute(prefix, new=prefix is not old)

    def _compute(self, prefix: Prefix, *, new: bool) -> None:
        name = clean_line(prefix.name)
        self._say(f"{name} is being computed. Ctrl+C stops it.")
        done = self._chat.pin(prefix, new=new)
        if done is None:
            self._say("Stopped; nothing is pinned.")
        else:
            self._say(f"{name}: {done.tokens:,} tokens, {done.computed:,} of them computed now.")

    def _drop(self, prefix: Prefix) -> None:
        self._chat.store.run(lambda chats: chats.prefixes.remove(prefix.id)).result()
        unpin(self._chat.kv_folder, prefix.id)
        self._say(f"{clean_line(prefix.name)} is not pinned any more. Chats on it keep its text.")
