"""The app: theme, life and death. Owns the store thread, the engine and the terminal.

Must not know what happens on the screen: that is in chat_screen.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType

from kvchat.chats.store import ChatStore
from kvchat.chats.thread import INCOGNITO_GONE, StoreThread
from kvchat.config import Settings
from kvchat.leftovers import tidy
from kvchat.paths import Paths, close_to_others
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.keys import Keys
from kvchat.ui.keys_file import read_keys
from kvchat.ui.launch import EngineLink, any_engine, survey
from kvchat.ui.paste import install
from kvchat.ui.prompt import Prompt
from kvchat.ui.terminal import owned_terminal
from kvchat.ui.theme import BARE, OWN, variables
from kvchat.ui.themes import theme_for

if TYPE_CHECKING:
    from kvchat.backend.client import EngineFactory
    from kvchat.chats.types import Chat
    from kvchat.ui.launch import Surveyor
    from kvchat.ui.model_picker import ModelPicker

MOST_REMARKS = 8
SIGNALLED = 128  # exit code of a program that a signal ended, less the signal's number


def run_app(
    settings: Settings,
    paths: Paths,
    continue_last: bool = False,
    chat_id: str | None = None,
    engine_factory: EngineFactory = any_engine,
    surveyor: Surveyor = survey,
) -> int:
    """Run the app until the person leaves; the exit code. KvchatError: no terminal, no such chat, unusable folders."""
    inbox = Inbox()
    chats = None if settings.incognito else paths.chats_db
    store = StoreThread(chats, lambda error: inbox.post(StoreFailed(error)))
    engine = EngineLink(settings, paths, inbox.post, engine_factory, surveyor)
    desk = Desk(settings, paths, store, engine, inbox)
    try:
        latest = store.run(ChatStore.latest).result()
        opening = latest if continue_last else None
        if chat_id is not None:
            opening = store.run(ChatStore.resolve, chat_id).result()
        _check_draft(settings, opening)
        engine.want(opening, latest)
        remarks = (*close_to_others(paths), *tidy(paths), *store.run(lambda opened: opened.remarks).result())
        app = KvchatApp(desk, opening.id if opening else None, remarks)
        install()
        with owned_terminal(paths.log_file.with_name("app.log")):
            app.run(mouse=settings.mouse)
    finally:
        inbox.ignore()
        engine.close()
        inbox.take()
        desk.incognito.close()
        store.close()
    lost = next((news.error for news in inbox.take() if isinstance(news, StoreFailed)), None)
    if lost is not None:  # what the store could not write while it closed will not be written any more
        raise lost
    if settings.incognito or desk.incognito.used:
        print(INCOGNITO_GONE, file=sys.stderr)
    return app.return_code or 0


def _check_draft(settings: Settings, opening: Chat | None) -> None:
    """UsageError where a flag wants a draft model and nobody says which."""
    if settings.new_draft == "model" and settings.model_draft is None:
        from kvchat.choosing import check_draft
        from kvchat.conversation import engine_choice

        own = engine_choice(opening) if opening is not None else None
        check_draft("model", own.draft_path if own is not None else None)


class KvchatApp(App[None], inherit_bindings=False):
    """One screen, its theme and its keys, and an end that is the same for a key and a signal."""

    TITLE = "kvchat"
    CSS_PATH = "kvchat.tcss"
    ENABLE_COMMAND_PALETTE = False
    PAUSE_GC_ON_SCROLL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        # Before all else: a screen on top of the others has them, too. Where one can write, ? is what one writes.
        Binding("f1,question_mark", "help", "Keys and commands", show=False, priority=True, id="app.help"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True, id="app.quit"),
    ]

    def __init__(self, desk: Desk, opening: str | None, remarks: Sequence[str] = ()) -> None:
        """`remarks` are said once, at the start."""
        # Whoever wants no colour gets none: without this the base class would make them grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._desk = desk
        self._opening = opening
        self.animation_level = "none"
        for theme in (*OWN, BARE):
            self.register_theme(theme)
        # Before anything is styled, so that nothing is styled with the colours of another theme first.
        name, remark = theme_for(desk.settings.theme, self.available_themes, os.environ, self.no_color)
        self.set_reactive(App.theme, name)
        self.stylesheet.set_variables(self.get_css_variables())
        self._keys_file = read_keys(desk.paths.keys_file)
        self.keys = Keys(self._keys_file.wanted)
        self._remarks = [*remarks, *self._keys_file.problems, *([remark] if remark else [])]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of our own that the other themes do not name."""
        return variables(self.current_theme)

    def get_default_screen(self) -> ChatScreen:
        """The only screen."""
        return ChatScreen(self._desk, self._opening)

    def on_mount(self) -> None:
        """A signal ends the app as the person would."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.leave, SIGNALLED + number)
        self.call_after_refresh(self._remark)

    def _remark(self) -> None:
        """What is wrong with the person's theme and keys, told once."""
        if self._keys_file.wanted:
            from kvchat.ui.key_catalogue import problems

            said, unknown = problems(self._keys_file)
            self.keys.forget(unknown)
            self._remarks += said
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        for remark in (*self._remarks[:MOST_REMARKS], *_more(len(self._remarks) - MOST_REMARKS)):
            screen.room.transcript.note(remark, "warning")

    async def on_event(self, event: events.Event) -> None:
        """Keys are the person's before anything else sees them."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            if not self.screen_stack:  # it ends: nobody is there for what is typed now
                return
            focused = self.focused
            self.keys.apply(focused.ancestors_with_self if focused is not None else (self.screen, self))
            meant = self.keys.translated(event, isinstance(focused, Prompt))
            if meant is None:
                return
            event = meant
        await super().on_event(event)

    def action_help(self, words: str = "") -> None:
        """Keys and commands for what has the keyboard; away with them when they are there."""
        from kvchat.ui.help import Help
        from kvchat.ui.key_catalogue import sections_of

        if isinstance(self.screen, Help):
            self.screen.action_cancel()
            return
        focused = self.focused
        nodes = focused.ancestors_with_self if focused is not None else [self.screen]
        inner = [type(node).__name__ for node in nodes]
        self.push_screen(Help(sections_of([*inner, type(self).__name__]), self.keys, words))

    def on_model_picker_wanted(self, event: ModelPicker.Wanted) -> None:
        """A list of models cannot make itself longer."""
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        screen.more_models(event.picker, event.wish)

    def on_model_picker_asked(self, event: ModelPicker.Asked) -> None:
        """What a list of models tells in two lines, at length."""
        from kvchat.ui.model_details import ModelDetails

        self.push_screen(ModelDetails(event.model, event.models, self._desk.paths.log_file))

    async def action_quit(self) -> None:
        """Leave; what becomes of answers that are being written is the person's choice."""
        self.leave(0, ask=True)

    def leave(self, code: int, *, ask: bool = False) -> None:
        """End the answers that are being written, then the app."""
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        screen.leave(partial(self.exit, return_code=code), ask=ask)


def _more(count: int) -> list[str]:
    return [f"and {count} more in the same files"] if count > 0 else []
