"""What exists while a model is loaded: model, context, cells, page store, and what may be asked of them between turns.

Owns their lifetimes and the building anew of a context. Must not read the pipe or decide what runs next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvchat.backend.fidelity import Measure
from kvchat.backend.protocol import (
    Event,
    Forecast,
    Forecasted,
    Generate,
    Pin,
    Preview,
    Previewed,
    ReadAhead,
    Ready,
    Summarize,
    Title,
    TurnFinished,
    Warm,
    Warmed,
)
from kvchat.backend.values import CacheInfo, EngineConfig, Failure, PromptMessage
from kvchat.engine.asked import Asked, known, read_request
from kvchat.engine.beside import Beside
from kvchat.engine.companion import NAME, Companion
from kvchat.engine.context import Context, Task
from kvchat.engine.draft_control import DraftControl
from kvchat.engine.draft_costs import CostCurve
from kvchat.engine.draft_loading import draft_subject
from kvchat.engine.foretelling import forecast, warm
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.laboratory import Laboratory
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.model import Model
from kvchat.engine.place import Place
from kvchat.engine.placement import placement_notes
from kvchat.engine.previewing import preview
from kvchat.engine.seat import Seat
from kvchat.engine.speculate import Drafts, Speculation
from kvchat.engine.speed import Speed
from kvchat.engine.turn import Turn
from kvchat.engine.typing_ahead import TypingAhead
from kvchat.errors import KvchatError
from kvchat.formats.past import resolve


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
        self._beside = Beside(self.model, emit)
        self._ahead = TypingAhead(self.model, emit)
        self._lab = Laboratory(self.model, interrupt, emit)
        self._quants = NativeQuants()
        self._companion = Companion(interrupt, emit)
        self._build(config, draft_needed=False)

    def _build(self, config: EngineConfig, *, draft_needed: bool) -> None:
        self.config = config
        self._seat = Seat(self.model, config, self._interrupt.stop, beside=draft_subject(config))
        self._speculation = Speculation(config.draft_costs, on_gpu=self.context.on_gpu)
        try:
            self._companion.open(config, self._seat, needed=draft_needed)
        except KvchatError:
            self._seat.close()
            raise

    @property
    def context(self) -> Context:
        return self._seat.context

    def close(self) -> None:
        """Write what waits to be written, and free everything."""
        self._tear_down()
        self.model.native.close()

    def _tear_down(self) -> None:
        self.drop_aside()
        self._lab.end(None, Failure("the measurement ended when the context was built anew", "measure again"))
        self._companion.close()
        self._seat.close()

    def configure(self, config: EngineConfig) -> None:
        """Build the context anew, and a draft model where another one is wanted; with nothing but that the context
        stays as it is. KvchatError when it cannot be; what was before then stands again. RuntimeError when that cannot
        be built again either: there is nothing to go on with."""
        before = self.config
        if self._serves(config):
            self._change_draft(config)
            return
        self.drop_aside()  # what is saved passes through the same scratch sequence
        self._seat.save()  # another cache type is made from what is on disk
        self._tear_down()
        try:
            self._build(config, draft_needed=config.draft_path not in (None, before.draft_path))
        except KvchatError as refusal:
            try:
                self._build(before, draft_needed=False)
            except KvchatError as error:
                raise RuntimeError(f"no context any more: {error.message}") from refusal
            raise

    def _serves(self, config: EngineConfig) -> bool:
        """Whether the context that there is would be built for this configuration, too. What was measured since it was
        built comes as if it were asked for."""
        before, flash = self.config, "on" if self.context.flash else "off"
        same = replace(config, threads=before.threads, flash_attention=before.flash_attention, tune=before.tune)
        same = replace(same, favour=before.favour, read_ahead=before.read_ahead)
        return (
            replace(same, draft_path=before.draft_path, draft_costs=before.draft_costs) == before
            and config.flash_attention in (before.flash_attention, flash)
            and (config.threads > 0 or not before.threads)
        )

    def _change_draft(self, config: EngineConfig) -> None:
        before, self.config = self.config, config
        if config.threads:
            self._set_threads(config.threads)
        if config.draft_costs:
            self._speculation.measured(config.draft_costs)
        if config.draft_path == before.draft_path and self._companion.problem is None:
            return
        self._companion.close()
        self._speculation = Speculation(self.config.draft_costs, on_gpu=self.context.on_gpu)
        try:
            self._companion.open(config, self._seat, needed=config.draft_path != before.draft_path)
        except KvchatError:
            self.config = before
            self._companion.open(before, self._seat, needed=False)
            raise

    def _set_threads(self, threads: int) -> None:
        self.context.set_threads(threads)
        self._companion.set_threads(threads)

    def ready(self, seconds: float) -> Ready:
        """What is loaded, after `seconds` of loading."""
        info, cache = self.model.info(self.config), self._cache_info()
        return Ready(info, cache, seconds, self._notes(), self._companion.info)

    def _cache_info(self) -> CacheInfo:
        config, context = self.config, self.context
        return CacheInfo(
            type_k=config.type_k,
            type_v=config.type_v,
            context=context.cells,
            flash_attention=context.flash,
            threads=context.threads,
            gpu_layers=self.model.gpu_layers if context.on_gpu else 0,
            extra_buffers=config.extra_buffers,
            pages=self.model.geometry.kept,
            namespace=self._seat.store.namespace.id if self._seat.store is not None else "",
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [note for note in (self.model.template_note, self._companion.problem) if note]
        notes += placement_notes(self.config)
        trained = int(self.model.geometry.context_trained / (self.config.rope.freq_scale or 1))
        if trained and self.config.context > trained:
            asked = self.config.context
            notes.append(f"the context ({asked}) is longer than what the model was trained for ({trained})")
        return tuple(notes)

    # ---------------------------------------------------------------- turns and what lies between them

    @property
    def seat(self) -> Seat:
        """The places of the context."""
        return self._seat

    def read(self, request: Generate, came: float) -> Asked:
        """The prompt of a turn that came at this time. Raises KvchatError."""
        return read_request(request, self.model, self.context.memory, came)

    def start_turn(self, asked: Asked, place: Place) -> Turn:
        """A turn in a free place, whose steps are to be decoded with `decode`. Only one that begins without others
        drafts: what pays is judged for one alone."""
        self.drop_aside()
        request = asked.request
        taken = bool(self._seat.taken)
        self._seat.enter(place)
        self.context.forget_outputs()
        ends = self.model.native.ends_generation
        if taken:
            drafts = Drafts(request, (), DraftControl(CostCurve(())), ends)
        else:
            self._companion.keep(asked.keeps)
            drafts = self._speculation.begin(request, self._companion.model, ends)
        if request.draft != "off" and not self.model.geometry.kept:
            drafts.refuse("llama.cpp's memory of this architecture is not known to forget rejected drafts")
        elif request.draft != "off" and taken:
            drafts.refuse("other answers were being written when this one began")
        return Turn(asked, self.model, self.context, place, drafts, self._quants, self._emit)

    def decode(self, tasks: Sequence[Task]) -> None:
        """Compute steps of different places together. Raises Aborted or KvchatError."""
        self.context.compute(tasks)

    def learn(self, finished: TurnFinished) -> None:
        """Remember how fast a turn was, for forecasts."""
        if not finished.usage.beside:
            self.speed.learn(finished.usage)

    def warm(self, command: Warm) -> Warmed | None:
        """Bring what is stored of a chat's past into the cells; nothing is computed. None: there is no room now."""
        warmed = warm(self._seat, command, self.drop_aside)
        if warmed is not None and warmed.reused and not self._seat.taken:
            self._companion.follow(resolve(command.ids, command.evictions)[0], read=False)
        return warmed

    def forecast(self, command: Forecast) -> Forecasted:
        """What a send would reuse and cost. Raises KvchatError when the prompt cannot be built."""
        return forecast(self._seat, self.speed, command)

    def preview(self, command: Preview) -> Previewed:
        """What a chat would find on disk if the context were built in another configuration."""
        return preview(self._seat, self.speed, command)

    # ---------------------------------------------------------------- beside the chat

    @property
    def aside(self) -> str | None:
        """The name of what is being made beside the chat, None for nothing."""
        if (name := self._beside.name or self._ahead.name) is not None:
            return name
        if self._is_draft_behind:
            return NAME
        return self._beside.pin or self._lab.turn

    @property
    def _is_draft_behind(self) -> bool:
        """Whether the draft model shall read what the model has read, while nothing else is wanted."""
        return self._companion.is_behind and self._speculation.wants("model")

    def begin_title(self, command: Title) -> None:
        """Make a title, in place of one that is being made."""
        self._beside.begin_title(command, self._seat)

    def advance_aside(self) -> None:
        """Compute a little of what is made beside the chat."""
        if self._beside.name is not None:
            self._beside.advance(self._seat)
        elif self._ahead.name is not None:
            self._ahead.advance(self._seat)
        elif self._is_draft_behind:
            self._companion.advance()
        elif self._beside.pin is not None:
            self._beside.advance_pin(self._seat)
        else:
            self._lab.advance()

    def drop_aside(self) -> None:
        """Whatever is being made beside the chat gives its cells back."""
        self._beside.give_way()
        self._ahead.give_way()

    def forget(self) -> None:
        """Empty the cells of chats that are not being answered."""
        self.drop_aside()
        self._seat.forget()
        self._companion.forget()

    def read_ahead(self, command: ReadAhead) -> None:
        """Compute the stable part of a draft while nothing else is wanted, in place of another draft."""
        if self.config.read_ahead:
            self._ahead.begin(command, self._seat)

    def _known(self, messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
        return tuple(known(message, self.model) for message in messages)

    def begin_aside(self, command: Measure | Summarize | Pin) -> None:
        """Measure what cache types do, see `Laboratory`, or sum up a chat's beginning, in place of what is being made
        of the kind; or pin a prefix, after the others."""
        if isinstance(command, Measure):
            self._lab.begin(command, self.config)
        elif isinstance(command, Pin):
            self._beside.begin_pin(command)
        else:
            self._beside.begin_summary(replace(command, messages=self._known(command.messages)))

    def end_aside(self, turn: str) -> None:
        """End the measurement, the summary or the pin of that name, if there is one."""
        self._lab.end(turn)
        self._beside.end_summary(turn)
        self._beside.end_pin(turn)

    # ---------------------------------------------------------------- tuning

    def learn_noise(self, noise: float) -> None:
        """How much two computations of the same differ with these types, for the check on resume."""
        self.config = replace(self.config, guard=False, noise=noise)
        self._seat.learn_noise(noise)

    def learn_costs(self, costs: tuple[float, ...]) -> None:
        """Judge drafts by this cost curve, see EngineConfig, from now on."""
        self.config = replace(self.config, draft_costs=costs)
        self._speculation.measured(costs)

    def adopt(self, *, flash: bool, threads: int) -> None:
        """Use measured settings from now on. Another flash attention builds the context anew, with empty cells."""
        if flash != self.context.flash:
            self.configure(replace(self.config, flash_attention="on" if flash else "off", threads=threads))
        else:
            self._set_threads(threads)
