"""A loaded model ready for one chat: its context, and what keeps the KV in it. Owns the lifetimes of these parts.

The model outlives it: another configuration is another seat of the same model. Must not know turns, or which of the
two models of a session it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvchat.backend.values import EngineConfig
from kvchat.engine.borrowing import Borrowing
from kvchat.engine.cells import Cells
from kvchat.engine.check import NOISE
from kvchat.engine.context import Context
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.model import Model
from kvchat.engine.namespace import page_labels, page_namespace, saved_namespace
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver
from kvchat.engine.writing import PageWriter
from kvchat.kv.lineage import COMPUTED
from kvchat.kv.needs import Subject
from kvchat.kv.store import PageStore
from kvchat.kv.transcode import form_of


class Seat:
    """Context, cells, page store. `store` and `saver` are None where nothing is kept on disk."""

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        interrupt: Callable[[], bool],
        *,
        beside: Subject | None = None,
        draft: bool = False,
    ) -> None:
        """`beside`: a draft model that needs memory too. `draft`: this is one, and its pages are the first to be
        evicted. Raises KvchatError when the context cannot be built."""
        self.model = model
        self.keeps = True  # what is in the cells may be written
        self.context = Context(model, config, interrupt, beside)
        held = page_namespace(model, self.context.cells, config)
        saved = saved_namespace(model, self.context.cells, config)
        self.store, borrowing = None, None
        if config.kv_folder is not None and model.geometry.kept:
            self.store = PageStore(Path(config.kv_folder), saved, config.kv_budget, draft=draft)
            borrowing = Borrowing(self.store, held, model.geometry, NativeQuants())
        computed = COMPUTED if saved == held else form_of(held).name
        self.cells = Cells(self.context.memory, saved.root, computed)
        self.reuser = Reuser(self.cells, self.store, borrowing)
        self.reuser.check.noise = max(NOISE, config.noise)
        self.saver = None
        self._writer = None
        if self.store is not None and borrowing is not None:
            self._writer = PageWriter(self.store, borrowing.shaped())
            labels, told = page_labels(self.context), self.context.logits_after
            self.saver = Saver(self.cells, self._writer, self.store, labels, told)

    def save(self) -> None:
        """Write what is in the cells and not on disk, unless the last turn was to keep nothing."""
        if self.store is None or self.saver is None or self._writer is None or not self.keeps:
            return
        cells = self.cells  # what went wrong before is tried again
        there = self.store.holds(cells.page_keys(cells.past), len(cells))
        cells.pages_on_disk = max(there, cells.lost_pages)
        self._writer.begin()
        self.saver.finish()

    def close(self) -> None:
        """Write what waits to be written, and free the context."""
        if self._writer is not None:
            self._writer.close()
        if self.store is not None:
            self.store.close()
        self.context.close()
