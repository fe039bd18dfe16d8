"""The KV inspector: what is in the context, in memory, on disk, and what each turn cost. Owns the screen and its keys.

It only looks: nothing is applied here. What it shows is drawn at most twice a second, only while it is on top, and only
when something is other than before. Must not wait for files or for the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Static

from kvchat.ui.display import display
from kvchat.ui.inline_keys import is_on_top, is_there, run_bound
from kvchat.ui.inspector_context import ContextView, context_view
from kvchat.ui.inspector_page import Findings, Page, Place, looked_at, page, report
from kvchat.ui.inspector_reading import Read, Reading
from kvchat.ui.inspector_report import write_report
from kvchat.ui.inspector_turns import TurnRow, prompt_speed, turn_rows
from kvchat.ui.key_hints import keys_at
from kvchat.ui.wording import sentences

if TYPE_CHECKING:
    from kvchat.errors import KvchatError
    from kvchat.ui.room import Room
    from kvchat.ui.settings_engine import CacheTypes

PAUSE = 0.5  # seconds between two looks
REREAD = 5.0  # seconds after which the disk is looked at again while an answer is being written


class Inspector(ModalScreen[None]):
    """`open_settings` is for Enter: with the cache types that are looked at, None for those of now."""

    DEFAULT_CSS = """
    Inspector { background: $background; & > #page { width: 100%; height: 100%; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f3,ctrl+c", "leave", "Back", show=False, id="inspector.leave"),
        Binding("tab", "page(1)", "Next page", show=False, id="inspector.next"),
        Binding("shift+tab", "page(-1)", "Previous page", show=False, id="inspector.previous"),
        Binding("left", "types(-1)", "Other cache types", show=False, id="inspector.left"),
        Binding("right", "types(1)", "Other cache types", show=False, id="inspector.right"),
        Binding("up", "turns(-1)", "Newer turns", show=False, id="inspector.up"),
        Binding("down", "turns(1)", "Older turns", show=False, id="inspector.down"),
        Binding("pageup", "turns(-8)", "Newer turns", show=False, id="inspector.page-up"),
        Binding("pagedown", "turns(8)", "Older turns", show=False, id="inspector.page-down"),
        Binding("enter,f2", "settings", "Settings", show=False, id="inspector.settings"),
        Binding("e", "export", "Report to a file", show=False, id="inspector.export"),
        Binding("c", "quality", "Check quality: what other cache types do", show=False, id="inspector.quality"),
    ]

    def __init__(self, room: Room, open_settings: Callable[[CacheTypes | None], object]) -> None:
        super().__init__()
        self._room = room
        self._open_settings = open_settings
        self._reading = Reading(room, self._take, self._say)
        self._read = Read()
        self._turns: tuple[TurnRow, ...] = ()
        self._read_at = 0.0
        self._read_of: tuple[object, ...] = ()
        self._place = Place()
        self._page = Page((), 1)
        self._drawn: tuple[Findings, Place, tuple[int, int]] | None = None
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="page", markup=False)

    # ------------------------------------------------------------------ when to look

    def on_mount(self) -> None:
        """The first look."""
        self._timer = self.set_interval(PAUSE, self._look)
        self._look()

    def on_screen_suspend(self) -> None:
        """Another screen is on top."""
        if self._timer is not None:
            self._timer.pause()

    def on_screen_resume(self) -> None:
        """On top again: much may be other than before."""
        if self._timer is not None:
            self._timer.resume()
            self._look()

    def on_resize(self, _: events.Resize) -> None:
        """Other sizes show other panels."""
        self._draw()

    def _look(self) -> None:
        """Read again what has another basis; draw what is other than it was drawn."""
        conversation, engine = self._room.conversation, self._room.desk.engine
        live, messages = conversation.live, conversation.messages
        last = messages[-1] if messages else None
        basis = (
            conversation.chat.id,
            len(messages),
            None if last is None else (last.id, last.finish),
            None if live is None else (live.turn, live.restored, live.evicted),
            self._room.sights.marks,
            engine.ready,
            engine.config,
        )
        stale = live is not None and time.monotonic() - self._read_at > REREAD
        if basis != self._read_of or stale:
            self._read_of = basis
            self._read_at = time.monotonic()
            self._reading.begin()
        self._draw()

    def _take(self, read: Read) -> None:
        if is_there(self):
            self._read = read
            self._turns = turn_rows(read.answers, {message.id for message in self._room.conversation.messages})
            self._draw()

    def _say(self, error: KvchatError) -> None:
        if is_there(self):
            self.notify(display(sentences(error.message, error.hint)), markup=False)

    # ------------------------------------------------------------------ drawing

    def _findings(self) -> Findings:
        conversation, read = self._room.conversation, self._read
        return Findings(
            title=conversation.chat.title,
            ready=self._room.desk.engine.ready,
            context=self._held(),
            memory=read.memory,
            store=read.store,
            turns=self._turns,
        )

    def _held(self) -> ContextView:
        conversation, ready = self._room.conversation, self._room.desk.engine.ready
        live, messages = conversation.live, conversation.messages
        generated = 0
        if live is not None and live.restored is not None:
            state = self._room.progress.state(conversation.chat, messages, live)
            generated = max(0, state.used + live.away - live.restored.reused - live.restored.computed)
        view = context_view(
            messages,
            self._read.lengths,
            live=live,
            generated=generated,
            warmed=conversation.warmed,
            reserved=0 if ready is None else ready.cache.context,
            system=bool(conversation.reading.system),
            left=self._read.left,
        )
        on = conversation.chat.prefix is not None
        return replace(view, prefix=self._room.prefix) if on else view

    def _draw(self) -> None:
        size = self.size.width, self.size.height
        if not self.is_current or not size[0]:
            return
        wanted = self._findings(), self._place, size
        if wanted == self._drawn:
            return
        self._drawn = wanted
        self._page = page(wanted[0], self._place, *size, keys_at(self))
        self.query_one("#page", Static).update(Content("\n").join(self._page.lines), layout=False)

    def _go(self, place: Place) -> None:
        self._place = place
        self._draw()

    # ------------------------------------------------------------------ keys

    async def on_key(self, event: events.Key) -> None:
        """Bound keys in the order in which they were typed."""
        await run_bound(self, event)

    def action_page(self, step: int) -> None:
        """Another page."""
        self._go(replace(self._place, page=(self._place.page + step) % self._page.pages))

    def action_types(self, step: int) -> None:
        """What other cache types would take; nothing is applied."""
        memory = self._read.memory
        if not isinstance(memory, str):
            at = memory.now if self._place.types is None else self._place.types
            self._go(replace(self._place, types=(at + step) % len(memory.choices)))

    def action_turns(self, step: int) -> None:
        """Older or newer turns, as far as there are any that are not seen."""
        self._go(replace(self._place, turns=min(max(0, self._place.turns + step), self._page.hidden)))

    def action_settings(self) -> None:
        """Choose model and cache, with the types that are looked at; the inspector stays below."""
        wanted = looked_at(self._findings(), self._place)
        types = (wanted.type_k, wanted.type_v) if wanted is not None else None
        self._open_settings(cast("CacheTypes | None", types))

    def action_quality(self) -> None:
        """What other cache types would do to this chat; the inspector stays below."""
        from kvchat.ui.quality import Quality

        read = self._read
        self.app.push_screen(Quality(self._room, read.ids, read.subject, prompt_speed(self._turns)))

    def action_export(self) -> None:
        """Everything as a text file."""
        text, paths = report(self._findings()), self._room.desk.paths

        def written(path: object) -> None:
            if is_there(self):
                self.notify(display(f"Report written to {path}"), markup=False, timeout=8)

        self._room.aside(lambda: write_report(paths, text, time.time()), written, self._say)

    def action_leave(self) -> None:
        """Back to the chat."""
        if is_on_top(self):
            self.dismiss(None)
