"""From the path of a draft model to one that drafts for a loaded model, or to the reason why not.

Owns what a draft model is loaded with: the target's configuration as far as it can have that, and a context that is as
long, but not longer than it was trained for. Must not touch the target.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvchat.backend.values import EngineConfig, Rope
from kvchat.engine.draft_model import DraftModel
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.model import Model
from kvchat.engine.pairing import check_pair
from kvchat.engine.seat import Seat
from kvchat.errors import KvchatError
from kvchat.formats.gguf import model_name
from kvchat.formats.gguf_split import model_files
from kvchat.kv.fit import draft_context
from kvchat.kv.geometry import Geometry
from kvchat.kv.needs import Subject, subject


def draft_subject(config: EngineConfig) -> Subject | None:
    """The draft model of a configuration as plans are made for it, from its header. None: there is none, or one that
    cannot be read, which `load_draft` says."""
    if config.draft_path is None:
        return None
    path = Path(config.draft_path)
    try:
        files = model_files(path)
        return subject(model_name(path), files, sum(file.stat().st_size for file in files))
    except (KvchatError, OSError):
        return None


def load_draft(config: EngineConfig, target: Seat, interrupt: Interrupt) -> DraftModel:
    """Load the draft model of `config`, which names one, and build its context. Raises KvchatError, which begins with
    "draft model", when it cannot be loaded, fits badly, or does not belong to the target."""
    name = model_name(Path(config.draft_path or ""))
    # Adapters and positions are those of the target; what they would do to another model nobody has said.
    alone = replace(config, model_path=config.draft_path or "", draft_path=None, lora=(), rope=Rope(), parallel=1)
    try:
        model = Model(alone, lambda _: not interrupt.closing)
        try:
            check_pair(name, model.native, target.model.native)
            seat = Seat(model, _beside(alone, model.geometry, target.context.cells), interrupt.stop, draft=True)
        except KvchatError:
            model.native.close()
            raise
    except KvchatError as error:
        raise KvchatError(f"draft model {name}: {error.message}", error.hint) from None
    seat.context.set_threads(target.context.threads)
    pair = f"{model.fingerprint[:8]} {target.model.fingerprint[:8]}"
    share = model.native.bytes / max(target.model.native.bytes, 1)
    return DraftModel(seat, target.model.native.vocab_size, pair=pair, share=share)


def _beside(config: EngineConfig, shape: Geometry, cells: int) -> EngineConfig:
    """The configuration of its own context beside one of so many cells; f16 where it cannot have these types."""
    if shape.refusal(config.type_k, config.type_v, config.flash_attention) is not None:
        config = replace(config, type_k="f16", type_v="f16")
    return replace(config, context=draft_context(shape, cells))
