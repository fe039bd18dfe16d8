"""Three cache types to begin with. Owns which of them is chosen; must not know models beyond their plan."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from kvchat.backend.values import CacheType
from kvchat.kv.geometry import Geometry
from kvchat.kv.plan import Plan
from kvchat.ui.inline_keys import run_bound
from kvchat.ui.meters import size_text

OFFERED: tuple[tuple[CacheType, str], ...] = (("f16", "exact"), ("q8_0", "balanced"), ("q4_0", "smallest"))


class CacheChoice(Static, can_focus=True):
    """One row a type, with the size of the cache for the model that is highlighted elsewhere."""

    DEFAULT_CSS = "CacheChoice { height: 3; text-wrap: nowrap; text-overflow: ellipsis; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,left", "step(-1)", "Previous cache type", show=False, id="cache.up"),
        Binding("down,right,space", "step(1)", "Next cache type", show=False, id="cache.down"),
    ]

    class Changed(Message):
        """Another type was chosen."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._shape: Geometry | None = None
        self._plan: Plan | None = None
        self._row = 0

    @property
    def chosen(self) -> CacheType:
        """What was chosen; not every model can have it."""
        return OFFERED[self._row][0]

    @property
    def type(self) -> CacheType:
        """The chosen type, or f16 where the model cannot have it."""
        return possible_type(self.chosen, self._shape)

    def show(self, shape: Geometry | None, plan: Plan | None) -> None:
        """What this model can have, and the sizes of its plan; None: not known."""
        self._shape, self._plan = shape, plan
        self._draw()

    def on_mount(self) -> None:
        self._draw()

    def watch_has_focus(self, has_focus: bool) -> None:
        """The mark shows that keys go here."""
        super().watch_has_focus(has_focus)
        self._draw()

    async def on_key(self, event: events.Key) -> None:
        """Keys in the order in which they were typed."""
        await run_bound(self, event)

    def on_click(self, event: events.Click) -> None:
        """Choose the row."""
        event.stop()
        if event.y < len(OFFERED) and possible_type(OFFERED[event.y][0], self._shape) == OFFERED[event.y][0]:
            self._choose(event.y)

    def action_step(self, step: int) -> None:
        """The next type that the model can have; not beyond the ends."""
        rows = [row for row, (kind, _) in enumerate(OFFERED) if possible_type(kind, self._shape) == kind]
        beyond = [row for row in rows if (row - self._row) * step > 0]
        if beyond:
            self._choose(beyond[0] if step > 0 else beyond[-1])

    def _choose(self, row: int) -> None:
        self._row = row
        self._draw()
        self.post_message(self.Changed())

    def _draw(self) -> None:
        lines = [self._line(kind, label) for kind, label in OFFERED]
        self.update(Content("\n").join(lines))

    def _line(self, kind: CacheType, label: str) -> Content:
        chosen = self.type == kind
        size, style = "", "$foreground"
        need = next((need for need in self._plan.needs if need.type_k == kind), None) if self._plan else None
        if possible_type(kind, self._shape) != kind:
            size, style = "not with this model", "$meta"
        elif need is not None and self._plan is not None:
            size = f"{size_text(need.kv_bytes + need.state_bytes):>8} at {self._plan.context:,} tokens"
            size += "" if need.fits is not False else ", does not fit"
        return Content.assemble(
            Content.styled("▸ " if chosen and self.has_focus else "  ", "$accent"),
            Content.styled(f"({'•' if chosen else ' '}) {label:<9} {kind:<5} ", "bold" if chosen else style),
            Content.styled(size, "$meta"),
        )


def possible_type(kind: CacheType, shape: Geometry | None) -> CacheType:
    """This type, or f16 where the model cannot have it; None: no model is known."""
    return kind if shape is None or shape.refusal(kind, kind, "auto") is None else "f16"
