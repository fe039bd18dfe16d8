"""Which model and which cache: the settings screen, the commands for it, the first run. Owns which models were found.

The engine belongs to EngineLink. Must not wait for files or for the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvchat.backend.fidelity import Measured, Measuring
from kvchat.backend.protocol import Previewed, Ready, TurnFinished
from kvchat.backend.values import CACHE_TYPES, CacheType, EngineConfig
from kvchat.choosing import choice_of
from kvchat.config_options import BY_KEY, BadValue, nearest
from kvchat.conversation import Conversation
from kvchat.ui.ahead import Ahead
from kvchat.ui.background_ending import Ending
from kvchat.ui.background_question import APPLYING
from kvchat.ui.drafting import Drafting
from kvchat.ui.fitting import Fitting
from kvchat.ui.launch import Survey, Weighed
from kvchat.ui.progress import last_usage
from kvchat.ui.room import Room
from kvchat.ui.saving_defaults import SAVED, save_chat, save_engine
from kvchat.ui.servers import Servers
from kvchat.ui.shelf import Shelf, Wish
from kvchat.ui.wording import sentences

if TYPE_CHECKING:
    from kvchat.backend.values import Remote
    from kvchat.library.find import ModelFile
    from kvchat.ui.first_run import FirstChoice
    from kvchat.ui.inbox import News
    from kvchat.ui.model_picker import ModelPicker
    from kvchat.ui.settings_engine import CacheTypes
    from kvchat.ui.settings_screen import EngineWish

UNQUANTIZED = ("f16", "bf16")
NO_MODEL = "There is no model yet. /model chooses one."
NOT_LOADED = "Nothing was loaded. /settings chooses a model, its cache and its context size."


class Engines:
    """Takes wishes to the engine, and what became of them to the person."""

    def __init__(self, room: Room, ending: Ending, ahead: Ahead) -> None:
        self._room = room
        self._ending = ending
        self._ahead = ahead
        self._survey = Survey()
        self._fitting = Fitting(room)
        self.servers = Servers(room)
        self.drafting = Drafting(room, lambda: self._survey.models, lambda path: self._change(draft_path=path))
        self.shelf = Shelf(room, lambda: self._survey.models, self._renewed)

    def apply(self, news: News, turn: str | None = None) -> None:
        """Take over what the engine says; `turn` is the one that was going on in the open chat."""
        match news:
            case Survey():
                self._surveyed(news)
            case Weighed():
                self._weighed(news)
            case Ready():
                self._ahead.opened()
                self.drafting.apply(news)
            case Previewed() if self._room.conversation.previewed is news:
                self._show_preview(news)
            case TurnFinished() if news.turn == turn:
                self.drafting.apply(news)
            case Measuring() | Measured():
                from kvchat.ui.quality import deliver

                deliver(self._room.screen.app, news)

    # ------------------------------------------------------------------ the first run

    def _surveyed(self, found: Survey) -> None:
        self._survey = found
        if found.draft_failure is not None:
            failure = found.draft_failure
            self._room.transcript.note(sentences(failure.message, failure.hint), "warning")
        if found.remote is not None:
            self._say_unused(found.remote)
        if found.chosen is not None or found.remote is not None or found.failure is not None:
            return
        self._room.progress.undecided()
        self._room.sync()
        self._ask_first()

    def _say_unused(self, remote: Remote) -> None:
        from kvchat.choosing import without_effect

        if said := without_effect(self._room.desk.settings, remote):
            self._room.transcript.note(sentences(said, ""), "warning")

    def _ask_first(self, wanted: Path | None = None) -> None:
        from kvchat.ui.first_run import FirstRun

        found, engine = self._survey, self._room.desk.engine
        screen = FirstRun(
            found.models, found.searched, config=engine.config_for(Path()), memory=engine.memory, wanted=wanted
        )
        self._room.screen.app.push_screen(screen, self._begin)

    def _begin(self, choice: FirstChoice | Wish | None) -> None:
        """Start with what was chosen, now and from now on."""
        if choice is None:
            self._room.transcript.note(NO_MODEL)
            return
        if isinstance(choice, str):
            self.shelf.enlarge(choice, self._ask_first)
            return
        config = self._room.desk.engine.config_for(choice.path)
        config = replace(config, type_k=choice.type_k, type_v=choice.type_v)
        self.configure(config, save=True, otherwise=self._ask_first)

    def _renewed(self, models: tuple[ModelFile, ...], searched: tuple[Path, ...]) -> None:
        """There are other models than before."""
        from kvchat.ui.settings_screen import SettingsScreen

        self._survey = replace(self._survey, models=models, searched=searched)
        for screen in self._room.screen.app.screen_stack:
            if isinstance(screen, SettingsScreen):
                screen.renew_models(models)

    def pull(self, name: str) -> None:
        """`/pull [name]`."""

        def came(path: Path | None) -> None:
            if path is not None:
                self._room.transcript.note(f"{path.name} is there. /model {path.stem} takes it.")

        self.shelf.get(name, came)

    def more_models(self, picker: ModelPicker, wish: Wish) -> None:
        """Somebody who chooses a model wants more of them."""
        self.shelf.enlarge(wish, lambda path: picker.renew(self._survey.models, path))

    def _weighed(self, news: Weighed) -> None:
        """The model to begin with, which is not started when it does not fit."""
        self._fitting.know(news.facts, news.draft)
        room = self._room
        if news.fits or news.config != room.desk.engine.config:
            return
        room.progress.undecided()
        room.sync()
        self.configure(news.config, otherwise=lambda: room.transcript.note(NOT_LOADED))

    # ------------------------------------------------------------------ wishes

    def open_settings(self, page: str = "engine", types: CacheTypes | None = None) -> None:
        """Choose model, cache types, what the chat has of its own and the rest in a screen of its own. `types` are
        those that are chosen to begin with."""
        from kvchat.ui.settings_pages import ChatNow
        from kvchat.ui.settings_screen import SettingsScreen
        from kvchat.ui.settings_store import store_use

        room, desk, conversation = self._room, self._room.desk, self._room.conversation
        folder = desk.kv_folder if desk.settings.kv else None
        screen = SettingsScreen(
            desk.engine.ready,
            desk.engine.config,
            self._survey.models,
            last_usage(conversation.messages).cells,
            self._preview,
            memory=desk.engine.memory,
            chat=ChatNow(conversation.own, conversation.defaults, conversation.messages),
            kv_folder=str(folder) if folder is not None else None,
            page=page,
            types=types,
            remotes=self.servers.offered,
        )
        room.screen.app.push_screen(screen, partial(self._take_wish, conversation))
        if (looked := desk.kv_folder) is not None:
            room.aside(lambda: store_use(looked), screen.show_store, lambda _: None)

    def settings(self, page: str) -> None:
        """`/settings [page]`."""
        from kvchat.ui.settings_frame import PAGES

        wanted = nearest(page, PAGES) if page else PAGES[0]
        if wanted is None:
            self._room.toast(f"/settings takes one of {', '.join(PAGES)}.")
        else:
            self.open_settings(wanted)

    def _preview(self, config: EngineConfig) -> None:
        self._room.conversation.preview(config)

    def _show_preview(self, previewed: Previewed) -> None:
        from kvchat.ui.settings_screen import SettingsScreen

        for screen in self._room.screen.app.screen_stack:
            if isinstance(screen, SettingsScreen):
                screen.show_preview(previewed)

    def _take_wish(self, conversation: Conversation, wish: EngineWish | None) -> None:
        """First what is the chat's own, then what is to be so always, then the engine."""
        if wish is None:
            return
        room, own = self._room, wish.own
        if own is not None:
            said = "Set for this chat, from its next answer on."
            room.try_to(lambda: conversation.set_own(own), lambda _: room.toast(said), "not set")
            self._ahead.typed()
        if wish.save_as_default:
            save_chat(self._room, conversation, lambda saved: self._take_config(wish.config, save=saved))
        else:
            self._take_config(wish.config, save=False)

    def _take_config(self, config: EngineConfig | None, *, save: bool) -> None:
        engine = self._room.desk.engine
        if config is None:
            if save:
                self._room.toast(SAVED)
        elif config != engine.config or engine.ready is None:
            self.configure(config, save=save)
        elif save:
            save_engine(self._room, config)

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The models that were found at the start."""
        return self._survey.models

    def model(self, name: str) -> None:
        """`/model [name]`."""
        if not name:
            self.open_settings()
            return
        if self.servers.named(name):
            if (config := self.servers.config(name)) is not None:
                self.configure(config)
            return

        draft = self._room.desk.engine.config.draft_path

        def find() -> tuple[ModelFile, str | None]:
            """The model, with the draft model as far as that can draft for it."""
            from kvchat.library.find import resolve
            from kvchat.library.pairing import proposals

            model = resolve(name, (*self._survey.models, *self._survey.unfit))
            drafts = draft and proposals(model, [resolve(draft, self._survey.models)])
            return model, draft if drafts else None

        def found(pair: tuple[ModelFile, str | None]) -> None:
            self._change(model_path=str(pair[0].path), draft_path=pair[1], extra_buffers=True)

        self._room.aside(find, found, self._room.refuse)

    def cache(self, words: Sequence[str]) -> None:
        """`/cache [K] [V]`; one type is meant for both."""
        if not words:
            self.open_settings()
            return
        if self.servers.refuse_fields():
            return
        wrong = [word for word in words if word not in CACHE_TYPES]
        if wrong or len(words) > 2:
            self._room.toast(f"/cache takes one or two of {', '.join(CACHE_TYPES)}: for K, and for V.")
            return
        type_k, type_v = cast(CacheType, words[0]), cast(CacheType, words[-1])
        if type_v not in UNQUANTIZED and self._room.desk.engine.config.flash_attention == "off":
            off = "needs flash attention, which is turned off. /settings turns it on."
            self._room.toast(f"A V cache of type {type_v} {off}")
            return
        self._change(type_k=type_k, type_v=type_v)

    def number(self, key: str, field: str, text: str) -> None:
        """`/context N` and `/threads N`: the option `key`, which is `field` of the configuration."""
        if not text:
            self.open_settings()
            return
        if self.servers.refuse_fields():
            return
        try:
            value = BY_KEY[key].read(text)
        except BadValue as bad:
            self._room.toast(f"/{field}: {bad.problem}. {bad.hint}")
            return
        self._change(**{field: value})

    def _change(self, **fields: Any) -> None:
        before = self._fitting.wanted or self._room.desk.engine.config
        config = replace(before.of_model(fields.get("model_path", before.model_path)), **fields)
        if not config.model_path:
            self._room.toast(NO_MODEL)
        elif config == self._room.desk.engine.config and self._room.desk.engine.ready is not None:
            self._room.toast("It runs so already.")
        else:
            self.configure(config)

    # ------------------------------------------------------------------ going over

    def configure(
        self, config: EngineConfig, *, save: bool = False, otherwise: Callable[[], object] = lambda: None
    ) -> None:
        """Go over to a configuration, or to what the person takes in its place when it does not fit; `otherwise` when
        that is nothing. `save`: from now on, too."""

        def taken(chosen: EngineConfig) -> None:
            engine = self._room.desk.engine
            if save:
                save_engine(self._room, chosen)
            if chosen != engine.config or engine.ready is None:
                self._apply(chosen)

        if config.remote is not None:
            self.servers.consider(config, config.remote, taken, otherwise)
        else:
            self._fitting.consider(config, self._survey.models, taken, otherwise)

    def _apply(self, config: EngineConfig) -> None:
        """Asks first when answers are being written. Those that wait for the engine can."""
        if self._room.desk.engine.ready is None:
            self._go_over(config)
        else:
            self._ending.ask(APPLYING, lambda: self._go_over(config))

    def _go_over(self, config: EngineConfig) -> None:
        self._room.told = ""
        self._room.progress.rebuild()
        self._room.desk.engine.configure(config)
        self._room.sync()

    def keep_choice(self, conversation: Conversation) -> None:
        """The chat remembers with what it is run, so that it can be told, and gone back to."""
        room, now = self._room, self._room.desk.engine.config
        kept = conversation.engine_settings
        if kept is not None and kept == choice_of(now):
            return
        room.try_to(
            lambda: conversation.set_engine(choice_of(now)),
            lambda _: None,
            "not kept for this chat",
        )
