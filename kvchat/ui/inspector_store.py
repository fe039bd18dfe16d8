"""What is kept on disk: of the branch that is shown, and in all. Owns the reading of these sums and their words.

`store_view` reads files: it must not run on the event loop. Must not know widgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.content import Content

from kvchat.backend.protocol import Ready
from kvchat.backend.values import EngineConfig
from kvchat.conversation import Sight
from kvchat.kv.budget import effective_budget
from kvchat.kv.totals import Kept, Sought, kept
from kvchat.ui.context_bar import Look, filled
from kvchat.ui.meters import size_text
from kvchat.ui.wording import duration

LABEL_CELLS = 14
NUMBER_CELLS = 15
BAR = Look("━", "$primary")
NOT_SAVED = "KV is neither saved nor restored in this run."
INCOGNITO = "Incognito: what is on disk is not looked at, and nothing is saved."
NOT_KEPT = "The state of this model cannot be kept on disk."
NOT_HERE = "Nothing is added: the model runs on a server."


@dataclass(frozen=True, slots=True)
class StoreView:
    """`asked`: tokens of the branch whose ids are known. `budget` in bytes, `automatic` when nobody named one.
    `problem`: why nothing is kept now."""

    kept: Kept
    asked: int
    budget: int
    automatic: bool
    problem: str = ""


def store_view(folder: Path | None, config: EngineConfig, ready: Ready | None, sight: Sight) -> StoreView:
    """Read the sums. `sight` is what is known of the branch. `folder` None: it is not to be looked at."""
    if folder is None:
        return StoreView(Kept(), len(sight.past.ids), config.kv_budget, not config.kv_budget, INCOGNITO)
    sought = None
    if ready is not None:
        sought = Sought(ready.model.fingerprint, ready.cache.type_k, ready.cache.type_v, sight.past)
    found = kept(folder, sought)
    budget = effective_budget(config.kv_budget, folder, found.every.bytes)
    problem = NOT_SAVED if config.kv_folder is None else ""
    if ready is not None and not ready.cache.pages:
        problem = problem or (NOT_KEPT if ready.remote is None else NOT_HERE)
    return StoreView(found, len(sight.past.ids), budget, not config.kv_budget, problem)


def store_lines(view: StoreView, width: int) -> list[Content]:
    """Two columns of numbers, and the budget."""
    branch, every = view.kept.history, view.kept.every
    lines = [
        Content.styled(_columns("", "this branch", "in all"), "$meta"),
        _row("pages", f"{branch.pages:,}", f"{every.pages:,}"),
        _row("checkpoints", f"{branch.checkpoints:,}", f"{every.checkpoints:,}"),
        _row("tokens", f"{view.kept.tokens:,} of {view.asked:,}", ""),
        _row("size", size_text(branch.bytes), size_text(every.bytes)),
        _row("read back", _times(branch.hits), _times(every.hits)),
        _row("saved", duration(branch.seconds_saved), duration(every.seconds_saved)),
        _row("pinned", f"{branch.pinned:,}", f"{every.pinned:,}"),
    ]
    lines.append(Content.styled(view.problem, "$warning") if view.problem else _budget(view, width))
    return lines


def _times(count: int) -> str:
    return f"{count:,}×"


def _row(label: str, *values: str) -> Content:
    text = _columns(label, *values)
    return Content.assemble(Content.styled(text[:LABEL_CELLS], "$meta"), Content(text[LABEL_CELLS:]))


def _columns(label: str, *values: str) -> str:
    return label.ljust(LABEL_CELLS) + "".join(value.rjust(NUMBER_CELLS) for value in values)


def _budget(view: StoreView, width: int) -> Content:
    used = view.kept.every.bytes
    numbers = f" {size_text(used)} of {size_text(view.budget)}" + (", automatic" if view.automatic else "")
    cells = max(0, min(30, width - LABEL_CELLS - len(numbers)))
    return Content.assemble(
        Content.styled("budget".ljust(LABEL_CELLS), "$meta"),
        filled(used / view.budget if view.budget else 0.0, cells, BAR),
        Content(numbers),
    )
