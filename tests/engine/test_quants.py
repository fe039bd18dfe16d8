"""ggml's own conversions against the definitions in numpy, and what they are used for: rows of every kind of cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from numpy_quants import NumpyQuants

import kvchat
from kvchat.engine.llama_quants import NativeQuants
from kvchat.errors import KvchatError
from kvchat.formats.ggml import row_bytes
from kvchat.kv.transcode import TYPES

PROBE = Path(__file__).with_name("rows_probe.py")
TURNED = Path(__file__).with_name("turned_probe.py")
QUALITY = Path(__file__).with_name("quality_probe.py")
PASSAGE = Path(kvchat.__file__).parent / "bench" / "passage.txt"


def drawn(count: int = 4096) -> np.ndarray:
    """What caches hold: a bell with outliers, zeros, signs."""
    values = np.random.default_rng(1).standard_normal(count).astype(np.float32)
    values[::97] *= 40
    values[64:96] = 0
    values[128] = -0.0
    return values


@pytest.mark.parametrize("kind", TYPES)
def test_read_as_defined(kind: str) -> None:
    raw = np.random.default_rng(2).integers(0, 256, row_bytes(4096, kind), np.uint8)
    if kind in ("f16", "bf16"):
        raw.view(np.uint16)[:] &= 0xBFFF  # neither infinite nor no number
    else:
        block = row_bytes(32, kind)
        blocks = raw.reshape(-1, block)
        blocks[:, :2] = np.float16(0.013).view(np.uint16).tobytes()[0], 0x22
        if kind in ("q4_1", "q5_1"):
            blocks[:, 2:4] = 0x11, 0x22
    ours, theirs = np.empty(4096, np.float32), np.empty(4096, np.float32)
    NativeQuants().decode(kind, raw, ours)
    NumpyQuants().decode(kind, raw, theirs)
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "iq4_nl"])
def test_written_as_defined(kind: str) -> None:
    """Byte for byte, but where a value lies just between two steps: rounding there is each one's own."""
    values = drawn()
    ours, theirs = (np.empty(row_bytes(4096, kind), np.uint8) for _ in range(2))
    NativeQuants().encode(kind, values, ours)
    NumpyQuants().encode(kind, values, theirs)
    assert np.mean(ours != theirs) < 0.001


def test_iq4_nl_keeps_as_much_as_q4_0() -> None:
    errors = {}
    for kind in ("q4_0", "iq4_nl"):
        raw, back = np.empty(row_bytes(4096, kind), np.uint8), np.empty(4096, np.float32)
        NativeQuants().encode(kind, drawn(), raw)
        NativeQuants().decode(kind, raw, back)
        errors[kind] = float(np.linalg.norm(back - drawn()))
    assert errors["iq4_nl"] < errors["q4_0"]


def test_what_is_not_whole_or_not_there() -> None:
    with pytest.raises(ValueError, match="33 elements"):
        NativeQuants().encode("q8_0", np.zeros(33, np.float32), np.empty(34, np.uint8))
    with pytest.raises(ValueError, match="contiguous"):
        NativeQuants().decode("f16", np.zeros(8, np.uint8)[::2], np.empty(2, np.float32))
    with pytest.raises(KvchatError, match="cannot convert f32"):
        NativeQuants().encode("f32", np.zeros(4, np.float32), np.empty(16, np.uint8))


@pytest.mark.parametrize(
    ("kind", "prompts", "types"),
    [("smollm2", 2, ("f16", "q8_0", "q4_0")), ("llama128", 8, ("f16", "bf16", "q8_0", "q4_0"))],
)
def test_a_transcoded_cache_is_as_good_as_a_native_one(request, tmp_path, kind, prompts, types):
    """All pairs: the divergence from f16 of what comes next is at most that of the two types themselves, and the noise
    of another batch shape. With random weights it is about the same: a sixth is allowed, since the prompts are few."""
    model = request.getfixturevalue("smollm2") if kind == "smollm2" else tiny.build(kind, tmp_path)
    command = [sys.executable, QUALITY, model, str(prompts), PASSAGE, *types]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout)
    native = found["native"]
    assert 0 == native["f16"] < native["q8_0"] < native["q4_0"]
    assert len(found["excess"]) == len(types) * (len(types) - 1)
    for pair, excess in found["excess"].items():
        allowed = 0 if kind == "smollm2" else sum(native[each] for each in pair.split(">")) / 6
        assert excess <= allowed, pair


QUANTIZED = [kind for kind in tiny.KINDS if kind not in ("llama80", "mamba", "mamba2", "rwkv7")]


def test_rows_are_those_that_llama_cpp_stores(tmp_path):
    """The first layer's rows depend on the tokens alone, so a context of the other type holds what transcoding makes of
    them, up to the rounding of the type. A wrong rotation is 1.4 away."""
    models = [tiny.build(kind, tmp_path) for kind in QUANTIZED]
    done = subprocess.run([sys.executable, PROBE, *models], check=True, capture_output=True, text=True, timeout=240)
    found = [line.split() for line in done.stdout.splitlines()]
    pairs = ("f16>q8_0", "f16>q4_0", "q8_0>f16", "q4_0>q8_0")
    assert [(kind, pair) for kind, pair, _ in found] == [(kind, pair) for kind in QUANTIZED for pair in pairs]
    for kind, pair, distance in found:
        assert float(distance) < (0.02 if "q4_0" not in pair else 0.2), (kind, pair)


def test_a_turned_v_and_back_is_the_same_to_the_bit(smollm2, tmp_path):
    """Without flash attention llama.cpp keeps V transposed. Rows of such a cache, in one with flash attention and back:
    the same rows, the same state, the same logits of the next token."""
    models = [smollm2, tiny.build("llama128", tmp_path), tiny.build("gemma3", tmp_path)]
    done = subprocess.run([sys.executable, TURNED, *models], check=True, capture_output=True, text=True, timeout=240)
    assert [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()] == [
        "[True, False, True] True True True"
    ] * len(models)
