"""The app: theme, life and death. Owns the store thread, the engine and the terminal.

Must not know what happens on the screen: that is in chat_screen.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

from textual.app import App

from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.paths import Paths
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.launch import EngineLink, local_engine, survey
from kvchat.ui.paste import install
from kvchat.ui.terminal import owned_terminal
from kvchat.ui.theme import INK, VARIABLES

if TYPE_CHECKING:
    from kvchat.backend.client import EngineFactory
    from kvchat.ui.launch import Surveyor

SIGNALLED = 128  # exit code of a program that a signal ended, less the signal's number


def run_app(
    settings: Settings,
    paths: Paths,
    continue_last: bool = False,
    chat_id: str | None = None,
    engine_factory: EngineFactory = local_engine,
    surveyor: Surveyor = survey,
) -> int:
    """Run the app until the person leaves; the exit code. KvchatError: no terminal, no such chat, unusable folders."""
    inbox = Inbox()
    store = StoreThread(paths.chats_db, lambda error: inbox.post(StoreFailed(error)))
    engine = EngineLink(settings, paths, inbox.post, engine_factory, surveyor)
    desk = Desk(settings, paths, store, engine, inbox)
    try:
        latest = store.run(ChatStore.latest).result()
        opening = latest if continue_last else None
        if chat_id is not None:
            opening = store.run(ChatStore.resolve, chat_id).result()
        engine.want(opening, latest)
        app = KvchatApp(desk, opening.id if opening else None)
        install()
        with owned_terminal(paths.log_file.with_name("app.log")):
            app.run()
    finally:
        inbox.ignore()
        engine.close()
        inbox.take()
        store.close()
    lost = next((news.error for news in inbox.take() if isinstance(news, StoreFailed)), None)
    if lost is not None:  # what the store could not write while it closed will not be written any more
        raise lost
    return app.return_code or 0


class KvchatApp(App[None]):
    """One screen, one theme, and an end that is the same for a key and a signal."""

    TITLE = "kvchat"
    CSS_PATH = "kvchat.tcss"
    ENABLE_COMMAND_PALETTE = False
    PAUSE_GC_ON_SCROLL = True

    def __init__(self, desk: Desk, opening: str | None) -> None:
        super().__init__()
        self._desk = desk
        self._opening = opening
        self.animation_level = "none"
        self.register_theme(INK)
        # Before anything is styled, so that nothing is styled with the colours of another theme first.
        self.set_reactive(App.theme, INK.name)
        self.stylesheet.set_variables(self.get_css_variables())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of our own that the other themes do not name."""
        return VARIABLES

    def get_default_screen(self) -> ChatScreen:
        """The only screen."""
        return ChatScreen(self._desk, self._opening)

    def on_mount(self) -> None:
        """A signal ends the app as the person would."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.leave, SIGNALLED + number)

    async def action_quit(self) -> None:
        """Leave, the answer that is being written kept."""
        self.leave(0)

    def leave(self, code: int) -> None:
        """End the turn that is going on, then the app."""
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        screen.after_turn(partial(self.exit, return_code=code))
