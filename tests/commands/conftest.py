"""Two models that exist, an engine that answers, and `kvchat ask` with both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from asking import Asked
from fake_backend import make_ready
from scripted_engine import ScriptedEngine, answer

from kvchat.backend.protocol import Loading
from kvchat.commands.ask import run_ask
from kvchat.config import Settings
from kvchat.paths import Paths


@pytest.fixture
def paths(home: Path) -> Paths:
    """With two models, "first" and "second"."""
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    paths.models_folder.mkdir()
    for name in ("first", "second"):
        writer = gguf.GGUFWriter(paths.models_folder / f"{name}.gguf", "llama")
        writer.add_block_count(1)
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine([Loading(0.5), make_ready(name="first")], answer("Hello", " there."))


@pytest.fixture
def ask(paths: Paths, engine: ScriptedEngine) -> Callable[..., Asked]:
    """Runs `ask`; what is not named is not given."""

    def run(*question: str, asked: Asked | None = None, settings: Settings | None = None, **options: object) -> Asked:
        asked = asked or Asked()
        given = {"chat": None, "continue_last": False, "resume": False, "json": False} | options
        asked.code = run_ask(
            question,
            settings or Settings(),
            paths,
            **given,  # type: ignore[arg-type]
            out=asked.out,
            err=asked.err,
            stdin=asked.stdin,
            engine_factory=engine,
        )
        assert engine.closed
        return asked

    return run
