"""The first screen: chats, conversation, prompt, status. Owns the open conversation and decides what a key does.

Handlers change things, nothing else does: what comes from other threads waits in the inbox, is taken twenty times a
second at most, and shown once per batch. Must not wait for the disk or the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import Worker

from kvchat.chats.store import ChatStore
from kvchat.chats.types import ChatSummary
from kvchat.clean import clean
from kvchat.conversation import Conversation
from kvchat.errors import KvchatError
from kvchat.ui import slash
from kvchat.ui.chat_view import ChatView
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import StoreFailed
from kvchat.ui.progress import Progress
from kvchat.ui.prompt import Prompt
from kvchat.ui.sidebar import Sidebar
from kvchat.ui.status import StatusLine
from kvchat.ui.transcript import Transcript
from kvchat.ui.wording import notes_on, sentences

T = TypeVar("T")

SHORTEST_PAUSE = 0.05  # seconds between two batches of news
LONGEST_GOODBYE = 1.0  # seconds that a stopped turn may take to end before something else happens
AGAIN = 2.0  # seconds in which a second ^C quits
WELCOME = (
    "",
    "kvchat",
    "",
    "Enter sends, ^J makes a new line, Esc stops an answer",
    "^N new chat, ^S chats, /help more",
)
HELP = """\
Enter send · ^J, Shift+Enter or \\ before Enter: new line · Up/Down what you sent before
Esc stop the answer · ^C copy the selection, stop, clear, twice: quit · ^Q quit, ^D too with an empty prompt
PgUp PgDn scroll · ^End to the end · ^N new chat · ^S list of chats
"""


class NewsCame(Message):
    """Something lies in the inbox."""


class ChatScreen(Screen[None]):
    """One chat at a time, with the list of all."""

    AUTO_FOCUS = "#prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 (Textual declares it for instances)
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (10, "-short"), (24, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop the answer", show=False, id="chat.stop"),
        Binding("ctrl+c", "interrupt", "Copy, stop, clear or quit", show=False, id="chat.interrupt"),
        Binding("ctrl+d", "app.quit", "Quit", show=False, id="chat.quit"),
        Binding("ctrl+n", "new_chat", "New chat", show=False, id="chat.new"),
        Binding("ctrl+s", "chats", "List of chats", show=False, id="chat.list"),
        Binding("pageup", "page(-1)", "Scroll up", show=False, id="chat.page-up"),
        Binding("pagedown", "page(1)", "Scroll down", show=False, id="chat.page-down"),
        Binding("ctrl+end", "end", "To the end", show=False, id="chat.end"),
    ]

    def __init__(self, desk: Desk, opening: str | None) -> None:
        super().__init__()
        self._desk = desk
        self._opening = opening
        self._conversation = desk.new_conversation()
        self._progress = Progress()
        self._timer: Timer | None = None
        self._taken_at = 0.0
        self._after_turn: Callable[[], object] | None = None
        self._interrupted_at = -AGAIN

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Sidebar(id="sidebar")
            with Vertical(id="main"):
                yield Transcript(WELCOME, id="transcript")
                yield Prompt("Write a message", id="prompt")
        yield StatusLine(id="status")

    def on_mount(self) -> None:
        """Everything that takes time comes after the first frame."""
        self.transcript = self.query_one(Transcript)
        self.prompt = self.query_one(Prompt)
        self.status = self.query_one(StatusLine)
        self.sidebar = self.query_one(Sidebar)
        self.view = ChatView(self.transcript)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._desk.inbox.listen(lambda: self.post_message(NewsCame()))
        self._desk.engine.start()
        if self._opening is not None:
            self._open(self._opening)
        self._list_chats()

    def on_unmount(self) -> None:
        """Nobody to wake any more."""
        self._desk.inbox.ignore()

    # ------------------------------------------------------------------ news

    def on_news_came(self) -> None:
        """Take the news now, or at the end of the shortest pause."""
        pause = self._taken_at + SHORTEST_PAUSE - monotonic()
        if pause <= 0:
            self._take_news()
        elif self._timer is None:
            self._timer = self.set_timer(pause, self._take_news)

    def _take_news(self) -> None:
        self._timer = None
        self._taken_at = monotonic()
        for news in self._desk.inbox.take():
            if isinstance(news, StoreFailed):
                self._say(news.error, "not saved")
                continue
            live = self._conversation.live
            self._progress.apply(news, self._taken_at)
            self._conversation.apply(news)
            if live is not None and self._conversation.live is None:
                self._list_chats()
            self._sync()
            for text, kind in notes_on(news, live.turn if live else None):
                self.transcript.note(text, kind)

    def _sync(self) -> None:
        """Show what there is."""
        conversation = self._conversation
        live = conversation.live
        state = self._progress.state(conversation.chat, conversation.messages, live)
        self.view.sync(conversation.messages, live.message if live else None, state.model)
        self.status.say(state)
        if live is None and self._after_turn is not None:
            then, self._after_turn = self._after_turn, None
            then()

    # ------------------------------------------------------------------ sending

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """A message or a command."""
        meant = slash.Say(event.text) if event.literal else slash.read(event.text)
        match meant:
            case slash.Say(text=text):
                self._turn(lambda: self._conversation.submit(text), text)
            case slash.Command(name="/new", argument=system):
                self._new(system)
            case slash.Command(name="/continue"):
                self._turn(self._conversation.resume, "")
            case slash.Command(name="/quit"):
                self.app.call_later(self.app.action_quit)
            case slash.Command():
                commands = "\n".join(f"{name} {meaning}" for name, meaning in slash.COMMANDS.items())
                self.transcript.note(HELP + commands)
            case slash.Unknown(name=name, nearest=nearest):
                self.prompt.put_back(event.text)
                guess = f"Did you mean {nearest}? " if nearest else ""
                self._toast(f"There is no command {name}. {guess}//text sends a text that begins with a slash.")

    def _turn(self, begin: Callable[[], Future[None]], text: str) -> None:
        """Begin a turn; `text` goes back to the prompt if it cannot be saved."""
        before = len(self._conversation.messages)
        try:
            future = begin()
        except KvchatError as error:
            self._refused(error, text)
            return
        self._sync()
        self._wait(future, lambda _: self._begun(), lambda error: self._not_sent(error, text, before))

    def _begun(self) -> None:
        self._sync()
        self._list_chats()

    def _refused(self, error: KvchatError, text: str) -> None:
        self._give_back(text)
        self._toast(sentences(error.message, error.hint))

    def _not_sent(self, error: KvchatError, text: str, messages_before: int) -> None:
        """The turn did not begin. A message that is on disk by then stays in the chat."""
        self._sync()
        if len(self._conversation.messages) == messages_before:
            self._give_back(text)
        self._say(error, "not sent")

    def _give_back(self, text: str) -> None:
        if text:
            self.prompt.put_back(text)

    # ------------------------------------------------------------------ chats

    def _new(self, system: str) -> None:
        self._leave_turn(lambda: self._enter(self._desk.new_conversation(system)))

    def _open(self, chat_id: str) -> None:
        """Open a chat once the turn that is going on has ended."""

        def read() -> None:
            future = self._desk.open_conversation(chat_id)
            self._wait(future, self._enter, lambda error: self._say(error, "not opened"))

        self._leave_turn(read)

    def _leave_turn(self, then: Callable[[], object]) -> None:
        if self._conversation.live is not None:
            self._toast("The answer was stopped. What there is of it is kept: /continue there goes on.")
        self.after_turn(then)

    def after_turn(self, then: Callable[[], object]) -> None:
        """Stop the turn that is going on, if there is one, and do `then` when it has ended or takes too long."""
        if self._conversation.live is None:
            then()
            return
        self._after_turn = then
        self._conversation.stop()
        self._sync()
        if self._after_turn is then:
            self.set_timer(LONGEST_GOODBYE, lambda: self._give_up_on_turn(then))

    def _give_up_on_turn(self, then: Callable[[], object]) -> None:
        if self._after_turn is then:
            self._after_turn = None
            then()

    def _enter(self, conversation: Conversation) -> None:
        """Show another conversation."""
        self._conversation = conversation
        if self._progress.failed is not None:
            conversation.apply(self._progress.failed)
        self.prompt.remember([message.text for message in conversation.messages if message.role == "user"])
        self._sync()
        self._list_chats()
        self._hide_overlay()
        self.prompt.focus()

    def _list_chats(self) -> None:
        self._wait(self._desk.store.run(ChatStore.chats), self._show_chats, lambda error: self._say(error, "no chats"))

    def _show_chats(self, summaries: tuple[ChatSummary, ...]) -> None:
        chats = [summary.chat for summary in summaries]
        self.sidebar.show(chats, self._conversation.chat.id, time.time())

    def on_sidebar_chosen(self, event: Sidebar.Chosen) -> None:
        """Open what was chosen, unless it is open."""
        if event.chat_id == self._conversation.chat.id:
            self.on_sidebar_left()
        else:
            self._open(event.chat_id)

    def on_sidebar_left(self) -> None:
        """Back to the prompt."""
        self._hide_overlay()
        self.prompt.focus()

    def _hide_overlay(self) -> None:
        self.remove_class("-chats")

    # ------------------------------------------------------------------ keys

    def action_stop(self) -> None:
        """Stop the answer, if one is being written."""
        if self._conversation.live is not None:
            self._conversation.stop()
            self._sync()

    def action_interrupt(self) -> None:
        """Copy what is selected, or else stop the answer, or else clear the prompt, or else quit at the second time."""
        if selected := self.get_selected_text() or self.prompt.selected_text:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
        elif self._conversation.live is not None:
            self.action_stop()
        elif self.prompt.text:
            self.prompt.clear_draft()
        elif monotonic() - self._interrupted_at < AGAIN:
            self.app.call_later(self.app.action_quit)
        else:
            self._interrupted_at = monotonic()
            self._toast("^C again quits", seconds=AGAIN)

    def action_new_chat(self) -> None:
        """Start a new chat."""
        self._new("")

    def action_chats(self) -> None:
        """Give the keyboard to the list of chats; hide the list when it has it."""
        if self.sidebar.has_keyboard:
            self.add_class("-no-chats")
            self.on_sidebar_left()
            return
        self.remove_class("-no-chats")
        self.add_class("-chats")
        self.sidebar.focus_list()

    def action_page(self, direction: int) -> None:
        """Scroll by a page."""
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_end(self) -> None:
        """Scroll to the end and follow."""
        self.transcript.to_end()

    # ------------------------------------------------------------------ saying

    def _wait(self, future: Future[T], done: Callable[[T], object], failed: Callable[[KvchatError], object]) -> None:
        """Go on with what the store answers, without waiting for it here."""
        if not self.is_attached:
            return

        async def settle() -> None:
            try:
                result = await asyncio.shield(asyncio.wrap_future(future))
            except KvchatError as error:
                if self.is_attached:
                    failed(error)
            else:
                if self.is_attached:
                    done(result)

        _: Worker[None] = self.run_worker(settle)  # a callable, so that nothing is left unawaited at the end

    def _say(self, error: KvchatError, what: str) -> None:
        self.transcript.note(f"{what}: {sentences(error.message, error.hint)}", "error")

    def _toast(self, text: str, seconds: float = 4.0) -> None:
        self.notify(clean(text), timeout=seconds, markup=False)
