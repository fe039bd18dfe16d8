"""The slash commands of `kvchat --plain`. Owns what each prints and asks of the chat; must not read lines.

A command returns the turn that it begins, or a line that is offered to be edited, or nothing. What others wrote is
cleaned before it is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from kvchat.backend.values import CACHE_TYPES, DRAFT_MODES, OVERFLOW_POLICIES, EngineConfig, OverflowPolicy
from kvchat.chats.types import Chat
from kvchat.choosing import check_draft, choice_of
from kvchat.clean import clean, clean_line
from kvchat.commands.plain_chat import PlainChat
from kvchat.commands.plain_prefixes import PREFIX, PlainPrefixes
from kvchat.commands.table import size_text, time_text
from kvchat.config_options import NO_DRAFT_MODEL, nearest
from kvchat.config_remote import is_named
from kvchat.conversation.draft_words import MODES
from kvchat.conversation.overflow_words import POLICIES, impossible
from kvchat.conversation.remote_words import place_of
from kvchat.conversation.samplings import wished
from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile, resolve
from kvchat.library.pairing import misfit, proposals

LISTED = 20  # chats in a list
NO_SYSTEM = "-"
COMMANDS = {
    "/new": ("[system prompt]", "new chat"),
    "/incognito": ("", "new chat in memory alone, gone when another is opened"),
    "/chats": ("[words]", "list chats, or those with words in their title"),
    "/open": ("N", "open a chat: its number in the list, its id or its title"),
    "/show": ("", "print this chat"),
    "/retry": ("", "another answer"),
    "/alt": ("[N] [temperatures | seed SEEDS]", "several answers one after the other, of which one is kept"),
    "/edit": ("[text]", "another last message of yours, in a branch of its own"),
    "/continue": ("", "go on with an answer that was stopped"),
    "/system": ("[text]", "show or set the system prompt; - for none"),
    "/model": ("[name]", "list models, or go over to another"),
    "/cache": ("[K] [V]", "show or set the cache types: f16, bf16, q8_0, q4_0"),
    "/draft": ("[auto|ngram|model|off|NAME]", "show or set what drafts ahead, or which model does; none for none"),
    "/overflow": ("[stop|shift|sinks|prune|summarize]", "show or set what happens when the context is full"),
    "/summary": ("[drop]", "print the summary that is read in place of the oldest messages, or have them read again"),
    "/prefix": PREFIX,
    "/pin": ("", "keep your last message in the context whatever leaves it, or let it go again"),
    "/help": ("", "this list"),
    "/quit": ("", "leave; Ctrl+D does so too"),
}


@dataclass(frozen=True, slots=True)
class Ask:
    """A turn is to be carried out."""

    begin: Callable[[], Future[None]]


@dataclass(frozen=True, slots=True)
class Several(Ask):
    """Several turns are to be carried out, of whose answers one is picked."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A line to be edited; what comes of it is given to `edited`."""

    text: str
    edited: Callable[[str], Future[None]]


class Quit(Exception):
    """The person leaves."""


class Commands:
    """Carries out commands on a chat."""

    def __init__(self, chat: PlainChat, out: TextIO) -> None:
        self._chat = chat
        self._out = out
        self._listed: tuple[Chat, ...] = ()
        self._commands: dict[str, Callable[[str], Ask | Offer | None]] = {
            "/new": self._new,
            "/incognito": self._incognito,
            "/chats": self._chats,
            "/open": self._open,
            "/show": self._show,
            "/retry": lambda _: Ask(self._chat.conversation.regenerate),
            "/alt": self._alternatives,
            "/edit": self._edit,
            "/continue": lambda _: Ask(self._chat.conversation.resume),
            "/system": self._system,
            "/model": self._model,
            "/cache": self._cache,
            "/draft": self._draft,
            "/overflow": self._overflow,
            "/summary": self._summary,
            "/prefix": PlainPrefixes(chat, self._say).command,
            "/pin": self._pin,
            "/help": self._help,
            "/quit": self._quit,
        }

    def read(self, text: str) -> Ask | Offer | None:
        """A message or a command. Two slashes send a text that begins with one. KvchatError: it cannot be done."""
        if text.startswith("//"):
            return Ask(lambda: self._chat.conversation.submit(text[1:]))
        if not text.startswith("/"):
            return Ask(lambda: self._chat.conversation.submit(text))
        name, *rest = text.split(maxsplit=1)
        if name not in self._commands:
            guess = nearest(name, self._commands)
            hint = f"did you mean {guess}?" if guess else "/help lists them"
            raise KvchatError(f"there is no command {name[:40]}", f"{hint} Two slashes send a text that begins so.")
        return self._commands[name]("".join(rest).strip())

    def _say(self, line: str = "") -> None:
        print(line, file=self._out, flush=True)

    # ------------------------------------------------------------------ chats

    def _new(self, system: str) -> None:
        self._chat.new(system)
        self._say("A new chat.")

    def _incognito(self, _: str) -> None:
        self._chat.new(incognito=True)
        self._say(describe(self._chat))

    def _chats(self, words: str) -> None:
        wanted = words.lower().split()
        found = [chat for chat in self._chat.chats() if all(word in chat.title.lower() for word in wanted)]
        self._listed = tuple(found[:LISTED])
        for number, chat in enumerate(self._listed, 1):
            here = " (this one)" if chat.id == self._chat.conversation.chat.id else ""
            self._say(f"{number}. {clean_line(chat.title)}, {time_text(chat.updated)}{here}")
        if not found:
            self._say("No chat has these words in its title." if words else "There are no chats yet.")
        elif len(found) > LISTED:
            self._say(f"and {len(found) - LISTED} older ones: /chats WORDS finds them by title")

    def _open(self, name: str) -> None:
        if not name:
            raise KvchatError("which chat?", "/chats lists them, /open N opens one")
        listed = self._listed or self._chat.chats()[:LISTED]
        number = int(name) if name.isascii() and name.isdigit() and len(name) <= 4 else 0
        chat = listed[number - 1] if 0 < number <= len(listed) else self._chat.find(name)
        self._chat.open(chat.id)
        self._say(describe(self._chat))

    def _show(self, _: str) -> None:
        conversation = self._chat.conversation
        if conversation.chat.system:
            self._say(f"system: {clean(conversation.chat.system)}")
        for message in conversation.messages:
            name = "you" if message.role == "user" else clean_line(message.model) or "assistant"
            self._say(f"{name}: {clean(message.text)}")
        if not conversation.messages:
            self._say("This chat has no messages yet.")

    def _edit(self, text: str) -> Ask | Offer:
        conversation = self._chat.conversation
        last = next((each for each in reversed(conversation.messages) if each.role == "user"), None)
        if last is None:
            raise KvchatError("there is no message of yours to edit", "write one")
        if text:
            return Ask(lambda: conversation.edit(last.id, text))
        return Offer(last.text, lambda edited: conversation.edit(last.id, edited))

    def _alternatives(self, words: str) -> Several:
        conversation = self._chat.conversation
        samplings = wished(words, conversation.sampling)
        return Several(lambda: conversation.ask_alternatives(samplings))

    def _system(self, text: str) -> None:
        conversation = self._chat.conversation
        if not text:
            now = conversation.chat.system
            self._say(f"system: {clean(now)}" if now else "This chat has no system prompt.")
            return
        conversation.set_system("" if text == NO_SYSTEM else text).result()
        self._say("Set. The chat is read again with it." if conversation.messages else "Set.")

    # ------------------------------------------------------------------ model and cache

    def _model(self, name: str) -> None:
        config = self._chat.engine.config
        if not name:
            for model in self._chat.models:
                here = " (this one)" if str(model.path) == config.model_path else ""
                self._say(f"{clean_line(model.name)}, {size_text(model.size)}{here}")
            for remote in self._chat.remotes:
                here = " (this one)" if remote == config.remote else ""
                self._say(f"{remote.reference}, {place_of(remote)}{here}")
            return
        if is_named(name, self._chat.remotes):
            remote = self._chat.server(name)
            if self._chat.conversation.incognito and remote.leaves:
                raise KvchatError(
                    f"this chat is incognito, and {remote.host} is another machine", "/new starts another one"
                )
            self._go_over(config.on(remote), again=True)
            return
        found, draft = resolve(name, self._chat.models), config.draft_path
        stays = draft and proposals(found, [resolve(draft, self._chat.models)])
        self._change(config, model_path=str(found.path), draft_path=draft if stays else None, extra_buffers=True)

    def _cache(self, words: str) -> None:
        types, config = words.split(), self._chat.engine.config
        if config.remote is not None:
            raise KvchatError(f"the cache is that of {config.remote.host}", "its types are chosen where it is started")
        if not types:
            ready = self._chat.engine.ready
            if ready is None:
                self._say(f"asked for: K {config.type_k}, V {config.type_v}; the engine is not ready yet")
            else:
                cache = ready.cache
                self._say(f"K {cache.type_k}, V {cache.type_v}, {cache.context} tokens of context")
            return
        if len(types) > 2 or not set(types) <= set(CACHE_TYPES):
            raise KvchatError("/cache takes one or two types, for K and for V", f"there are: {', '.join(CACHE_TYPES)}")
        if types[-1] not in {"f16", "bf16"} and config.flash_attention == "off":
            raise KvchatError(f"a V cache of type {types[-1]} needs flash attention, which is off", "--flash-attn auto")
        self._change(config, type_k=types[0], type_v=types[-1])

    def _draft(self, text: str) -> None:
        conversation, config, word = self._chat.conversation, self._chat.engine.config, text.lower()
        if not text:
            name = Path(config.draft_path).stem if config.draft_path else "none"
            self._say(f"draft {conversation.draft}: {MODES[conversation.draft]}; draft model: {clean_line(name)}")
        elif word in DRAFT_MODES:
            check_draft(word, config.draft_path)
            conversation.set_draft(word).result()
            self._say(f"draft {word} ({MODES[word]}), from the next answer on.")
        elif word == NO_DRAFT_MODEL:
            self._change(config, draft_path=None)
        else:
            self._take_draft(resolve(text, self._chat.models))

    def _overflow(self, text: str) -> None:
        conversation, ready, word = self._chat.conversation, self._chat.engine.ready, text.lower()
        if not text:
            for name, meaning in POLICIES.items():
                self._say(f"{name}: {meaning}{' (this chat)' if name == conversation.overflow else ''}")
            return
        if word not in OVERFLOW_POLICIES:
            raise KvchatError("/overflow takes one policy", f"there are: {', '.join(OVERFLOW_POLICIES)}")
        policy: OverflowPolicy = word
        problem = impossible(policy, ready) if ready is not None else ""
        if problem:
            raise KvchatError(f"not with this model: {problem}", "a larger context (--ctx-size), or /new")
        conversation.set_overflow(policy).result()
        self._say(f"overflow {policy} ({POLICIES[policy]}), from the next answer on.")

    def _summary(self, word: str) -> None:
        conversation = self._chat.conversation
        summary = conversation.summary
        if word not in ("", "drop"):
            raise KvchatError("/summary takes drop, or nothing", "alone it prints the summary")
        if summary is None:
            self._say("No summary stands in this chat.")
        elif word:
            conversation.undo_summary().result()
            self._say(f"{summary.replaced:,} tokens are read themselves again with the next message.")
        else:
            self._say(clean(summary.text))

    def _pin(self, _: str) -> None:
        conversation = self._chat.conversation
        last = next((each for each in reversed(conversation.messages) if each.role == "user"), None)
        if last is None:
            raise KvchatError("there is no message of yours to pin", "write one")
        conversation.pin(last.id, not last.pinned).result()
        self._say("Not pinned any more." if last.pinned else "Pinned: it stays in the context, whatever leaves it.")

    def _take_draft(self, found: ModelFile) -> None:
        config = self._chat.engine.config
        if config.remote is not None:
            raise KvchatError(
                f"nothing is drafted here for {config.remote.host}", "/model NAME takes a model of this machine"
            )
        if str(found.path) == config.model_path:
            raise KvchatError(f"{found.name} cannot draft for itself", "take a smaller model")
        if problem := misfit(Path(config.model_path), found.path):
            raise KvchatError(f"{found.name} cannot draft here: {problem}", "take one of the same family")
        self._change(config, draft_path=str(found.path))
        if self._chat.conversation.draft in ("off", "ngram"):  # else it is loaded for nothing
            self._chat.conversation.set_draft("auto").result()

    def _change(self, config: EngineConfig, **fields: Any) -> None:
        wanted = replace(config.of_model(fields.get("model_path", config.model_path)), **fields)
        self._go_over(wanted)

    def _go_over(self, wanted: EngineConfig, *, again: bool = False) -> None:
        """`again`: also where it runs so already, to connect once more."""
        engine = self._chat.engine
        if wanted == engine.config and engine.ready is not None and not again:
            self._say("It runs so already.")
            return
        ready = self._chat.configure(wanted)
        if ready is not None:
            self._chat.conversation.set_engine(choice_of(wanted)).result()
            if ready.remote is not None:
                self._say(f"{clean_line(ready.model.name)}, {place_of(ready.remote)}.")
                return
            cache = ready.cache
            drafter = f", draft model {clean_line(ready.draft.name)}" if ready.draft is not None else ""
            types = f"K {cache.type_k}, V {cache.type_v}"
            self._say(f"{clean_line(ready.model.name)}, {types}, {cache.context} tokens{drafter}.")

    # ------------------------------------------------------------------ the rest

    def _help(self, _: str) -> None:
        for name, (argument, meaning) in COMMANDS.items():
            self._say(f"{' '.join(filter(None, (name, argument)))}: {meaning}")
        self._say("A backslash at the end of a line goes on with the next line.")
        self._say("Ctrl+C stops an answer; at the prompt, Ctrl+C twice or Ctrl+D leaves.")

    def _quit(self, _: str) -> None:
        raise Quit


def describe(chat: PlainChat) -> str:
    """Which chat is open, in a line."""
    conversation = chat.conversation
    count = len(conversation.messages)
    if not count:
        return "A new chat in memory alone: nothing of it is kept." if conversation.incognito else "A new chat."
    end = "" if conversation.messages[-1].finish != "cancelled" else " Its last answer was stopped: /continue goes on."
    return f"{clean_line(conversation.chat.title)}, {count} messages. /show prints it.{end}"
