"""What each slash command does. Owns nothing: hands on to the parts of the screen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from kvchat.config_options import BY_KEY, BadValue
from kvchat.ui import slash
from kvchat.ui.chats import Chats
from kvchat.ui.engines import Engines
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending

HELP = """\
Enter sends, or keeps for after the answer · ^J, Shift+Enter or \\ before Enter: new line
Up/Down what you sent before · Esc take back, stop the answer
^C copy the selection, stop, clear, twice: quit · ^Q quit, ^D too with an empty prompt
PgUp PgDn scroll · ^End to the end · F1 this help · F2 model and cache · ^N new chat
^O browse messages (also Up with nothing to recall): copy, edit, retry, versions, delete
^S chats: type to find, r rename, d delete, u undo, f copy

"""
NO_SYSTEM = "-"


class Commanding:
    """Carries out commands."""

    def __init__(self, room: Room, sending: Sending, chats: Chats, engines: Engines) -> None:
        self._room = room
        self._sending = sending
        self._chats = chats
        self._engines = engines
        engine_numbers = {"/context": ("ctx_size", "context"), "/threads": ("threads", "threads")}
        self._commands: dict[str, Callable[[str], object]] = {
            "/model": engines.model,
            "/cache": lambda words: engines.cache(words.split()),
            **{name: self._engine_number(*names) for name, names in engine_numbers.items()},
            "/new": chats.new,
            "/rename": self._rename,
            "/delete": lambda _: self._delete(),
            "/undo": lambda _: chats.undo(),
            "/retry": lambda _: sending.regenerate(),
            "/edit": lambda _: sending.edit_last(),
            "/continue": lambda _: sending.resume(),
            "/system": self._system,
            "/temp": lambda text: self._sampling("temp", "temperature", text),
            "/seed": lambda text: self._sampling("seed", "seed", text),
            "/help": lambda _: self.help(),
            "/quit": lambda _: room.screen.app.call_later(room.screen.app.action_quit),
        }

    def carry_out(self, text: str, *, literal: bool) -> None:
        """A message or a command. `literal`: it was pasted, so it is no command."""
        meant = slash.Say(text) if literal else slash.read(text)
        match meant:
            case slash.Say(text=message):
                self._sending.send(message)
            case slash.Command(name=name, argument=argument):
                self._commands[name](argument)
            case slash.Unknown(name=name, nearest=nearest):
                self._room.prompt.put_back(text)
                guess = f"Did you mean {nearest}? " if nearest else ""
                self._room.toast(f"There is no command {name}. {guess}//text sends a text that begins with a slash.")

    def help(self) -> None:
        """Keys and commands, as a note."""
        self._room.transcript.note(HELP + slash.lines())

    def _engine_number(self, key: str, field: str) -> Callable[[str], None]:
        return lambda text: self._engines.number(key, field, text)

    # ------------------------------------------------------------------ this chat

    def _rename(self, title: str) -> None:
        chat = self._room.conversation.chat.id
        if not self._room.conversation.messages:
            self._room.toast("A chat gets its title with its first message.")
        elif title:
            self._chats.rename(chat, title)
        else:
            self._chats.ask_title(chat)

    def _delete(self) -> None:
        if self._room.conversation.messages:
            self._chats.trash(self._room.conversation.chat.id)
        else:
            self._room.toast("This chat is empty.")

    def _system(self, text: str) -> None:
        conversation = self._room.conversation
        if not text:
            now = conversation.chat.system
            self._room.transcript.note(f"system prompt: {now}" if now else "This chat has no system prompt.")
            return
        text = "" if text == NO_SYSTEM else text
        said = "System prompt set. The chat is read again with it." if text else "This chat has no system prompt now."
        self._set(lambda: conversation.set_system(text), said)

    def _sampling(self, key: str, field: str, text: str) -> None:
        conversation = self._room.conversation
        if not text:
            value = getattr(conversation.sampling, field)
            self._room.toast(f"{field}: {'drawn each time' if value is None else value}")
            return
        try:
            values: dict[str, Any] = {field: BY_KEY[key].read(text)}
        except BadValue as bad:
            self._room.toast(f"/{key}: {bad.problem}. {bad.hint}")
            return
        sampling = replace(conversation.sampling, **values)
        self._set(lambda: conversation.set_sampling(sampling), f"{field} {text}, for this chat.")

    def _set(self, begin: Callable[[], Future[None]], said: str) -> None:
        self._room.try_to(begin, lambda _: self._room.toast(said), "not set")
