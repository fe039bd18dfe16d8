"""The promise: what comes after a restore in a new process is, bit for bit, what comes without a stop."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import geometry

PROBE = Path(__file__).with_name("logits_probe.py")


def cache(type_k, type_v, flash):
    return {"type_k": type_k, "type_v": type_v, "flash_attention": flash}


REAL = {
    "f16 off": cache("f16", "f16", "off"),
    "f16 on": cache("f16", "f16", "on"),
    "bf16": cache("bf16", "bf16", "off"),
    "q8_0": cache("q8_0", "q8_0", "on"),
    "q4_0": cache("q4_0", "q4_0", "on"),
    "q8_0 f16": cache("q8_0", "f16", "off"),
    "q8_0 q4_0": cache("q8_0", "q4_0", "on"),
}
TINY = {name: REAL[name] for name in ("f16 off", "f16 on", "q8_0", "q4_0")}


def run(mode, spec, folder):
    out = folder / f"{mode}.npz"
    (folder / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, PROBE, mode, folder / "spec.json", out], check=True, timeout=240)
    return np.load(out)


def compare(model, folder, configs, *, prompt, stop, vocabulary):
    """Every configuration, restored after `stop` tokens and not stopped there."""
    shape = geometry(read_header(model))
    configs = {
        name: config
        for name, config in configs.items()
        if shape.refusal(config["type_k"], config["type_v"], config["flash_attention"]) is None
    }
    spec = {
        "model": str(model),
        "context": 2048,
        "folder": str(folder / "kv"),
        "configs": configs,
        "tokens": np.random.default_rng(7).integers(*vocabulary, stop + 6).tolist(),
        "prompt": prompt,
        "stop": stop,
    }
    stay, resumed = run("stay", spec, folder), run("resume", spec, folder)
    for name in configs:
        assert stay[f"{name} from"].tolist() == [stop, 0, 0], name
        where = [0, 0, stop] if shape.state_bytes else [0, stop, 0]
        assert resumed[f"{name} from"].tolist() == where, name
        assert str(resumed[f"{name} cut"]) == "None", name
        a, b = stay[f"{name} logits"], resumed[f"{name} logits"]
        assert len(a) == 6 and not np.isnan(a).any()
        assert np.array_equal(a.view(np.uint32), b.view(np.uint32)), name
    return configs


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_every_architecture(tmp_path, kind):
    done = compare(tiny.build(kind, tmp_path), tmp_path, TINY, prompt=260, stop=264, vocabulary=(10, 500))
    assert len(done) >= 2


@pytest.mark.parametrize("kind", ["gemma3", "gpt-oss", "lfm2swa"])
def test_a_window_that_lies_across_the_end_of_its_ring(tmp_path, kind):
    """Window 128, two sequences, chunks of 256: a ring of 512 cells, and 1,536 is its third end."""
    compare(tiny.build(kind, tmp_path), tmp_path, TINY, prompt=1500, stop=1600, vocabulary=(10, 500))


def test_smollm2(smollm2, tmp_path):
    done = compare(smollm2, tmp_path, REAL, prompt=260, stop=264, vocabulary=(100, 40_000))
    assert done == REAL


def test_gemma3_beyond_its_window(gemma3, tmp_path):
    """Window 512, ring 1,280: the reply rolls past its end."""
    configs = {name: REAL[name] for name in ("f16 off", "q8_0")}
    assert geometry(read_header(gemma3)).window == 512
    done = compare(gemma3, tmp_path, configs, prompt=1270, stop=1290, vocabulary=(100, 200_000))
    assert done == configs
