"""How many layers of a model go to the GPU when nobody says. Owns that choice; it is the plan's."""

from __future__ import annotations

from pathlib import Path

from kvchat.backend.values import EngineConfig
from kvchat.errors import KvchatError
from kvchat.formats.gguf import model_name
from kvchat.formats.gguf_split import model_files
from kvchat.kv.fit import computed_at_once
from kvchat.kv.needs import Memory, Subject, subject
from kvchat.kv.plan import Wanted, make_plan


def wanted_of(config: EngineConfig) -> Wanted:
    """What a configuration asks for, as plans are made for it."""
    hardware = config.hardware
    return Wanted(
        config.context,
        config.type_k,
        config.type_v,
        config.flash_attention,
        config.gpu_layers,
        computed_at_once(hardware.batch, hardware.ubatch),
        hardware.kv_offload,
    )


def layers_on_gpu(config: EngineConfig, free: Memory) -> int:
    """As llama.cpp counts them: those asked for; else as many as the free memory of the GPU has room for; negative, for
    all, where that is not known. KvchatError when the model's header cannot be read."""
    if config.gpu_layers >= 0 or free.vram is None:
        return config.gpu_layers
    draft = None
    if config.draft_path is not None:
        try:
            draft = _subject(Path(config.draft_path))
        except KvchatError:
            draft = None  # what is wrong with it is told when it is loaded
    return make_plan(_subject(Path(config.model_path)), free, wanted_of(config), draft).gpu_layers


def _subject(path: Path) -> Subject:
    files = model_files(path)
    try:
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise KvchatError(f"{path} cannot be read: {error.strerror}", "check that all its files are there") from error
    return subject(model_name(path), files, size)
