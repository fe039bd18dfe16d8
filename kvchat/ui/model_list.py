"""Models as a list with what their headers say. Owns highlight and order; must not load a model.

Headers are read and plans made on a thread while the list is on the screen, for the highlighted model first. A file
that cannot be run is shown dimmed with the reason and cannot be chosen. Names and reasons come from files: cleaned, and
never markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static
from textual.widgets.option_list import Option

from kvchat.backend.choices import Remote
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.ui.display import display_line
from kvchat.ui.inline_keys import run_bound
from kvchat.ui.meters import shortened, size_text
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.options import Options
from kvchat.ui.plan_words import need_lines, reuse_lines
from kvchat.ui.planning import Configure, Planned, PlanReader
from kvchat.ui.remote_rows import facts_of, remote_line, remote_lines

LONGEST_NAME = 40
SHORTEST_NAME = 12
MARK_CELLS = 2
PADDING_CELLS = 3  # at both sides of a row, with the scroll bar
FACTS_CELLS = 42  # size, fit, attention, context
FITTING = {
    True: Content.styled("fits         ", "$success"),
    False: Content.styled("does not fit ", "$warning"),
    None: Content(""),
}


def model_line(model: ModelFile, planned: Planned | None, name_cells: int) -> Content:
    """One model: name, size, and what is known by now. `planned` None: its header is not read yet."""
    name = set_cell_size(shortened(display_line(model.name), name_cells), name_cells)
    size = f"  {size_text(model.size):>8}"
    if planned is None:
        return Content.assemble(name, Content.styled(f"{size}  …", "$meta"))
    plan = planned.plan
    if plan is None:
        reason = planned.facts.problem.removeprefix(str(model.path)).lstrip(" :")
        return Content.styled(f"{name}{size}  {display_line(reason)}", "$meta")
    trained = f"{plan.context_trained:,}" if plan.context_trained else "?"
    return Content.assemble(
        name,
        Content.styled(f"{size}  ", "$meta"),
        FITTING[plan.chosen.fits],
        Content.styled(f"{plan.attention} · {trained}{f' · {model.source}' if model.foreign else ''}", "$meta"),
    )


def name_column(models: Sequence[ModelFile], width: int) -> int:
    """Cells for the names in a list of `width` cells."""
    longest = max((cell_len(display_line(model.name)) for model in models), default=0)
    return max(SHORTEST_NAME, min(longest, LONGEST_NAME, width - FACTS_CELLS))


class ModelList(Options):
    """`configure` says with which configuration a model would be used in `memory`. `remotes` are servers to choose
    from, behind the models of this machine."""

    DEFAULT_CSS = """
    ModelList {
        border: none; padding: 0; background: $surface; scrollbar-size-vertical: 1; text-wrap: nowrap;
        height: auto; min-width: 8;
        &:focus { border: none; }
        & > .option-list--option { padding: 0 1; color: $foreground; }
        & > .option-list--option-highlighted { background: $panel; color: $foreground; }
        &:focus > .option-list--option-highlighted { background: $panel; color: $foreground; }
        & > .option-list--option-disabled { color: $meta; }
    }
    """

    class Read(Message):
        """The header of one model was read, or its plan made again."""

        def __init__(self, planned: Planned) -> None:
            self.planned = planned
            super().__init__()

    def __init__(
        self,
        models: Sequence[ModelFile],
        current: str,
        configure: Configure,
        memory: Memory,
        *,
        remotes: Sequence[Remote] = (),
        id: str | None = None,
    ) -> None:
        super().__init__(id=id, markup=False)
        self.models = tuple(models)
        self._servers = {facts.model: facts for facts in map(facts_of, remotes)}
        self._current = current
        self._known: dict[Path, Planned] = {}
        self._filter = ""
        self._shown: list[ModelFile] = []
        self._configure, self._memory = configure, memory
        self._reader = self._reads()

    def on_mount(self) -> None:
        """Begin to read."""
        self._reader.start()

    def renew(self, models: Sequence[ModelFile], wanted: Path | None) -> None:
        """There are other models now; `wanted` is highlighted."""
        self._reader.stop()
        self.models = tuple(models)
        self._reader = self._reads()
        self._reader.start()
        self.fill()
        row = next((row for row, model in enumerate(self._shown) if model.path == wanted), None)
        self.highlighted = self.highlighted if row is None else row

    def _reads(self) -> PlanReader:
        return PlanReader(
            self.models, self._configure, self._memory, lambda planned: self.post_message(self.Read(planned))
        )

    def on_unmount(self) -> None:
        """Nobody to tell any more."""
        self._reader.stop()

    async def _on_key(self, event: events.Key) -> None:
        await run_bound(self, event)

    def on_resize(self) -> None:
        """Columns are as wide as there is room."""
        self.fill()

    def on_model_list_read(self, event: ModelList.Read) -> None:
        """Say what is known now; whoever has the list hears of it too."""
        self._known[event.planned.facts.model.path] = event.planned
        self.fill()

    def watch_highlighted(self, highlighted: int | None) -> None:
        """What the person looks at is read before the rest."""
        super().watch_highlighted(highlighted)
        if self.chosen is not None and self.planned is None:
            self._reader.prefer(self.chosen)

    def configure(self, configure: Configure) -> None:
        """Other configurations: what is known stays until it is known anew."""
        self._configure = configure
        self._reader.again(configure, self.chosen)

    def filter(self, text: str) -> None:
        """Show only names that hold all words of the text, and the first of them highlighted."""
        self._filter = text.lower()
        self.highlighted = None
        self.fill()

    @property
    def chosen(self) -> ModelFile | None:
        """The highlighted model."""
        shown, row = self._shown, self.highlighted
        return shown[row] if row is not None and row < len(shown) else None

    @property
    def planned(self) -> Planned | None:
        """What is known of the highlighted model; None until its header is read."""
        return self._known.get(self.chosen.path) if self.chosen is not None else None

    @property
    def facts(self) -> ModelFacts | None:
        """What its header says; None until it is read."""
        if self.chosen in self._servers:
            return self._servers[self.chosen]
        return self.planned.facts if self.planned is not None else None

    def step(self, step: int) -> None:
        """Move the highlight over what can be chosen, not beyond the ends."""
        rows = [index for index, option in enumerate(self.options) if not option.disabled]
        if not rows:
            return
        now = rows.index(self.highlighted) if self.highlighted in rows else 0
        self.highlighted = rows[max(0, min(len(rows) - 1, now + step))]

    def fill(self) -> None:
        """Draw all rows; the highlight stays on its model, or goes to the current one, or to the first."""
        kept = self.chosen
        words = self._filter.split()
        offered = (*self.models, *self._servers)
        self._shown = [model for model in offered if all(word in model.name.lower() for word in words)]
        width = max(1, self.size.width - PADDING_CELLS)
        cells = name_column(offered, width - MARK_CELLS)
        options = []
        for model in self._shown:
            planned = self._known.get(model.path)
            server = self._servers[model].remote if model in self._servers else None
            line = model_line(model, planned, cells) if server is None else remote_line(server, cells)
            mark = Content.styled("● " if str(model.path) == self._current else "  ", "$accent")
            broken = planned is not None and planned.plan is None
            options.append(Option(Content.assemble(mark, line).truncate(width, ellipsis=True), disabled=broken))
        self.set_options(options)
        usable = [index for index, option in enumerate(options) if not option.disabled]
        wanted = [index for index in usable if self._shown[index] == kept]
        wanted += [index for index in usable if kept is None and str(self._shown[index].path) == self._current]
        self.highlighted = next(iter([*wanted, *usable]), None)
        self.refresh(layout=True)  # the list does not do so when nothing is left


class PlanLines(Static):
    """What the highlighted model takes and how its cache is found again, in two quiet lines."""

    DEFAULT_CSS = "PlanLines { height: 2; color: $meta; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, models: ModelList, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._models = models

    def on_resize(self) -> None:
        """Another width has room for more or less."""
        self.show()

    def show(self) -> None:
        """Say what the list knows now."""
        planned, facts = self._models.planned, self._models.facts
        if facts is not None and facts.remote is not None:
            self.update(remote_lines(facts.remote))
        elif planned is None:
            self.update("reading the model file" if self._models.chosen is not None else "")
        elif planned.plan is not None and planned.facts.geometry is not None:
            need = self._fitting(need_lines(planned.plan))
            style = "$warning" if planned.plan.chosen.fits is False else "$meta"
            reuse = self._fitting(reuse_lines(planned.plan, planned.facts.geometry))
            self.update(Content("\n").join([Content.styled(need, style), Content(reuse)]))

    def _fitting(self, forms: Sequence[str]) -> str:
        """The longest form that there is room for."""
        width = self.content_size.width
        return next((form for form in forms if cell_len(form) <= width), forms[-1])
