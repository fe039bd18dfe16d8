"""What each slash command does. Owns nothing: hands on to the parts of the screen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from kvchat.config_options import BY_KEY, BadValue
from kvchat.ui import slash
from kvchat.ui.appearance import Appearance
from kvchat.ui.chats import Chats
from kvchat.ui.chips import Written
from kvchat.ui.engines import Engines
from kvchat.ui.history_words import history_words
from kvchat.ui.overflow import Overflow
from kvchat.ui.pinning import toggle_last
from kvchat.ui.prefixes import Prefixes
from kvchat.ui.presets import Presets
from kvchat.ui.room import Room
from kvchat.ui.sending import Sending
from kvchat.ui.varying import hint_on

NO_SYSTEM = "-"


class Commanding:
    """Carries out commands."""

    def __init__(
        self,
        room: Room,
        sending: Sending,
        chats: Chats,
        engines: Engines,
        choose_theme: Callable[[], object],
        overflow: Overflow,
        undo: Callable[[], object],
        purge: Callable[[str], object],
        alternatives: Callable[[str], object],
        prefixes: Prefixes,
    ) -> None:
        """`choose_theme` is for /theme without a name, `undo`, `purge` and `alternatives` for what their names say."""
        self._room = room
        self._sending = sending
        self._chats = chats
        self._engines = engines
        self.prefixes = prefixes
        self.appearance = Appearance(room, choose_theme)
        engine_numbers = {"/context": ("ctx_size", "context"), "/threads": ("threads", "threads")}
        self._commands: dict[str, Callable[[str], object]] = {
            "/model": engines.model,
            "/pull": engines.pull,
            "/cache": lambda words: engines.cache(words.split()),
            **{name: self._engine_number(*names) for name, names in engine_numbers.items()},
            "/draft": engines.drafting.command,
            "/kv": lambda _: self.inspect(),
            "/new": chats.new,
            "/incognito": lambda _: chats.new(incognito=True),
            "/rename": self._rename,
            "/export": self._export,
            "/delete": lambda _: self._delete(),
            "/purge": purge,
            "/undo": lambda _: undo(),
            "/retry": lambda _: sending.regenerate(),
            "/alt": alternatives,
            "/edit": lambda _: sending.edit_last(),
            "/continue": lambda _: sending.resume(),
            "/system": self._system,
            "/preset": Presets(room).command,
            "/prefix": prefixes.command,
            "/settings": engines.settings,
            "/history": self._history,
            "/overflow": overflow.command,
            "/summary": overflow.summaries.command,
            "/pin": lambda _: toggle_last(room),
            "/temp": lambda text: self._sampling("temp", "temperature", text),
            "/seed": lambda text: self._sampling("seed", "seed", text),
            "/theme": self.appearance.theme,
            "/follow": self.appearance.follow,
            "/mouse": self.appearance.mouse,
            "/keys": self.appearance.keys,
            "/help": lambda words: room.screen.app.call_later(room.screen.app.run_action, f"help({words!r})"),
            "/quit": lambda _: room.screen.app.call_later(room.screen.app.action_quit),
        }

    def carry_out(self, text: str, *, literal: bool, written: Written | None = None) -> None:
        """A message or a command. `literal`: it was pasted, so it is no command. `written`: the same with its files."""
        meant = slash.Say(text) if literal else slash.read(text)
        match meant:
            case slash.Say() if written is not None and written.files:
                self._sending.attach(written)
            case slash.Say(text=message):
                self._sending.send(message)
            case slash.Command(name="/prefix", argument=argument) if written is not None:
                self.prefixes.command(argument, written.files)
            case slash.Command(name=name, argument=argument):
                self._commands[name](argument)
            case slash.Unknown(name=name, nearest=nearest):
                self._room.prompt.put_back(text)
                guess = f"Did you mean {nearest}? " if nearest else ""
                self._room.toast(f"There is no command {name}. {guess}//text sends a text that begins with a slash.")

    def inspect(self) -> None:
        """The KV inspector, from which Enter leads to the settings."""
        from kvchat.ui.inspector import Inspector

        self._room.screen.app.push_screen(Inspector(self._room, lambda types: self._engines.open_settings(types=types)))

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

    def _export(self, words: str) -> None:
        if self._room.conversation.messages:
            self._chats.export(self._room.conversation.chat.id, words)
        else:
            self._room.toast("This chat is empty.")

    def _delete(self) -> None:
        if not self._room.desk.keeps(self._room.conversation):
            self._chats.new()
        elif self._room.conversation.messages:
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
        if hint := hint_on(text):
            self._room.transcript.note(hint)
        said = "System prompt set. The chat is read again with it." if text else "This chat has no system prompt now."
        self._set(lambda: conversation.set_system(text), said)

    def _history(self, text: str) -> None:
        conversation, ready = self._room.conversation, self._room.desk.engine.ready
        if not text:
            self._room.transcript.note(history_words(conversation.history, ready, conversation.messages))
            return
        try:
            wanted: Any = BY_KEY["history"].read(text)
        except BadValue as bad:
            self._room.toast(f"/history: {bad.problem}. {bad.hint}")
            return
        self._set(lambda: conversation.set_history(wanted), f"history {wanted}, for this chat.")

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
