"""The page of what is kept on disk. Owns the words about it; the choice is part of the engine's configuration.

What lies there is read by whoever opens the settings, on a thread; must not wait for files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.backend.values import DISK_TYPES
from kvchat.config_options import BY_KEY
from kvchat.kv.budget import effective_budget
from kvchat.kv.totals import kept
from kvchat.ui.meters import size_text
from kvchat.ui.settings_engine import EngineDraft
from kvchat.ui.settings_pages import Page
from kvchat.ui.settings_row import RowState
from kvchat.ui.settings_words import EffectKind

GIB = 1 << 30
BUDGETS = (0, *(size * GIB for size in (1, 2, 4, 8, 16, 32, 64)))
KEPT, BUDGET, DISK = "kept", "kv_budget", "kv_type_disk"
_EXACT = ((GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Bytes of all pages, and the budget that is taken where nobody names one."""

    used: int
    automatic: int


def store_use(folder: Path) -> StoreUse:
    """Read what lies there."""
    used = kept(folder).every.bytes
    return StoreUse(used, effective_budget(0, folder, used))


class StorePage(Page):
    """Whether the KV of chats is kept on disk, how much of it, and in which cache type."""

    NAME = "Store"

    def __init__(self, draft: EngineDraft, folder: str | None) -> None:
        """`folder` is that of the pages; None: kvchat was started without, or incognito."""
        labels = {KEPT: ("KV kept", "KV kept"), BUDGET: ("Most on disk", "Budget"), DISK: ("Type on disk", "On disk")}
        super().__init__(labels)
        self.draft = draft
        self.folder = folder
        self.use: StoreUse | None = None

    @property
    def changed(self) -> bool:
        """Whether it is another place, budget or type."""
        started, config = self.draft.started, self.draft.config
        before = started.kv_folder, started.kv_budget, started.kv_type_disk
        return before != (config.kv_folder, config.kv_budget, config.kv_type_disk)

    def row(self, field: str) -> RowState:
        """Numbers as far as they are known."""
        config, use = self.draft.config, self.use
        if field == KEPT:
            value = "on disk" if config.kv_folder else "in memory"
            if self.folder is None:
                return RowState("no", "started with --no-kv or --incognito", walkable=False)
            return RowState(value, "" if config.kv_folder else "until kvchat ends")
        if field == DISK:
            return RowState(config.kv_type_disk, self._saved_as())
        used = f"{size_text(use.used)} are used" if use is not None else ""
        automatic = f"now {size_text(use.automatic)}" if use is not None and not config.kv_budget else ""
        return RowState(budget_text(config.kv_budget), " · ".join(filter(None, (automatic, used))))

    def step(self, field: str, step: int) -> None:
        """The other place; another budget; another type."""
        config = self.draft.config
        if field == BUDGET:
            sizes = sorted({*BUDGETS, config.kv_budget})
            size = sizes[(sizes.index(config.kv_budget) + step) % len(sizes)]
            self.draft.choose(replace(config, kv_budget=size))
        elif field == DISK:
            kind = DISK_TYPES[(DISK_TYPES.index(config.kv_type_disk) + step) % len(DISK_TYPES)]
            self.draft.choose(replace(config, kv_type_disk=kind))
        elif self.folder is not None:
            self.draft.choose(replace(config, kv_folder=None if config.kv_folder else self.folder))

    def line(self, field: str) -> str | None:
        """The budget can be typed."""
        return budget_text(self.draft.config.kv_budget, exact=True) if field == BUDGET else None

    def take(self, field: str, text: str) -> None:  # noqa: ARG002
        """A size, such as 8GiB."""
        size = BY_KEY[BUDGET].read("0" if text.strip().lower() == "auto" else text)
        assert isinstance(size, int)
        self.draft.choose(replace(self.draft.config, kv_budget=size))

    def detail(self, field: str) -> str:
        """What it costs."""
        if field == BUDGET:
            said = (
                "Above it the pages that were used longest ago are deleted, never a pinned one: what they held is "
                "computed again when its chat goes on. No word is lost."
            )
            limit, use = self.draft.config.kv_budget, self.use
            over = use.used - limit if use is not None and limit else 0
            return said + (f"\n{size_text(over)} of what is there now do not fit into it." if over > 0 else "")
        if field == DISK:
            return (
                "In which cache type KV is saved where that takes less room than the one in memory. What comes back "
                "is transcoded, and has lost what the type on disk does not keep. What is saved already stays as it is."
            )
        if self.folder is None:
            return (
                "Nothing is kept on disk in this run. With --no-kv (kv = false) each turn computes its whole prompt; "
                "with --incognito what is in memory is reused."
            )
        if self.draft.config.kv_folder:
            return "Chats come back without being computed again, also when kvchat was left meanwhile."
        return (
            "Until kvchat ends, KV is neither written to disk nor read from it: a chat that was left is computed "
            "again. What is there stays; texts are saved as always. This is no default that could be saved."
        )

    def _saved_as(self) -> str:
        """What comes of it for this model and these cache types, where that is known."""
        config, facts = self.draft.config, self.draft.facts
        shape = facts.geometry if facts is not None else None
        if shape is None or config.kv_type_disk == "same":
            return ""
        saved = shape.saved_types(config.type_k, config.type_v, config.kv_type_disk)
        if saved == (config.type_k, config.type_v):
            return "saved as in memory"
        now, then = (shape.bytes_per_token(*types) for types in ((config.type_k, config.type_v), saved))
        return f"{then / now:.0%} of the room" if now else ""

    def effect(self) -> tuple[str, EffectKind]:
        """As the draft has it."""
        return self.draft.effect()


def budget_text(size: int, *, exact: bool = False) -> str:
    """A budget as it can be typed; where it is no round number, rounded, unless it is to be `exact`."""
    if not size:
        return "auto"
    for unit, name in _EXACT:
        if size % unit == 0:
            return f"{size // unit} {name}"
    return str(size) if exact else size_text(size)
