"""The settings: pages of fields over the chat. Owns keys, what is selected, what is being typed, and how it ends.

Nothing is loaded, built, kept or saved here: the screen ends with a wish. What is being chosen belongs to the pages:
the engine's in settings_engine and settings_store, the chat's in settings_pages. Must not wait for files: the model's
header is read on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.timer import Timer

from kvchat.backend.protocol import Previewed, Ready
from kvchat.backend.values import EngineConfig, Remote
from kvchat.config_options import BadValue
from kvchat.conversation import Own
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.machine import logical_cores, total_memory
from kvchat.ui.inline_keys import is_on_top, is_there, run_bound
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.settings_engine import CacheTypes, EngineDraft, EnginePage, Machine
from kvchat.ui.settings_frame import PAGES, SettingsFrame
from kvchat.ui.settings_keys import KEYS
from kvchat.ui.settings_pages import ChatDraft, ChatNow, HistoryPage, Page, SamplingPage
from kvchat.ui.settings_picking import FactsCame, Picking
from kvchat.ui.settings_row import FieldRow
from kvchat.ui.settings_store import StorePage, StoreUse
from kvchat.ui.settings_turns import TurnsPage
from kvchat.ui.typed_line import TypedLine

REST = 0.2  # seconds without a change before the cost of applying is asked for
_BEGINS_NUMBER = frozenset("0123456789.-")


@dataclass(frozen=True, slots=True)
class EngineWish:
    """What the person wants. `config` can be the one that runs already when it is only to be saved as default; None
    leaves the engine alone. `own` is all that the chat is to have of its own, None for what it has."""

    config: EngineConfig | None
    save_as_default: bool
    own: Own | None = None


class SettingsScreen(SettingsFrame[EngineWish | None]):
    """One row per field; the arrow keys walk values that can be had, numbers are typed. None: nothing is to change.

    `config` is what the engine was asked for last, `ready` what it made of it, None while there is no engine.
    `past_tokens` are those that the open chat has computed. `preview` is asked what applying would cost each time the
    choice has rested; the answer comes through `show_preview`. `memory` is what could be had for another engine, `chat`
    what the open chat has of its own, `kv_folder` where KV can be kept (None: not in this run), `page` the first one,
    `types` the cache types that are chosen to begin with, in place of those of `config`. `remotes`: servers that can be
    chosen in place of a model.
    """

    BINDINGS: ClassVar[list[BindingType]] = KEYS

    def __init__(
        self,
        ready: Ready | None,
        config: EngineConfig,
        models: Sequence[ModelFile],
        past_tokens: int,
        preview: Callable[[EngineConfig], None],
        *,
        memory: Memory,
        chat: ChatNow | None = None,
        kv_folder: str | None = None,
        page: str = PAGES[0],
        types: CacheTypes | None = None,
        remotes: Sequence[Remote] = (),
    ) -> None:
        super().__init__()
        machine = Machine(logical_cores(), total_memory(), memory)
        self._preview = preview
        self._engine = EngineDraft(ready, config, past_tokens, machine, self._rest)
        self._engine.opening = types
        self._chat = ChatDraft(chat or ChatNow())
        self._store = StorePage(self._engine, kv_folder or config.kv_folder)
        page_of_engine = EnginePage(self._engine, self._chat)
        self.pages = (
            page_of_engine,
            TurnsPage(self._engine, self._chat),
            SamplingPage(self._chat),
            HistoryPage(self._chat, ready),
            self._store,
        )
        drafting = page_of_engine.drafting
        self._picking = Picking(self, models, self._engine, drafting, self._post_facts, self._picked, remotes)
        self._place = PAGES.index(page)
        self._rows = [1] + [0] * (len(self.pages) - 1)
        self._line: TypedLine | None = None  # what is being typed
        self._bad: BadValue | None = None  # why it cannot be had
        self._early: list[Callable[[], None]] = []  # keys that came before the header was read
        self._timer: Timer | None = None
        self._over = False

    @property
    def _page(self) -> Page:
        return self.pages[self._place]

    @property
    def _field(self) -> str:
        return self._page.fields[self._rows[self._place]]

    def on_mount(self) -> None:
        """Read the headers of the models that are set."""
        self._picking.begin()
        self._turn_to(self._place)

    def on_unmount(self) -> None:
        """Nobody to tell."""
        self._picking.stop()

    def renew_models(self, models: Sequence[ModelFile]) -> None:
        """There are other models now."""
        self._picking.renew(models)

    # ------------------------------------------------------------------ news

    def _post_facts(self, facts: ModelFacts) -> None:
        """On another thread."""
        self.post_message(FactsCame(facts))

    def on_facts_came(self, event: FactsCame) -> None:
        """The engine's fields can be walked from now on; keys that came before count."""
        event.stop()
        config, path = self._engine.config, str(event.facts.model.path)
        if path == config.draft_path:
            self._engine.know_draft(event.facts)
        if path != str(Path(config.model_path)):  # of the draft model, or of one that is chosen no more
            self._show()
            return
        self._engine.know(event.facts)
        early, self._early = self._early, []
        for key in early:
            key()
        if not self._engine.possible:
            self._rows[0] = 0  # nothing else can be done than choosing a model
        self._show()

    def show_preview(self, previewed: Previewed) -> None:
        """The answer to the last question."""
        self._engine.answer(previewed)
        self._show()

    def show_store(self, use: StoreUse) -> None:
        """What lies on the disk."""
        self._store.use = use
        if is_there(self):
            self._show()

    # ------------------------------------------------------------------ keys

    async def on_key(self, event: events.Key) -> None:
        """Bound keys in the order in which they were typed. A letter goes to the next field that begins with it, what
        begins a number begins to type it."""
        character = event.character if event.is_printable else None
        if character is None:
            await run_bound(self, event)
            return
        event.stop()
        event.prevent_default()
        if self._line is not None:
            self._edit(self._line.put(character))
        elif event.key in self._bindings.key_to_bindings:
            for binding in self._bindings.key_to_bindings[event.key]:
                await self.run_action(binding.action)
        elif character in _BEGINS_NUMBER and self._page.line(self._field) is not None:
            self._edit(TypedLine().put(character))
        else:
            self._go_to_letter(character.lower())

    def on_paste(self, event: events.Paste) -> None:
        """Into the line."""
        event.stop()
        if self._page.line(self._field) is not None:
            self._edit((self._line or TypedLine()).put(event.text))

    def action_move(self, step: int) -> None:
        """Another field."""
        self._go((self._rows[self._place] + step) % len(self._page.fields))

    def action_edge(self, direction: int) -> None:
        """The first or last field; the beginning or end of what is typed."""
        if self._line is not None:
            self._edit(self._line.to(direction > 0))
        else:
            self._go(0 if direction < 0 else len(self._page.fields) - 1)

    def action_page(self, step: int) -> None:
        """Another page."""
        self.action_go_to((self._place + step) % len(self.pages))

    def action_go_to(self, place: int) -> None:
        """The page at this place."""
        if self._taken():
            self._turn_to(place)

    def action_step(self, step: int) -> None:
        """Another value, as far as one can be had; the cursor in what is typed."""
        page, field = self._page, self._field
        if self._line is not None:
            self._edit(self._line.moved(step))
        elif (pick := self._picking.of(field)) is not None:
            pick()
        elif isinstance(page, EnginePage):
            self._when_known(lambda: self._step(page, field, step))
        else:
            self._step(page, field, step)

    def action_type(self) -> None:
        """Type a value in place of the present one."""
        if (text := self._page.line(self._field)) is not None and self._line is None:
            self._edit(TypedLine.at_end(text))

    def action_give_back(self) -> None:
        """The default in place of what the chat has of its own; what is typed loses a character."""
        if self._line is not None:
            self._edit(self._line.without(-1))
        else:
            self._page.give_back(self._field)
            self._show()

    def action_apply(self) -> None:
        """Take what was typed, choose a model on its field, end with the wish elsewhere."""
        if self._line is not None:
            self._taken()
        elif (pick := self._picking.of(self._field)) is not None:
            pick()
        else:
            self._when_known(lambda: self._finish(save=False))

    def action_save(self) -> None:
        """End with the wish to have it so now and always."""
        if self._taken():
            self._when_known(lambda: self._finish(save=True))

    def action_cancel(self) -> None:
        """Leave what is being typed, else end as if nothing had happened."""
        if self._line is not None:
            self._edit(None)
        else:
            self._end(None)

    def on_field_row_clicked(self, event: FieldRow.Clicked) -> None:
        """Go to the field, change it where the arrows are; on a second click choose a model, or type."""
        event.stop()
        again = self._field == event.field
        self._go(self._page.fields.index(event.field))
        if self._field != event.field:
            return
        if event.step:
            self.action_step(event.step)
        elif again and (pick := self._picking.of(event.field)) is not None:
            pick()
        elif again:
            self.action_type()

    # ------------------------------------------------------------------ where one is

    def _go(self, row: int) -> None:
        if self._taken():
            self._rows[self._place] = row
            self._show()
            for field in self.query(f"#field-{self._field}"):  # none, before it was drawn
                field.scroll_visible()

    def _go_to_letter(self, letter: str) -> None:
        labels, now = [label.lower() for label, _ in self._page.labels.values()], self._rows[self._place]
        order = [(now + offset) % len(labels) for offset in range(1, len(labels) + 1)]
        found = next((row for row in order if labels[row].startswith(letter)), None)
        if found is not None:
            self._go(found)

    def _turn_to(self, place: int) -> None:
        self._place = place
        self.turn_to(place)
        self._show()

    # ------------------------------------------------------------------ what is typed

    def _edit(self, line: TypedLine | None) -> None:
        self._line, self._bad = line, None
        self._show()

    def _taken(self) -> bool:
        """Whether nothing is being typed any more: what was typed is the value, or it cannot be had and is told."""
        if self._line is None:
            return True
        try:
            self._page.take(self._field, self._line.text)
        except BadValue as bad:
            self._bad = bad
        else:
            self._line = None
        self._show()
        return self._line is None

    # ------------------------------------------------------------------ the choice

    def _when_known(self, key: Callable[[], None]) -> None:
        if self._engine.facts is None:
            self._early.append(key)
        else:
            key()

    def _step(self, page: Page, field: str, step: int) -> None:
        page.step(field, step)
        self._show()

    def _picked(self, field: str) -> None:
        """A model was chosen from its list: on to the next field; a draft model is seen where it was."""
        if field == "model":
            self._rows[0] = 1
        self._show()

    def _rest(self) -> None:
        """The choice is another one: ask what it costs when it has rested."""
        if self._timer is not None:
            self._timer.stop()
        if self._engine.wants_preview:
            self._timer = self.set_timer(REST, lambda: self._preview(self._engine.ask()))

    def _finish(self, *, save: bool) -> None:
        own = self._chat.own if self._chat.changed else None
        config = self._engine.wanted(here=isinstance(self._page, EnginePage), save=save)
        if config is not None or own is not None:
            self._end(EngineWish(config, save, own))
        elif not isinstance(self._page, EnginePage) or self._engine.possible:
            self._end(EngineWish(None, True) if save else None)

    def _end(self, wish: EngineWish | None) -> None:
        """Once, whatever was typed after it."""
        if not self._over and is_on_top(self):
            self._over = True
            self.dismiss(wish)

    def _show(self) -> None:
        problem = self._bad
        self.draw(self._place, self._field, self._line, (problem.problem, problem.hint) if problem else None)
