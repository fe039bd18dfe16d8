"""Model and cache settings. Owns the configuration that is being chosen, until it is applied or thrown away.

Nothing is loaded, built or saved here: the screen ends with a wish. What values are possible is in settings_fields,
what is said about them in settings_words. Must not wait for files: the model's header is read on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Static

from kvchat.backend.protocol import Previewed, Ready
from kvchat.backend.values import EngineConfig
from kvchat.kv.needs import Memory
from kvchat.kv.plan import Plan
from kvchat.library.find import ModelFile
from kvchat.machine import logical_cores, total_memory
from kvchat.ui import settings_words as words
from kvchat.ui.display import display
from kvchat.ui.inline_keys import run_bound
from kvchat.ui.meters import cache_meter, total_meter
from kvchat.ui.model_facts import FactsReader, ModelFacts, model_at
from kvchat.ui.model_picker import ModelPicker
from kvchat.ui.settings_fields import FIELDS, LABELS, FieldName, choices, differing, stepped, value_text
from kvchat.ui.settings_row import FieldRow, Hint, RowState

REST = 0.2  # seconds without a change before the cost of applying is asked for
WIDE = 76  # cells of a screen in which the notes have room beside the fields
TINY = 12  # lines of a screen without room for a border
EFFECT_STYLES: dict[words.EffectKind, str] = {"none": "$meta", "change": "$foreground", "warning": "$error"}


@dataclass(frozen=True, slots=True)
class EngineWish:
    """What the person wants. `config` can be the one that runs already when it is only to be saved as default."""

    config: EngineConfig
    save_as_default: bool


class FactsCame(Message):
    """The header of a model was read."""

    def __init__(self, facts: ModelFacts) -> None:
        self.facts = facts
        super().__init__()


class SettingsScreen(ModalScreen[EngineWish | None]):
    """One row per field; the arrow keys walk values that can be had. None: nothing is to change.

    `config` is what the engine was asked for last, `ready` what it made of it, None while there is no engine.
    `past_tokens` are those that the open chat has computed. `preview` is asked what applying would cost each time the
    choice has rested; the answer comes through `show_preview`. `memory` is what could be had for another engine.
    """

    DEFAULT_CSS = """
    SettingsScreen {
        align: center middle; background: $background 60%;
        & > #box {
            width: 100%; max-width: 84; height: auto; max-height: 100%;
            background: $surface; border: round $primary; border-title-color: $foreground; padding: 0 1;
        }
        & #body { height: auto; scrollbar-size-vertical: 1; background: $surface; }
        & #detail { height: auto; min-height: 2; margin: 1 0; padding: 0 2; color: $meta; }
        & #meters { height: auto; padding: 0 2; }
        & #effect { height: auto; min-height: 2; margin: 1 0; padding: 0 2; }
        & #hints { height: 1; padding: 0 2; }
        &.-narrow .wide { display: none; }
        &.-short #detail, &.-short #effect { margin: 0; }
        &.-tiny #box { border: none; padding: 0; }
    }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 (Textual declares it for instances)
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (TINY, "-short"), (23, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+tab", "move(-1)", "Previous field", show=False, id="settings.up"),
        Binding("down,tab", "move(1)", "Next field", show=False, id="settings.down"),
        Binding("home", "go(0)", "First field", show=False, id="settings.first"),
        Binding("end", f"go({len(FIELDS) - 1})", "Last field", show=False, id="settings.last"),
        Binding("left", "step(-1)", "Previous value", show=False, id="settings.left"),
        Binding("right", "step(1)", "Next value", show=False, id="settings.right"),
        Binding("enter", "apply", "Apply", show=False, id="settings.apply"),
        Binding("ctrl+s", "save", "Save as default", show=False, id="settings.save"),
        Binding("escape,f2,ctrl+c", "cancel", "Change nothing", show=False, id="settings.cancel"),
    ]

    def __init__(
        self,
        ready: Ready | None,
        config: EngineConfig,
        models: Sequence[ModelFile],
        past_tokens: int,
        preview: Callable[[EngineConfig], None],
        *,
        memory: Memory,
    ) -> None:
        super().__init__()
        self._ready, self._started, self._models = ready, config, tuple(models)
        self._past_tokens = past_tokens
        self._preview = preview
        self._config = config
        self._facts: ModelFacts | None = None
        self._early: list[Callable[[], None]] = []  # keys that came before the header was read
        self._row = 1
        self._adapted = ""  # what had to be changed for the model that was picked
        self._previewed: Previewed | None = None
        self._asked: EngineConfig | None = None
        self._timer: Timer | None = None
        self._over = False
        self._cores, self._memory, self._free = logical_cores(), total_memory(), memory
        self._plans: dict[EngineConfig, Plan | None] = {}  # of the model of `_facts`

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = "Model & cache"
            with VerticalScroll(id="body", can_focus=False):
                yield from (FieldRow(field) for field in FIELDS)
                yield Static("", id="detail", markup=False)
                yield Static("", id="meters", markup=False)
                yield Static("", id="effect", markup=False)
            with Horizontal(id="hints"):
                yield Hint("⏎ apply", "apply", id="apply")
                yield Hint("^S save as default", "save", id="save")
                yield Hint("esc cancel", "cancel", id="cancel")
                yield Hint("←→ change", classes="wide")
                yield Hint("↑↓ field", classes="wide")

    def on_mount(self) -> None:
        """Read the header of the model that is set, if one is."""
        model = model_at(Path(self._config.model_path), self._models)
        self._reader = FactsReader([model], lambda facts: self.post_message(FactsCame(facts)))
        if self._config.model_path:
            self._reader.start()
        else:
            self.post_message(FactsCame(ModelFacts(model, None, "no model is chosen yet")))
        self._show()

    def on_unmount(self) -> None:
        """Nobody to tell any more."""
        self._reader.stop()

    def on_resize(self, event: events.Resize) -> None:
        """The fields have what border and hints leave; meters are as long as the screen is wide."""
        height = event.size.height
        self.query_one("#body").styles.max_height = max(1, height - (1 if height < TINY else 3))
        self.call_after_refresh(self._show)

    # ------------------------------------------------------------------ news

    def on_facts_came(self, event: FactsCame) -> None:
        """The fields can be walked from now on; keys that came before count."""
        event.stop()
        self._know(event.facts)
        early, self._early = self._early, []
        for key in early:
            key()
        if event.facts.geometry is None:
            self._row = FIELDS.index("model")  # nothing else can be done
        self._show()

    def show_preview(self, previewed: Previewed) -> None:
        """The answer to the last question. One that comes after another change is of no use."""
        if self._asked is not None and self._asked == self._config:
            self._previewed = previewed
            self._show()

    # ------------------------------------------------------------------ keys

    async def on_key(self, event: events.Key) -> None:
        """Bound keys in the order in which they were typed; a letter goes to the next field that begins with it."""
        if await run_bound(self, event) or not event.character or not event.is_printable:
            return
        event.stop()
        letter = event.character.lower()
        order = [(self._row + offset) % len(FIELDS) for offset in range(1, len(FIELDS) + 1)]
        found = next((row for row in order if LABELS[FIELDS[row]].lower().startswith(letter)), None)
        if found is not None:
            self.action_go(found)

    def action_move(self, step: int) -> None:
        """Another field."""
        self.action_go((self._row + step) % len(FIELDS))

    def action_go(self, row: int) -> None:
        """The field at this place."""
        self._row = row
        self._show()
        self.query_one(f"#field-{FIELDS[row]}").scroll_visible()

    def action_step(self, step: Literal[1, -1]) -> None:
        """Another value, as far as one can be had."""
        field = FIELDS[self._row]
        if field == "model":
            self._pick()
        else:
            self._when_known(lambda: self._step(field, step))

    def action_apply(self) -> None:
        """Choose a model on its field, end with the wish elsewhere."""
        if FIELDS[self._row] == "model":
            self._pick()
        else:
            self._when_known(lambda: self._finish(save=False))

    def action_save(self) -> None:
        """End with the wish to run so now and always."""
        self._when_known(lambda: self._finish(save=True))

    def action_cancel(self) -> None:
        """End as if nothing had happened."""
        self._end(None)

    def on_field_row_clicked(self, event: FieldRow.Clicked) -> None:
        """Go to the field, change it where the arrows are, choose a model on a second click."""
        event.stop()
        again = FIELDS[self._row] == event.field
        self.action_go(FIELDS.index(event.field))
        if event.step:
            self.action_step(1 if event.step > 0 else -1)
        elif again and event.field == "model":
            self._pick()

    # ------------------------------------------------------------------ the choice

    def _when_known(self, key: Callable[[], None]) -> None:
        if self._facts is None:
            self._early.append(key)
        else:
            key()

    def _step(self, field: FieldName, step: Literal[1, -1]) -> None:
        limits = words.limits(self._situation())
        if limits is not None:
            self._choose(stepped(field, self._config, limits, step))

    def _pick(self) -> None:
        configured = partial(words.for_model, self._config, self._cores, self._memory)
        picker = ModelPicker(self._models, self._config.model_path, configured, self._free)
        self.app.push_screen(picker, self._take_model)

    def _take_model(self, facts: ModelFacts | None) -> None:
        if facts is None:
            return
        self._know(facts)
        wanted = replace(self._config, model_path=str(facts.model.path))
        config = words.for_model(wanted, self._cores, self._memory, facts)
        self._row = FIELDS.index("model") + 1
        self._choose(config)
        changed = [f"{LABELS[field]} {value_text(field, config)}" for field in differing(wanted, config)]
        self._adapted = f"changed for this model: {', '.join(changed)}" if changed else ""
        self._show()

    def _know(self, facts: ModelFacts) -> None:
        self._facts = facts
        self._plans.clear()

    def _choose(self, config: EngineConfig) -> None:
        if config == self._config:
            return
        self._config = config
        self._adapted = ""
        self._previewed = self._asked = None
        if self._timer is not None:
            self._timer.stop()
        restored = self._ready is not None and self._past_tokens > 0 and config != self._started
        if restored and config.model_path == self._started.model_path:
            self._timer = self.set_timer(REST, self._ask)
        self._show()

    def _ask(self) -> None:
        self._asked = self._config
        self._preview(self._config)

    def _finish(self, *, save: bool) -> None:
        if self._facts is None or self._facts.geometry is None:
            return
        if save or self._config != self._started or self._ready is None:
            self._end(EngineWish(self._config, save))
        else:
            self._end(None)

    def _end(self, wish: EngineWish | None) -> None:
        """Once, whatever was typed after it."""
        if not self._over:
            self._over = True
            self.dismiss(wish)

    # ------------------------------------------------------------------ drawing

    def _situation(self) -> words.Situation:
        facts, started = self._facts, self._started
        assert facts is not None
        running = self._ready is not None and self._config.model_path == started.model_path
        plan, now = self._plan(self._config), self._plan(started) if running else None
        return words.Situation(
            self._ready, started, self._config, facts, self._cores, self._memory, self._past_tokens, plan, now
        )

    def _plan(self, config: EngineConfig) -> Plan | None:
        """Each is made once."""
        assert self._facts is not None
        if config not in self._plans:
            ready = self._ready if config.model_path == self._started.model_path else None
            self._plans[config] = words.planned(self._facts, config, self._started, ready, self._free)
        return self._plans[config]

    def _show(self) -> None:
        """Draw all of it; cheap, and nothing can be forgotten."""
        for index, field in enumerate(FIELDS):
            self.query_one(f"#field-{field}", FieldRow).say(self._row_state(field, index == self._row))
        detail, meters, effect = (self.query_one(f"#{name}", Static) for name in ("detail", "meters", "effect"))
        self.query_one("#apply", Static).update("⏎ choose" if FIELDS[self._row] == "model" else "⏎ apply")
        if self._facts is None:
            detail.update("reading the model file")
            return
        situation = self._situation()
        field = FIELDS[self._row]
        cut_note = words.brief(field, situation) if self.size.width < WIDE else ""
        sentences = filter(None, (cut_note, self._adapted, words.detail(field, situation)))
        detail.update(Content(display("\n".join(sentences))))
        need = words.memory_need(situation)
        width = meters.content_size.width
        meters.update(Content("\n").join([cache_meter(need, width), total_meter(need, width)]) if need else "")
        text, kind = words.effect(situation, self._previewed)
        effect.update(Content.styled(text, EFFECT_STYLES[kind]))

    def _row_state(self, field: FieldName, selected: bool) -> RowState:
        if self._facts is None:
            return RowState(value_text(field, self._config) if field != "model" else "", "", selected, False)
        situation = self._situation()
        value = self._facts.model.name if field == "model" else value_text(field, self._config)
        limits = words.limits(situation)
        others = [] if limits is None else [each for each in choices(field, self._config, limits) if not each.problem]
        return RowState(value, words.brief(field, situation), selected, field == "model" or len(others) > 1)
