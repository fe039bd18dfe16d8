"""Adapters, positions and placement: what they compute, which pages they share, what is refused and what is said."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from gguf_keys import with_keys
from tiny import lora

PROBE = Path(__file__).with_name("options_probe.py")
TOKENS = np.random.default_rng(3).integers(10, 500, 48).tolist()


def run(folder, tokens=TOKENS, before=(), **runs):
    """What the probe tells of these runs."""
    spec, out = folder / "spec.json", folder / "out.npz"
    spec.write_text(json.dumps({"tokens": tokens, "runs": runs}))
    subprocess.run([*before, sys.executable, PROBE, spec, out], check=True, timeout=240)
    with np.load(out) as found:
        return dict(found)


def same(found, a, b):
    return np.array_equal(found[f"{a} logits"].view(np.uint32), found[f"{b} logits"].view(np.uint32))


def farthest(found, a, b):
    return float(np.abs(found[f"{a} logits"] - found[f"{b} logits"]).max())


def spaces(found, *names):
    return [str(found[f"{name} namespace"]) for name in names]


# ------------------------------------------------------------------ LoRA


def test_an_adapter_is_the_model_with_its_product_added(tmp_path):
    """Logits of a float32 model with an adapter are those of the model into which it was merged, to rounding."""
    model = str(tiny.build("llama", tmp_path, weights="f32"))
    pairs = lora.factors(Path(model))
    adapter = str(lora.write(tmp_path / "a.gguf", pairs, alpha=8.0))
    second = str(lora.write(tmp_path / "b.gguf", lora.factors(Path(model), seed=2, rank=2), alpha=2.0))
    half = lora.merge(Path(model), tmp_path / "half.gguf", pairs, alpha=8.0, scale=0.5)
    both = lora.merge(half, tmp_path / "both.gguf", lora.factors(Path(model), seed=2, rank=2), alpha=2.0, scale=-1)
    found = run(
        tmp_path,
        plain={"model": model},
        none={"model": model, "lora": [[adapter, 0.0]]},
        whole={"model": model, "lora": [[adapter, 1.0]]},
        half={"model": model, "lora": [[adapter, 0.5]]},
        merged={"model": str(half)},
        two={"model": model, "lora": [[adapter, 0.5], [second, -1.0]]},
        turned={"model": model, "lora": [[second, -1.0], [adapter, 0.5]]},
        both={"model": str(both)},
    )
    assert same(found, "plain", "none")
    assert farthest(found, "plain", "half") > 0.1
    assert farthest(found, "half", "merged") < 1e-3
    assert farthest(found, "two", "both") < 1e-3
    assert farthest(found, "whole", "half") > 0.1
    plain, none, whole, part, two, turned = spaces(found, "plain", "none", "whole", "half", "two", "turned")
    assert plain == none and two == turned
    assert len({plain, whole, part, two}) == 4


def test_an_adapter_of_another_content_has_pages_of_its_own(tmp_path):
    """The file counts, not its name: one number at its end differs."""
    model = tiny.build("llama", tmp_path)
    first, second = tmp_path / "one" / "a.gguf", tmp_path / "two" / "a.gguf"
    first.parent.mkdir()
    second.parent.mkdir()
    raw = lora.write(first, lora.factors(model)).read_bytes()
    second.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(raw)
    runs = {
        name: {"model": str(model), "lora": [[str(path), 1.0]]}
        for name, path in {"a": first, "b": second, "copy": copy}.items()
    }
    a, b, again = spaces(run(tmp_path, **runs), "a", "b", "copy")
    assert a == again != b


def test_adapters_of_the_real_model(tmp_path, smollm2):
    pairs = lora.factors(smollm2, targets=("attn_v",))
    adapter = lora.write(tmp_path / "a.gguf", pairs)
    found = run(
        tmp_path,
        plain={"model": str(smollm2)},
        none={"model": str(smollm2), "lora": [[str(adapter), 0.0]]},
        acting={"model": str(smollm2), "lora": [[str(adapter), 1.0]]},
    )
    assert same(found, "plain", "none")
    assert farthest(found, "plain", "acting") > 0.1
    size = sum(a.nbytes + b.nbytes for a, b in pairs.values())
    assert found["plain planned"][1] == found["none planned"][1] == 0
    assert found["acting planned"][1] == size


def test_adapters_that_do_not_fit_are_refused_with_the_reason(tmp_path):
    model, other = tiny.build("llama", tmp_path), tiny.build("qwen2", tmp_path)
    wide = tiny.build("llama", tmp_path, name="wide", width=256)
    good = lora.factors(model)
    files = {
        "architecture": lora.write(tmp_path / "q.gguf", lora.factors(other), architecture="qwen2"),
        "size": lora.write(tmp_path / "w.gguf", lora.factors(wide)),
        "name": lora.write(tmp_path / "n.gguf", {"blk.9.attn_q.weight": good["blk.0.attn_q.weight"]}),
        "kind": lora.write(tmp_path / "k.gguf", good, kind="control"),
        "model": model,
        "aLoRA": lora.write(tmp_path / "i.gguf", good, invocation=[1, 2, 3]),
        "short": tmp_path / "s.gguf",
        "gone": tmp_path / "gone.gguf",
    }
    raw = lora.write(tmp_path / "whole.gguf", good).read_bytes()
    files["short"].write_bytes(raw[:-40])
    runs = {name: {"model": str(model), "lora": [[str(path), 1.0]]} for name, path in files.items()}
    runs["twice"] = {"model": str(model), "lora": [[str(tmp_path / "whole.gguf"), 1.0]] * 2}
    found = run(tmp_path, **runs)
    words = {
        "architecture": "is for the architecture 'qwen2', and the model is 'llama'",
        "size": "for a model of another size",
        "name": "changes 'blk.9.attn_q.weight', which the model has not",
        "kind": "another kind than LoRA",
        "model": "not a LoRA adapter but a model",
        "aLoRA": "only after words that invoke it",
        "short": "truncated: ",
        "gone": "gone.gguf",
        "twice": "is given twice",
    }
    for name, part in words.items():
        message, hint = found[f"{name} error"]
        assert part in message, name
        assert name == "twice" or "--lora none" in hint, name


# ------------------------------------------------------------------ RoPE


# Each row: what a file says of its positions, and the options that mean the same.
@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}, {"freq_scale": 0.25}),
        (
            {
                "llama__rope__scaling__type": "yarn",
                "llama__rope__scaling__factor": 4.0,
                "llama__rope__scaling__original_context_length": 1024,
            },
            {"scaling": "yarn", "freq_scale": 0.25, "yarn_orig_ctx": 1024},
        ),
    ],
    ids=["linear", "yarn"],
)
def test_positions_as_a_file_would_say_it(tmp_path, keys, rope):
    model = tiny.build("llama", tmp_path)
    stated = with_keys(model, tmp_path / "stated.gguf", **keys)
    found = run(
        tmp_path,
        plain={"model": str(model)},
        asked={"model": str(model), "rope": rope},
        stated={"model": str(stated)},
        back={"model": str(stated), "rope": {"scaling": "none"}},
    )
    assert same(found, "asked", "stated")
    assert farthest(found, "plain", "asked") > 0.01
    if "yarn_orig_ctx" not in rope:
        assert same(found, "plain", "back")
    plain, asked = spaces(found, "plain", "asked")
    assert plain != asked


def test_every_parameter_of_positions_has_pages_of_its_own(tmp_path):
    model = str(tiny.build("llama", tmp_path))
    yarn = {"scaling": "yarn", "freq_scale": 0.25}
    ropes = {
        "plain": {},
        "base": {"freq_base": 20000.0},
        "scale": {"freq_scale": 0.5},
        "yarn": yarn,
        "orig": yarn | {"yarn_orig_ctx": 512},
        "ext": yarn | {"yarn_ext_factor": 0.5},
        "attn": yarn | {"yarn_ext_factor": 0.0, "yarn_attn_factor": 2.0},
        "slow": yarn | {"yarn_beta_slow": 3.0},
        "fast": yarn | {"yarn_beta_fast": 8.0},
    }
    found = run(tmp_path, **{name: {"model": model, "rope": rope} for name, rope in ropes.items()})
    assert len(set(spaces(found, *ropes))) == len(ropes)
    for name in ropes:
        assert [other for other in ropes if same(found, name, other)] == [name], name


def test_positions_that_have_no_effect_are_refused(tmp_path):
    llama = str(tiny.build("llama", tmp_path))
    found = run(
        tmp_path,
        mamba={"model": str(tiny.build("mamba", tmp_path)), "rope": {"freq_base": 20000.0}},
        yarn={"model": llama, "rope": {"yarn_orig_ctx": 512}},
        attention={"model": llama, "rope": {"scaling": "yarn", "freq_scale": 0.5, "yarn_attn_factor": 2.0}},
    )
    assert "--yarn-attn-factor has no effect" in found["attention error"][0]
    assert "do not say that they use RoPE" in found["mamba error"][0]
    assert "no effect on this model" in found["yarn error"][0]
    assert found["yarn error"][1] == "add --rope-scaling yarn"


# ------------------------------------------------------------------ placement


def test_placement_changes_no_page(tmp_path):
    """Mapped or read, locked or not: the same bits, and the same pages as without. Batches are other shapes."""
    model = str(tiny.build("llama", tmp_path))
    ways = {
        "plain": {},
        "read": {"mmap": False},
        "locked": {"mlock": True},
        "both": {"mmap": False, "mlock": True},
        "threads": {"threads_batch": 2},
        "batch": {"batch": 64, "ubatch": 32},
        "ubatch": {"ubatch": 512},
    }
    found = run(tmp_path, **{name: {"model": model, "hardware": way} for name, way in ways.items()})
    assert len(set(spaces(found, *ways))) == 1
    assert all(same(found, "plain", name) for name in ("read", "locked", "both", "batch", "ubatch"))
    assert {name: int(found[f"{name} chunk"]) for name in ("plain", "batch", "ubatch")} == {
        "plain": 256,
        "batch": 64,
        "ubatch": 512,
    }


def test_what_a_build_without_gpus_cannot_do_is_said(tmp_path):
    model = str(tiny.build("llama", tmp_path))
    asked = {"main_gpu": 1, "tensor_split": [3, 1], "kv_offload": False}
    found = run(tmp_path, plain={"model": model}, asked={"model": model, "hardware": asked})
    if len(found["asked notes"]) == 0:
        pytest.skip("this build of llama.cpp has GPUs")
    assert found["plain notes"].tolist() == []
    assert found["asked notes"].tolist() == [
        "not as asked: the main GPU and the tensor split and where the cache lies have no effect, as this build of "
        "llama.cpp uses no GPU (see kvchat doctor)"
    ]


def test_memory_that_may_not_be_locked_is_told_and_no_reason_to_stop(tmp_path):
    """64 KiB may be locked; without CAP_IPC_LOCK, which would make the limit void."""
    model = str(tiny.build("llama", tmp_path))
    bounded = ["prlimit", "--memlock=65536:65536"]
    bounded += ["setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"]
    if subprocess.run([*bounded, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system cannot take the right to lock memory away")
    found = run(tmp_path, before=bounded, plain={"model": model}, locked={"model": model, "hardware": {"mlock": True}})
    assert found["locked notes"].tolist() == [
        "not as asked: the weights are not all locked in memory, as the system allows 0 MiB "
        "(`ulimit -l`, RLIMIT_MEMLOCK)"
    ]
    assert same(found, "plain", "locked")
