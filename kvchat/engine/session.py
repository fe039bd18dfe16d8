"""What exists while a model is loaded: model, context, cells, page store, and what may be asked of them between turns.

Owns their lifetimes and the building anew of a context. Must not read the pipe or decide what runs next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvchat.backend.protocol import (
    Event,
    Forecast,
    Forecasted,
    Generate,
    Preview,
    Previewed,
    Ready,
    Title,
    Titled,
    TurnFinished,
    Warm,
    Warmed,
)
from kvchat.backend.values import CacheInfo, EngineConfig, PromptMessage
from kvchat.engine.aside import TitleJob
from kvchat.engine.cells import Cells
from kvchat.engine.context import Aborted, Context
from kvchat.engine.history import build_prompt, computed_before
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_labels, page_namespace
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver
from kvchat.engine.speed import Speed
from kvchat.engine.turn import Step, Turn
from kvchat.engine.writing import PageWriter
from kvchat.errors import KvchatError
from kvchat.kv.namespace import Namespace
from kvchat.kv.store import PageStore


class Session:
    """A loaded model in one configuration, until `configure` makes it another or `close` ends it."""

    def __init__(
        self,
        config: EngineConfig,
        interrupt: Interrupt,
        progress: Callable[[float], bool],
        emit: Callable[[Event], None],
    ) -> None:
        """Load the model and build the context. Raises KvchatError."""
        self._interrupt = interrupt
        self._emit = emit
        self.model = Model(config, progress)
        self.speed = Speed()
        self._aside: TitleJob | None = None
        self._build(config)

    def _build(self, config: EngineConfig) -> None:
        self.config = config
        self.context = Context(self.model, config, self._interrupt)
        namespace = page_namespace(self.model, self.context.cells, config)
        self._store = self._open_store(config, namespace)
        self._writer = PageWriter(self._store) if self._store is not None else None
        self._cells = Cells(self.context.memory, namespace.root)
        self._reuser = Reuser(self._cells, self._store)
        self._saver = None
        if self._store is not None and self._writer is not None:
            self._saver = Saver(self._cells, self._writer, self._store, page_labels(self.context))

    def _open_store(self, config: EngineConfig, namespace: Namespace) -> PageStore | None:
        if config.kv_folder is None or not self.model.geometry.kept:
            return None
        return PageStore(Path(config.kv_folder), namespace, config.kv_budget)

    def close(self) -> None:
        """Write what waits to be written, and free everything."""
        self._tear_down()
        self.model.native.close()

    def _tear_down(self) -> None:
        self.drop_aside()
        if self._writer is not None:
            self._writer.close()
        if self._store is not None:
            self._store.close()
        self.context.close()

    def configure(self, config: EngineConfig) -> None:
        """Build the context anew. KvchatError when it cannot be; the one from before then stands again. RuntimeError
        when that one cannot be built again either: there is nothing to go on with."""
        before = self.config
        self._tear_down()
        try:
            self._build(config)
        except KvchatError as refusal:
            try:
                self._build(before)
            except KvchatError as error:
                raise RuntimeError(f"no context any more: {error.message}") from refusal
            raise

    def ready(self, seconds: float) -> Ready:
        """What is loaded, after `seconds` of loading."""
        return Ready(self.model.info(self.config), self._cache_info(), seconds, self._notes())

    def _cache_info(self) -> CacheInfo:
        config, context = self.config, self.context
        return CacheInfo(
            type_k=config.type_k,
            type_v=config.type_v,
            context=context.cells,
            flash_attention=context.flash,
            threads=context.threads,
            gpu_layers=config.gpu_layers if context.on_gpu else 0,
            extra_buffers=config.extra_buffers,
            pages=self.model.geometry.kept,
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [self.model.template_note] if self.model.template_note else []
        trained = self.model.geometry.context_trained
        if trained and self.config.context > trained:
            asked = self.config.context
            notes.append(f"the context ({asked}) is longer than what the model was trained for ({trained})")
        return tuple(notes)

    # ---------------------------------------------------------------- turns and what lies between them

    def start_turn(self, request: Generate) -> Turn:
        """A turn whose steps are to be decoded with `decode`. Ids that this vocabulary does not have are forgotten."""
        self.drop_aside()
        request = replace(request, messages=tuple(map(self._checked, request.messages)))
        return Turn(request, self.model, self.context, self._cells, self._reuser, self._saver, self._emit)

    def _checked(self, message: PromptMessage) -> PromptMessage:
        size = self.model.native.vocab_size
        known = message.ids is None or all(0 <= token < size for token in message.ids)
        return message if known else replace(message, ids=None)

    def decode(self, step: Step) -> None:
        """Compute one step. Raises Aborted or KvchatError."""
        self.context.decode(step.tokens, step.position, output=step.output)

    def learn(self, finished: TurnFinished) -> None:
        """Remember how fast a turn was, for forecasts."""
        self.speed.learn(finished.usage)

    def warm(self, command: Warm) -> Warmed:
        """Bring what is stored of a chat's past into the cells; nothing is computed."""
        ids = command.ids
        start = self._reuser.plan(ids)
        if len(ids) >= self.context.cells or not start.loads:
            return Warmed(command.turn, len(ids), start.kept, 0, 0.0, None)
        self.drop_aside()
        # the last id of a prompt is never restored, since its logits are wanted; here none are, so one is added
        reuse = self._reuser.prepare([*ids, 0], len(ids), keep=True)
        return Warmed(
            turn=command.turn,
            tokens=len(ids),
            reused=reuse.reused,
            pages=reuse.pages,
            seconds=reuse.seconds,
            cut=reuse.cut,
            checkpoint=reuse.checkpoint,
        )

    def forecast(self, command: Forecast) -> Forecasted:
        """What a send would reuse and cost. Raises KvchatError when the prompt cannot be built."""
        prompt = build_prompt(
            tuple(map(self._checked, command.messages)),
            template=self.model.template,
            tokenizer=self.model,
            history=command.history,
            clock=command.clock,
        )
        found = self._reuser.outlook(prompt.ids)
        loaded = found.pages + found.checkpoint
        computed = len(prompt.ids) - found.reused
        lost = found.reused < min(prompt.past, computed_before(command.messages)) - 1
        return Forecasted(
            turn=command.turn,
            tokens=len(prompt.ids),
            resident=found.resident,
            pages=found.pages,
            checkpoint=found.checkpoint,
            computed=computed,
            seconds=self.speed.first_token(loaded, computed),
            cut=(self._reuser.reason(prompt.ids) if lost else None) or prompt.cut or command.past_cut,
        )

    def preview(self, command: Preview) -> Previewed:
        """What a chat would find on disk if the context were built in another configuration."""
        restored = 0
        if self._store is not None and command.config.kv_folder is not None:
            cells = command.config.context or self.context.cells
            namespace, memory = page_namespace(self.model, cells, command.config), self.context.memory
            restored = self._store.match_as(namespace, command.ids, window=memory.window, recurrent=memory.recurrent)
        computed = len(command.ids) - restored
        return Previewed(command.turn, len(command.ids), restored, self.speed.first_token(restored, computed))

    # ---------------------------------------------------------------- beside the chat

    @property
    def aside(self) -> str | None:
        """The name of what is being made beside the chat, None for nothing."""
        return self._aside.turn if self._aside is not None else None

    def begin_title(self, command: Title) -> None:
        """Make a title, in place of one that is being made."""
        self.drop_aside()
        try:
            self._aside = TitleJob(command, self.model, self.context)
        except KvchatError:  # no title is no loss
            self._emit(Titled(command.turn, ""))

    def advance_aside(self) -> None:
        """Compute a little of what is made beside the chat."""
        if self._aside is None:
            return
        try:
            titled = self._aside.advance()
        except (Aborted, KvchatError):
            self.drop_aside()
            return
        if titled is not None:
            self.drop_aside()
            self._emit(titled)

    def drop_aside(self) -> None:
        """Whatever is being made beside the chat is not wanted any more."""
        if self._aside is not None:
            self._aside.close()
        self._aside = None

    # ---------------------------------------------------------------- tuning

    def adopt(self, *, flash: bool, threads: int) -> None:
        """Use measured settings from now on. Another flash attention builds the context anew, with empty cells."""
        if flash != self.context.flash:
            self.configure(replace(self.config, flash_attention="on" if flash else "off", threads=threads))
        else:
            self.context.set_threads(threads)
