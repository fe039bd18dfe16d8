"""How many layers an engine gives to the GPU when nobody says: as the plan has it; no GPU is needed to ask."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from kvchat.backend.values import EngineConfig
from kvchat.engine.layers import layers_on_gpu
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory

GIB = 1 << 30
MIB = 1 << 20


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    """Two layers and the output matrix; computations take some MiB, all of the rest less than four."""
    return EngineConfig(str(tiny.build("llama", tmp_path)), context=1024)


def test_all_where_there_is_room(config: EngineConfig) -> None:
    assert layers_on_gpu(config, Memory(GIB, GIB)) == 3


def test_none_where_there_is_no_room(config: EngineConfig) -> None:
    assert layers_on_gpu(config, Memory(GIB, MIB)) == 0


def test_all_as_llama_cpp_has_it_where_nothing_is_known(config: EngineConfig) -> None:
    assert layers_on_gpu(config, Memory(GIB, None)) == -1


def test_what_is_asked_for_stays(config: EngineConfig) -> None:
    for layers in (0, 1, 9999):
        asked = EngineConfig(config.model_path, gpu_layers=layers)
        assert layers_on_gpu(asked, Memory(GIB, MIB)) == layers


def test_a_draft_model_that_cannot_be_read_takes_nothing(config: EngineConfig, tmp_path: Path) -> None:
    beside = EngineConfig(config.model_path, context=1024, draft_path=str(tmp_path / "none.gguf"))
    assert layers_on_gpu(beside, Memory(GIB, GIB)) == 3
    with pytest.raises(KvchatError):
        layers_on_gpu(EngineConfig(str(tmp_path / "none.gguf")), Memory(GIB, GIB))
