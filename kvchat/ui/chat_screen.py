"""The chat screen: chats, conversation, prompt, status. Owns the layout and its keys; its parts decide what they do.

Handlers change things, nothing else does: what comes from other threads waits in the inbox, is taken twenty times a
second at most, and shown once per batch. Must not wait for the disk or the engine.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from kvchat.ui.chips import Written
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import StoreFailed
from kvchat.ui.incognito import begun, placeholder
from kvchat.ui.key_hints import key_text, keys_at, told
from kvchat.ui.key_names import shown
from kvchat.ui.launch import Survey, Weighed
from kvchat.ui.lines import ChipLine, HintLine
from kvchat.ui.prompt import Prompt
from kvchat.ui.screen_keys import KEYS
from kvchat.ui.screen_parts import PartedScreen
from kvchat.ui.status import StatusLine
from kvchat.ui.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.conversation import Conversation
    from kvchat.ui.browse_bar import BrowseBar
    from kvchat.ui.inbox import News
    from kvchat.ui.model_picker import ModelPicker
    from kvchat.ui.shelf import Wish
    from kvchat.ui.sidebar import Sidebar

SHORTEST_PAUSE = 0.05  # seconds between two batches of news
AGAIN = 2.0  # seconds in which a second ^C quits
WELCOME = (
    ("{prompt.send} sends", "{prompt.new-line} makes a new line", "{chat.stop|chat.interrupt} stops an answer"),
    (
        "{chat.palette} everything",
        "{chat.list|chat.palette} chats",
        "{chat.browse|chat.palette} browse",
        "{chat.settings|chat.palette} model",
        "{app.help|chat.palette} help",
    ),
)


class NewsCame(Message):
    """Something lies in the inbox."""


class ChatScreen(PartedScreen):
    """One chat at a time, with the list of all."""

    AUTO_FOCUS = "#prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 (Textual declares it for instances)
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (10, "-short"), (12, "-low"), (24, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    def __init__(self, desk: Desk, opening: str | None) -> None:
        super().__init__(desk)
        self._opening = opening
        self._timer: Timer | None = None
        self._taken_at = 0.0
        self._interrupted_at = -AGAIN
        self._begun = False

    def compose(self) -> ComposeResult:
        self._know_size()
        with Horizontal():
            with Vertical(id="side"):
                yield Static("kvchat", id="brand", markup=False)
            with Vertical(id="main"):
                welcome = [", ".join(told(parts, keys_at(self), shown)) for parts in WELCOME]
                yield Transcript(("", "kvchat", "", *welcome), id="transcript")
                yield ChipLine(id="chip")
                yield Prompt(placeholder(incognito=self._desk.settings.incognito), self._submitted, id="prompt")
                yield HintLine(id="hint")
        yield StatusLine(id="status")

    def _know_size(self) -> None:
        """Have the classes of this size before anything is styled: Textual would style everything a second time."""
        width, height = self.app.size
        names = self._get_breakpoint_classes(width, self.HORIZONTAL_BREAKPOINTS)
        names |= self._get_breakpoint_classes(height, self.VERTICAL_BREAKPOINTS)
        self.update_classes(dict.fromkeys(names, True), update=False)

    # ------------------------------------------------------------------ beginning and end

    def on_mount(self) -> None:
        """Everything that takes time comes after the first frame."""
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        gc.freeze()  # what was made until here stays, and no collection has to look at it again
        gc.enable()
        self._desk.inbox.listen(lambda: self.post_message(NewsCame()))
        self._desk.engine.start()
        self.room.prompt.companion = self._writing
        self._begun = True
        if self._opening is not None:
            self._chats.open(self._opening)
        else:
            begun(self.room)
            self._prefixes.entered()
            self._writing.drafts.entered()
            self._chats.refresh()

    def on_unmount(self) -> None:
        """Nobody to wake any more; what was written is kept."""
        self._desk.inbox.ignore()
        if self._begun:  # else the prompt may not exist yet
            self._writing.drafts.keep()

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
            self._take(news)
        self.room.sync()
        self._background.settle()
        self._ending.settle()
        self._sending.settle()
        self._alternatives.settle()

    def _take(self, news: News) -> None:
        room = self.room
        if isinstance(news, StoreFailed):
            room.say(news.error, "not saved")
            return
        if isinstance(news, Survey):
            self._notes.know(news.known)
        if isinstance(news, (Survey, Weighed)):
            self._engines.apply(news)
            return
        live = room.conversation.live
        turn = live.turn if live is not None else None
        room.progress.apply(news, self._taken_at)
        room.conversation.apply(news)
        self._background.apply(news, self._notes.on)
        self._engines.apply(news, turn)
        self._overflow.apply(news, turn)
        self._ahead.apply(news)
        self._chats.apply(news)
        self._purging.apply(news)
        self._prefixes.apply(news)
        now = room.conversation.live
        if live is not None and now is not None and now.phase != live.phase:
            self._chats.beat()
        if live is not None and not room.is_busy:
            room.sync()
            self._turned(room.conversation)
        for text, kind in self._notes.on(news, turn):
            room.sync()
            room.transcript.note(text, kind)

    def _turned(self, conversation: Conversation) -> None:
        """A turn began or ended in a chat, open or not."""
        self._engines.keep_choice(conversation)
        self._chats.refresh()
        self._background.titles.turned(conversation)
        if conversation is not self.room.conversation:
            return
        self._commanding.appearance.turned()
        if self.room.sights.marks:  # of what another branch let go, it may be
            self.room.sights.look()
        self._ahead.turned()
        self._writing.drafts.keep()

    def _entered(self, draft: Written | None) -> None:
        """Another chat is shown."""
        self.room.prompt.placeholder = placeholder(incognito=self.room.conversation.incognito)
        begun(self.room)
        self._prefixes.entered()
        self._browsing.lost()
        self.room.sights.look()
        self._overflow.summaries.entered()
        self._ahead.opened()
        self._writing.drafts.entered(draft)
        self._back_to_prompt()

    def leave(self, then: Callable[[], object], *, ask: bool) -> None:
        """The app is to end with `then`, when the answers have been finished or stopped as the person decides; without
        asking, when they were stopped and their ends are known."""

        def last() -> None:
            self._purging.finish()
            then()

        if ask:
            from kvchat.ui.background_question import QUITTING

            self._ending.ask(QUITTING, last)
        else:
            self._ending.leave(last)

    # ------------------------------------------------------------------ what the widgets say

    def _submitted(self, text: str, literal: bool, written: Written) -> None:
        """A message or a command."""
        self._commanding.carry_out(text, literal=literal, written=written)

    def on_prompt_edged(self) -> None:
        """Up where nothing is above: to the messages."""
        self._browsing.enter()

    def on_text_area_changed(self) -> None:
        """Another draft."""
        self._ahead.typed()
        self._writing.drafts.typed()

    def on_browse_bar_wanted(self, event: BrowseBar.Wanted) -> None:
        """Something is to be done with a message."""
        self._browsing.want(event.what)

    def on_browse_bar_lost(self) -> None:
        """The keyboard went elsewhere."""
        if not self.app.screen.is_modal:
            self._browsing.lost()

    def on_sidebar_chosen(self, event: Sidebar.Chosen) -> None:
        """Open what was chosen."""
        self._chats.choose(event.chat_id)

    def on_sidebar_wanted(self, event: Sidebar.Wanted) -> None:
        """Something is to be done with a chat."""
        self._chats.want(event.what, event.chat_id)

    def on_sidebar_searched(self, event: Sidebar.Searched) -> None:
        """Look for chats."""
        self._chats.find(event.query)

    def on_sidebar_left(self) -> None:
        """Back to the prompt."""
        self._back_to_prompt()

    def _back_to_prompt(self) -> None:
        self.remove_class("-chats")
        self.room.prompt.focus()

    # ------------------------------------------------------------------ keys

    def action_stop(self) -> None:
        """Do not wait for answers any more, else take back what waits to be sent, else stop the answer."""
        if not self._ending.stay() and not self._sending.take_back():
            self._sending.stop()

    def action_interrupt(self) -> None:
        """Copy the selection, else stop the answer, else clear the prompt, else quit when it comes twice."""
        prompt = self.room.prompt
        selected = self.get_selected_text() or prompt.selected_text
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
        elif self._ending.hurry() or self._sending.stop():
            return
        elif prompt.text:
            prompt.clear_draft()
        elif monotonic() - self._interrupted_at < AGAIN:
            self.app.call_later(self.app.action_quit)
        else:
            self._interrupted_at = monotonic()
            self.room.toast(f"{key_text('chat.interrupt', keys_at(self))} again quits", seconds=AGAIN)

    def action_new_chat(self) -> None:
        """Start a new chat."""
        self._chats.new()

    def action_chats(self) -> None:
        """Give the keyboard to the list of chats; hide the list when it has it."""
        if self.room.sidebar.has_keyboard:
            self.add_class("-no-chats")
            self._back_to_prompt()
            return
        self._chats.refresh()  # another program may have changed them
        self.remove_class("-no-chats")
        self.add_class("-chats")
        self.room.sidebar.take_keyboard()

    def action_jump(self) -> None:
        """Go to the chat that has answered."""
        self._chats.jump()

    def action_alternatives(self) -> None:
        """Several answers to what is written, or to the last message."""
        self._alternatives.key()

    def action_browse(self) -> None:
        """Mark a message."""
        self._browsing.enter()

    def action_settings(self) -> None:
        """Choose model and cache."""
        self._engines.open_settings()

    def more_models(self, picker: ModelPicker, wish: Wish) -> None:
        """A list of models wants to be longer."""
        self._engines.more_models(picker, wish)

    def action_inspect(self) -> None:
        """Look at the KV cache."""
        self._commanding.inspect()

    def action_palette(self) -> None:
        """Everything that can be done, by name."""
        self._finding.open()

    def action_page(self, direction: int) -> None:
        """Scroll by a page."""
        if direction < 0:
            self.room.transcript.scroll_page_up(animate=False)
        else:
            self.room.transcript.scroll_page_down(animate=False)

    def action_fold_all(self) -> None:
        """Fold or unfold the reasoning of all answers."""
        self.room.transcript.fold_all()

    def action_end(self) -> None:
        """Scroll to the end and follow."""
        self.room.transcript.to_end()
