"""What the parts of the chat screen share. Owns which conversation is open and how it gets onto the screen.

The parts (Sending, Chats, Browsing, Engines, Ahead) decide what a key does; each has its own state and asks here for
the conversation, the widgets and a way to say something. Must not decide anything itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from textual.screen import Screen
from textual.worker import Worker

from kvchat.conversation import Conversation
from kvchat.errors import KvchatError
from kvchat.ui.chat_view import ChatView
from kvchat.ui.desk import Desk
from kvchat.ui.display import display
from kvchat.ui.inline_keys import is_there
from kvchat.ui.lines import ChipLine, HintLine
from kvchat.ui.progress import Progress
from kvchat.ui.prompt import Prompt
from kvchat.ui.sights import Sights
from kvchat.ui.status import StatusLine
from kvchat.ui.transcript import Transcript
from kvchat.ui.undo import Undo
from kvchat.ui.wording import sentences

if TYPE_CHECKING:
    from kvchat.ui.sidebar import Sidebar

T = TypeVar("T")


class Room:
    """The open conversation, and the widgets that show it."""

    def __init__(self, screen: Screen[None], desk: Desk) -> None:
        self.screen = screen
        self.desk = desk
        self.conversation: Conversation = desk.new_conversation()
        self.progress = Progress()
        self.undo = Undo(monotonic)
        self.sights = Sights(self)
        self._sidebar: Sidebar | None = None
        self.elsewhere = 0  # chats that are not open and are being answered
        self.prefix = ""  # the name of the pinned prefix that the chat is on, once it is known
        self.told = ""  # what the status line says in place of the last answer's numbers, until the next one

    @cached_property
    def transcript(self) -> Transcript:
        """What was said."""
        return self.screen.query_one(Transcript)

    @cached_property
    def prompt(self) -> Prompt:
        """What the person writes."""
        return self.screen.query_one(Prompt)

    @cached_property
    def status(self) -> StatusLine:
        """What the engine does."""
        return self.screen.query_one(StatusLine)

    @cached_property
    def hint(self) -> HintLine:
        """The line below the prompt."""
        return self.screen.query_one(HintLine)

    @cached_property
    def chip(self) -> ChipLine:
        """The message that waits."""
        return self.screen.query_one(ChipLine)

    @cached_property
    def view(self) -> ChatView:
        """Keeps the transcript equal to the conversation."""
        return ChatView(self.transcript)

    @property
    def sidebar(self) -> Sidebar:
        """The list of chats. It is made when it is first needed: what it needs takes a while to load, and the first
        frame does without."""
        if self._sidebar is None:
            from kvchat.ui.sidebar import Sidebar

            self._sidebar = Sidebar(id="sidebar")
            self.screen.query_one("#side").mount(self._sidebar)
        return self._sidebar

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being written."""
        return self.conversation.live is not None

    def sync(self) -> None:
        """Show what there is."""
        conversation = self.conversation
        live = conversation.live
        state = self.progress.state(conversation.chat, conversation.messages, live, self.told)
        message, thought = (live.message, live.thought) if live else (None, 0)
        self.view.sync(conversation.messages, message, state.model, conversation.siblings, thought, self.sights.marks)
        on = self.prefix if conversation.chat.prefix is not None else ""
        state = replace(state, incognito=conversation.incognito, elsewhere=self.elsewhere, prefix=on)
        self.status.say(state)
        self.hint.work(live is not None)

    # ------------------------------------------------------------------ waiting and saying

    def wait(self, future: Future[T], done: Callable[[T], object], failed: Callable[[KvchatError], object]) -> None:
        """Go on with what the store answers, without waiting for it here."""
        if not is_there(self.screen):
            return

        async def settle() -> None:
            try:
                result = await asyncio.shield(asyncio.wrap_future(future))
            except KvchatError as error:
                if is_there(self.screen):
                    failed(error)
            else:
                if is_there(self.screen):
                    done(result)

        _: Worker[None] = self.screen.run_worker(settle)  # a callable, so that nothing is left unawaited at the end

    def aside(self, job: Callable[[], T], done: Callable[[T], object], failed: Callable[[KvchatError], object]) -> None:
        """Run something that reads or writes files, on a thread of its own; it must not touch widgets."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except KvchatError as error:
                future.set_exception(error)
            except OSError as error:
                future.set_exception(KvchatError(str(error), "look at the file and the disk"))

        threading.Thread(target=run, name="aside", daemon=True).start()
        self.wait(future, done, failed)

    def say(self, error: KvchatError, what: str) -> None:
        """A failure, at the end of the transcript; `what` was not done."""
        self.transcript.note(f"{what}: {sentences(error.message, error.hint)}", "error")

    def toast(self, text: str, seconds: float = 4.0) -> None:
        """A sentence that goes away by itself."""
        self.screen.notify(display(text), timeout=seconds, markup=False)

    def refuse(self, error: KvchatError) -> None:
        """What was asked makes no sense now."""
        self.toast(sentences(error.message, error.hint))

    def try_to(self, begin: Callable[[], Future[T]], done: Callable[[T], object], what: str) -> None:
        """Begin something that may be refused at once or fail later; `what` names it as not done."""
        try:
            future = begin()
        except KvchatError as error:
            self.refuse(error)
            return
        self.wait(future, done, lambda error: self.say(error, what))
