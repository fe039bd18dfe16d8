"""The script that checks a GPU, without one and with a tiny model: that it finds what holds, and what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import geometry

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "gpu_check.sh"
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_check  # noqa: E402
import random_model  # noqa: E402


def check(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), "--python", sys.executable, *flags]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)


def test_the_whole_check(tmp_path: Path) -> None:
    done = check("--cpu", "--tiny", "--keep", str(tmp_path / "made"))
    assert done.returncode == 0, done.stdout + done.stderr
    for cache in gpu_check.TYPES:
        assert f"ok     {cache}: 300 of 300 tokens come from pages in another process" in done.stdout
        assert f"ok     {cache}: logits after 24 further tokens are equal bit for bit" in done.stdout
    for cache in gpu_check.TYPES[1:]:
        assert f"ok     f16 to {cache}: 300 of 300 tokens are transcoded" in done.stdout
    assert done.stdout.rstrip().endswith("all promises hold")
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["random-tiny-q4_0.gguf"]


def test_exact_resume_alone() -> None:
    done = check("--cpu", "--tiny", "--resume-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "f16: 300 of 300 tokens come from pages" in done.stdout
    assert "q8_0" not in done.stdout and "transcoded" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "words"), [(("--sideways",), "no flag of this script"), (("--keep",), "--keep names nothing")]
)
def test_wrong_flags(flags: tuple[str, ...], words: str) -> None:
    done = check(*flags)
    assert done.returncode == 2
    assert words in done.stderr and "hint: " in done.stderr


def test_a_broken_promise_is_seen() -> None:
    """One bit of one logit, one token from elsewhere."""
    logits = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    other = logits.copy()
    other.view(np.uint32)[2, 7] ^= 1
    for found, pages, broken in ((logits, 10, 0), (other, 10, 1), (logits, 9, 1)):
        report = gpu_check.Report()
        resumed = {"f16 from": [0, pages, 0], "f16 logits": found}
        gpu_check.check_resume("f16", {"f16 logits": logits}, resumed, 10, report)
        assert len(report.broken) == broken


def test_the_shape_of_the_large_model() -> None:
    """Llama 3.1 8B has 8,030,261,248 parameters, of which its model card says 8B."""
    count = sum(int(np.prod(sizes)) for _, sizes, _ in random_model._tensors(random_model.LLAMA_8B))
    assert count == 8_030_261_248


def test_the_file_is_what_it_says(tmp_path: Path) -> None:
    path = random_model.write(tmp_path / "m.gguf", random_model.TINY)
    header = read_header(path)
    shape = geometry(header)
    assert (shape.attention, shape.layers, shape.bytes_per_token("f16", "f16")) == ("GQA", 4, 4 * 2 * 2 * 64 * 2)
    assert header.quantization == "Q4_0"
