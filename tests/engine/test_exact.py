"""The promise: what comes after a restore in a new process is, bit for bit, what comes without a stop."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

PROBE = Path(__file__).with_name("logits_probe.py")
CACHES = [
    ("f16", "f16", "off"),
    ("f16", "f16", "on"),
    ("bf16", "bf16", "off"),
    ("q8_0", "q8_0", "on"),
    ("q4_0", "q4_0", "on"),
    ("q8_0", "f16", "off"),
    ("q8_0", "q4_0", "on"),
]


def run(mode, spec, folder):
    out = folder / f"{mode}.npz"
    (folder / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, PROBE, mode, folder / "spec.json", out], check=True, timeout=120)
    return np.load(out)


PAGED = ("llama", "mqa", "mha", "deepseek2", "stablelm32", "stablelm96", "stablelm128")


@pytest.mark.parametrize("kind", PAGED)
@pytest.mark.parametrize(("cache", "flash"), [("f16", "off"), ("q8_0", "on"), ("q4_0", "on")])
def test_every_architecture_that_is_kept_in_pages(tmp_path, kind, cache, flash):
    spec = {
        "config": {
            "model_path": str(tiny.build(kind, tmp_path)),
            "context": 512,
            "type_k": cache,
            "type_v": cache,
            "flash_attention": flash,
            "kv_folder": str(tmp_path / "kv"),
        },
        "tokens": np.random.default_rng(7).integers(10, 500, 270).tolist(),
        "prompt": 260,
        "stop": 264,
    }
    stay = run("stay", spec, tmp_path)
    resumed = run("resume", spec, tmp_path)
    assert int(resumed["pages"]) == 264
    assert not np.isnan(stay["logits"]).any()
    assert np.array_equal(stay["logits"].view(np.uint32), resumed["logits"].view(np.uint32))


@pytest.mark.parametrize(("type_k", "type_v", "flash"), CACHES)
def test_restored_logits_equal_resident_logits(smollm2, tmp_path, type_k, type_v, flash):
    rng = np.random.default_rng(7)
    spec = {
        "config": {
            "model_path": str(smollm2),
            "context": 512,
            "type_k": type_k,
            "type_v": type_v,
            "flash_attention": flash,
            "kv_folder": str(tmp_path / "kv"),
        },
        "tokens": rng.integers(100, 40_000, 270).tolist(),
        "prompt": 260,
        "stop": 264,  # two full pages and a tail of 8 tokens
    }
    stay = run("stay", spec, tmp_path)
    resumed = run("resume", spec, tmp_path)
    assert int(resumed["pages"]) == 264
    assert str(resumed["cut"]) == "None"
    assert stay["logits"].shape == (6, 49152)
    assert np.array_equal(stay["logits"].view(np.uint32), resumed["logits"].view(np.uint32))
