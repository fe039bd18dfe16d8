"""What the machine has, as the system's own files tell it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kvchat import machine

XEON = """processor\t: 0
model name\t: Some Xeon
flags\t\t: fpu sse2 avx avx2 fma f16c avx512f avx512_vnni amx_tile amx_int8

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""
ARM = """processor\t: 0
Features\t: fp asimd sve i8mm
"""


@pytest.fixture
def cpu_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_CPU_INFO", file)
    return file


def test_x86(cpu_info: Path) -> None:
    cpu_info.write_text(XEON)
    assert machine.processor() == "Some Xeon"
    assert machine.features() == ("avx", "avx2", "f16c", "fma", "avx512", "avx512_vnni", "amx")


def test_arm(cpu_info: Path) -> None:
    cpu_info.write_text(ARM)
    assert machine.processor()
    assert machine.features() == ("asimd", "sve", "i8mm")


def test_a_system_that_does_not_say(cpu_info: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "missing")
    assert machine.processor()
    assert machine.features() == ()
    assert machine.total_memory() is None


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:       1024 kB\n")
    monkeypatch.setattr(machine, "_MEMORY", file)
    assert machine.total_memory() == 24684092 * 1024
    assert machine.free_memory() == 2**20


@pytest.mark.parametrize(("quota", "expected"), [("max 100000", 4), ("200000 100000", 2), ("50000 100000", 1), ("", 4)])
def test_physical_cores(quota: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads, two to a core; a container's quota counts whole cores."""
    for cpu in range(8):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{cpu // 2}\n")
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(machine, "_CPU", tmp_path)
    monkeypatch.setattr(machine, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(machine, "_usable", lambda: set(range(8)))
    assert machine.logical_cores() == 8
    assert machine.physical_cores() == expected


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: str | Exception) -> None:
    """An installed llama.cpp with CUDA, and an nvidia-smi that answers so."""
    (folder / "lib").mkdir()
    (folder / "lib" / "libggml-cuda.so").touch()

    class Spec:
        submodule_search_locations = (str(folder),)

    def run(words: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(words, 0, answer, "")

    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda _name: Spec)
    monkeypatch.setattr(machine.subprocess, "run", run)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("8123\n", 8123 << 20),
        ("8000\n4000\n", 12_000 << 20),
        ("[Not Supported]\n", None),
        (FileNotFoundError("nvidia-smi"), None),
        (subprocess.TimeoutExpired("nvidia-smi", 5), None),
    ],
)
def test_free_vram(
    answer: str | Exception, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, tmp_path, answer)
    assert machine.free_vram() == expected


def test_a_build_without_cuda_uses_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, tmp_path, "8123\n")
    (tmp_path / "lib" / "libggml-cuda.so").unlink()
    assert machine.free_vram() is None
