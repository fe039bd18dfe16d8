"""Three cache types to begin with. Owns which of them is chosen; must not know models beyond their geometry."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from kvchat.backend.values import CacheType
from kvchat.kv.fit import automatic_context, cache_bytes
from kvchat.kv.geometry import Geometry
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

    def __init__(self, free: int | None, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._free = free
        self._shape: Geometry | None = None
        self._row = 0

    @property
    def type(self) -> CacheType:
        """The chosen type, or f16 where the model cannot have it."""
        chosen = OFFERED[self._row][0]
        return chosen if self._possible(chosen) else "f16"

    def show(self, shape: Geometry | None) -> None:
        """Sizes for this model; None: no model is known."""
        self._shape = shape
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
        if event.y < len(OFFERED) and self._possible(OFFERED[event.y][0]):
            self._row = event.y
            self._draw()

    def action_step(self, step: int) -> None:
        """The next type that the model can have; not beyond the ends."""
        rows = [row for row, (kind, _) in enumerate(OFFERED) if self._possible(kind)]
        beyond = [row for row in rows if (row - self._row) * step > 0]
        if beyond:
            self._row = beyond[0] if step > 0 else beyond[-1]
            self._draw()

    def _possible(self, kind: CacheType) -> bool:
        return self._shape is None or self._shape.refusal(kind, kind, "auto") is None

    def _draw(self) -> None:
        lines = [self._line(kind, label) for kind, label in OFFERED]
        self.update(Content("\n").join(lines))

    def _line(self, kind: CacheType, label: str) -> Content:
        chosen = self.type == kind
        size, style = "", "$foreground"
        if not self._possible(kind):
            size, style = "not with this model", "$meta"
        elif self._shape is not None:
            tokens = automatic_context(self._shape, kind, kind, self._free)
            size = f"{size_text(cache_bytes(self._shape, kind, kind, tokens)):>8} at {tokens:,} tokens"
        return Content.assemble(
            Content.styled("▸ " if chosen and self.has_focus else "  ", "$accent"),
            Content.styled(f"({'•' if chosen else ' '}) {label:<9} {kind:<5} ", "bold" if chosen else style),
            Content.styled(size, "$meta"),
        )
