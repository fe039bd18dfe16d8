"""What is free for a model: the machine's memory, and what the running engine gives back."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ui_fakes import ready_for

from kvchat.backend.values import EngineConfig
from kvchat.kv.needs import Memory
from kvchat.ui import memory
from kvchat.ui.memory import memory_for_engine, private_memory

MIB = 1 << 20


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 40 * MIB)


def test_what_the_running_engine_gives_back_counts() -> None:
    """64 MiB that another process has for itself, beside what any Python has."""
    code = "import sys; held = bytearray(b'x') * (64 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        held = private_memory(other.pid)
        found = memory_for_engine(EngineConfig("m"), ready_for(EngineConfig("m")), other.pid)
        assert 64 * MIB <= held < 128 * MIB
        assert found.ram is not None
        assert 64 * MIB <= found.ram - 40 * MIB < 128 * MIB
        other.communicate()


def test_the_memory_of_a_gpu_is_not_known() -> None:
    report = ready_for(EngineConfig("m"))
    on_gpu = replace(report, cache=replace(report.cache, gpu_layers=5))
    assert memory_for_engine(EngineConfig("m"), on_gpu, None) == Memory()
    assert memory_for_engine(EngineConfig("m", gpu_layers=0), on_gpu, None) == Memory(40 * MIB)
    assert memory_for_engine(EngineConfig("m"), report, None) == Memory(40 * MIB)


@pytest.mark.parametrize(("library", "ram"), [("libggml-cuda.so", None), ("libggml-cpu.so", 40 * MIB)])
def test_a_build_for_a_gpu_is_told_by_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, ram: int | None
) -> None:
    package = tmp_path / "llama_cpp"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "lib" / library).touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)  # what is loaded is found where it was loaded from
    assert memory_for_engine(EngineConfig("m"), None, None) == Memory(ram)


def test_a_process_that_is_gone_has_nothing() -> None:
    assert private_memory(2**22 + 1) == 0
    assert private_memory(os.getpid()) > 0
