"""How many layers of a model go to the GPU when nobody says. Owns that choice; it is the plan's."""

from __future__ import annotations

from pathlib import Path

from kvchat.backend.values import EngineConfig
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory, subject_at
from kvchat.kv.plan import Wanted, make_plan


def layers_on_gpu(config: EngineConfig, free: Memory) -> int:
    """As llama.cpp counts them: those asked for; else as many as the free memory of the GPU has room for; negative, for
    all, where that is not known. KvchatError when the model's header cannot be read."""
    if config.gpu_layers >= 0 or free.vram is None:
        return config.gpu_layers
    draft = None
    if config.draft_path is not None:
        try:
            draft = subject_at(Path(config.draft_path))
        except KvchatError:
            draft = None  # what is wrong with it is told when it is loaded
    return make_plan(subject_at(Path(config.model_path)), free, Wanted.of(config), draft).gpu_layers
