"""A new chat of a command on a pinned prefix: which prefix that is, with what it is run, what is said of it. Needs no
engine.
"""

from __future__ import annotations

from kvchat.backend.protocol import Ready
from kvchat.backend.values import Usage
from kvchat.chats.prefixes import Prefix
from kvchat.chats.thread import StoreThread
from kvchat.commands.database import open_chats
from kvchat.config import Settings
from kvchat.conversation.prefixes import not_computed
from kvchat.errors import KvchatError, UsageError
from kvchat.paths import Paths


def wanted_prefix(name: str | None, settings: Settings, paths: Paths, *, goes_on: bool) -> Prefix | None:
    """The prefix of that name. UsageError where the chat cannot begin with it: `goes_on` says that it has begun; a
    KvchatError names the one that was probably meant."""
    if name is None:
        return None
    if goes_on:
        raise UsageError("--prefix begins a new chat", "leave it out, or -c, --chat and --resume")
    if "system" in settings.given:
        raise UsageError("a prefix has a system prompt of its own", "leave out --prefix or --system")
    if not paths.chats_db.exists():
        raise KvchatError(f'there is no prefix "{name}"', "`kvchat kv pin --name NAME` makes one")
    with open_chats(paths) as store:
        return store.prefixes.find(name)


def name_of(store: StoreThread, prefix: str | None) -> str | None:
    """What the prefix with this id is called; None where there is none."""
    if prefix is None:
        return None
    found = store.run(lambda chats: chats.prefixes.get(prefix)).result()
    return None if found is None else found.name


def read_anew(prefix: Prefix, ready: Ready, usage: Usage) -> tuple[str, ...]:
    """What is to be said after an answer on a prefix that was of no use."""
    if ready.remote is not None or not ready.cache.namespace:  # it was said that nothing is to be found
        return ()
    again = f"`kvchat kv pin {prefix.name}` computes it"
    if why := not_computed(prefix, ready):
        return (f"the prefix {prefix.name} was read anew: {why}; {again}",)
    found = prefix.of_model(ready.model.fingerprint, ready.cache.type_k, ready.cache.type_v)
    if found is not None and usage.reused < found.tokens and usage.prompt_tokens >= found.tokens:
        return (f"the prefix {prefix.name} was read anew in part: pages of it are missing; {again}",)
    return ()
