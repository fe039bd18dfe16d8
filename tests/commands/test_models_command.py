"""`kvchat models ls` and `models show`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny

from kvchat.commands.models import run_ls
from kvchat.commands.models_show import run_show
from kvchat.errors import KvchatError
from kvchat.library import find
from kvchat.paths import Paths


@pytest.fixture
def paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(find, "_BUILT_IN_PACKAGE", "no_such_package_anywhere")
    monkeypatch.setattr("kvchat.commands.models.drop_in_folders", tuple)
    monkeypatch.setattr("kvchat.commands.models_show.drop_in_folders", tuple)
    found = Paths.find({"KVCHAT_HOME": str(home)})
    found.models_folder.mkdir()
    return found


def ls(paths: Paths, *, as_json: bool = False) -> str:
    out = io.StringIO()
    assert run_ls(paths, json=as_json, out=out) == 0
    return out.getvalue()


def show(paths: Paths, name: str, *, as_json: bool = False) -> str:
    out = io.StringIO()
    assert run_show(paths, name, json=as_json, out=out) == 0
    return out.getvalue()


def rows(text: str) -> dict[str, str]:
    """The facts, one a line, up to the first empty line."""
    lines = text.partition("\n\n")[0].splitlines()
    return {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in lines if "  " in line}


def test_ls_without_models(paths: Paths) -> None:
    assert str(paths.models_folder) in ls(paths)
    assert json.loads(ls(paths, as_json=True)) == []


def test_ls(paths: Paths) -> None:
    tiny.build("mqa", paths.models_folder, context=8192)
    tiny.build("mamba", paths.models_folder)
    title, mamba, mqa = ls(paths).splitlines()
    assert title.split() == [
        "name",
        "architecture",
        "attention",
        "parameters",
        "quantization",
        "size",
        "context",
        "source",
    ]
    assert mamba.split()[:3] == ["mamba", "mamba", "recurrent"]
    assert mqa.split()[:3] == ["mqa", "llama", "MQA"]
    assert "8,192" in mqa
    assert title.index("source") == mqa.index("models") == mamba.index("models")


def test_ls_json(paths: Paths) -> None:
    path = tiny.build("llama", paths.models_folder)
    width, rows, kv, ffn = 128, 256, 128, 128
    layer = 2 * rows * width + 2 * kv * width + 3 * ffn * width + 2 * width
    assert json.loads(ls(paths, as_json=True)) == [
        {
            "name": "llama",
            "architecture": "llama",
            "attention": "GQA",
            "parameters": 2 * 512 * width + width + 2 * layer,
            "quantization": "F16",
            "size": path.stat().st_size,
            "context_trained": 4096,
            "path": str(path),
            "source": "models",
            "error": None,
        }
    ]


def test_ls_lists_bad_files_with_the_reason(paths: Paths) -> None:
    good = tiny.build("llama", paths.models_folder)
    (paths.models_folder / "cut.gguf").write_bytes(good.read_bytes()[:-5000])
    (paths.models_folder / "text.gguf").write_bytes(b"not a model")
    rows = {row["name"]: row for row in json.loads(ls(paths, as_json=True))}
    assert rows["llama"]["error"] is None
    assert "truncated" in rows["cut"]["error"]
    assert rows["text"] == {
        **dict.fromkeys(("architecture", "attention", "parameters", "quantization", "context_trained")),
        "name": "text",
        "size": 11,
        "path": str(paths.models_folder / "text.gguf"),
        "source": "models",
        "error": rows["text"]["error"],
    }
    assert "not a GGUF file" in rows["text"]["error"]
    assert "not a GGUF file" in ls(paths)


def test_show(paths: Paths) -> None:
    tiny.build("deepseek2", paths.models_folder)
    facts = rows(show(paths, "deep"))
    assert facts["attention"] == "MLA, 2 layers"
    assert facts["KV per token"] == "f16 384 bytes, bf16 384 bytes, q8_0 204 bytes, q4_0 108 bytes"
    assert facts["chat template"] == "yes"


@pytest.mark.parametrize(
    ("kind", "overrides", "expected"),
    [
        # two layers, K and V of two heads of 64
        ("llama", {}, {"f16": 1024, "bf16": 1024, "q8_0": 2 * 2 * 4 * 34, "q4_0": 2 * 2 * 4 * 18}),
        # two heads of 80: quantized types are refused
        ("mha", {"head_size": 80}, {"f16": 1280, "bf16": 1280, "q8_0": None, "q4_0": None}),
        ("mamba", {}, {"f16": 0, "bf16": 0, "q8_0": 0, "q4_0": 0}),
    ],
)
def test_show_json(kind: str, overrides: dict[str, Any], expected: dict[str, int | None], paths: Paths) -> None:
    tiny.build(kind, paths.models_folder, **overrides)
    facts = json.loads(show(paths, kind, as_json=True))
    assert facts["kv_bytes_per_token"] == expected
    assert facts["kept_on_disk"] is True
    assert facts["chat_template"] is True


@pytest.mark.parametrize(
    ("kind", "attention", "reuse", "parts"),
    [
        ("mqa", "MQA, 2 layers", "pages of 128 tokens", ["full"]),
        ("deepseek2", "MLA, 2 layers", "pages of 128 tokens", ["full"]),
        (
            "gemma3",
            "SWA, 4 layers, window 128 tokens",
            "pages of 128 tokens, window rows with them",
            ["full", "window"],
        ),
        ("mamba", "recurrent, 2 layers", "checkpoints of the recurrent state", ["state"]),
        (
            "jamba",
            "hybrid, 4 layers",
            "checkpoints of the recurrent state; attention rows in pages of 128 tokens",
            ["full", "state"],
        ),
        (
            "lfm2swa",
            "hybrid, 4 layers, window 128 tokens",
            "checkpoints of the recurrent state; attention rows in pages of 128 tokens, window rows with them",
            ["full", "window", "state"],
        ),
    ],
)
def test_show_says_how_reuse_works(kind: str, attention: str, reuse: str, parts: list[str], paths: Paths) -> None:
    tiny.build(kind, paths.models_folder)
    facts = rows(show(paths, kind))
    assert (facts["attention"], facts["reuse"]) == (attention, reuse)
    assert json.loads(show(paths, kind, as_json=True))["state_parts"] == parts


def test_show_says_when_a_state_is_not_kept(paths: Paths) -> None:
    writer = gguf.GGUFWriter(paths.models_folder / "sparse.gguf", "minimax-m3")
    writer.add_block_count(2)
    writer.add_context_length(4096)
    writer.add_embedding_length(128)
    writer.add_head_count(2)
    writer.add_uint32("minimax-m3.attention.indexer.key_length", 64)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "only in memory: kvchat does not take this state apart" in show(paths, "sparse")
    assert json.loads(show(paths, "sparse", as_json=True))["kept_on_disk"] is False


def test_show_proposes_drafts(paths: Paths) -> None:
    """A small model with the same vocabulary, and the same model in fewer bits; in no model is itself proposed."""
    folder = paths.models_folder
    for name, spec in (
        ("large", {"layers": 12}),
        ("large-q8", {"layers": 12, "weights": "q8_0"}),
        ("small", {"layers": 1}),
    ):
        tiny.build("llama", folder, **spec).rename(folder / f"{name}.gguf")  # type: ignore[arg-type]
    share = (folder / "small.gguf").stat().st_size / (folder / "large.gguf").stat().st_size
    found = json.loads(show(paths, str(folder / "large.gguf"), as_json=True))["draft_models"]
    assert [each["name"] for each in found] == ["small", "large-q8"]
    assert found[0] == {
        "name": "small",
        "path": str(folder / "small.gguf"),
        "why": f"same vocabulary, {share:.0%} of the size",
    }
    (line,) = [line for line in show(paths, str(folder / "large.gguf")).splitlines() if line.startswith("draft models")]
    assert "small (same vocabulary, " in line
    assert "; large-q8 (the same model in Q8_0, " in line
    assert json.loads(show(paths, "small", as_json=True))["draft_models"] == []
    assert "none found" in show(paths, "small")


def test_show_without_template(paths: Paths) -> None:
    tiny.build("llama", paths.models_folder, chat_template=None)
    assert "ChatML" in show(paths, "llama")
    assert json.loads(show(paths, "llama", as_json=True))["chat_template"] is False


def test_show_refuses(paths: Paths) -> None:
    (paths.models_folder / "bad.gguf").write_bytes(b"GGUFgarbage")
    with pytest.raises(KvchatError):
        run_show(paths, "bad", json=False, out=io.StringIO())
    with pytest.raises(KvchatError, match="no model 'other'"):
        run_show(paths, "other", json=False, out=io.StringIO())


def test_metadata_cannot_reach_the_terminal(paths: Paths) -> None:
    path = tiny.build("llama", paths.models_folder, name="a\x1b[31mb")
    assert "\x1b" in path.name
    for text in (ls(paths), show(paths, str(path))):
        assert "\x1b" not in text
    assert len(ls(paths).splitlines()) == 2


def test_show_tells_the_mix_of_weights(paths: Paths) -> None:
    """One matrix in f32 among those in f16: elements and bytes are those of the tensors that were written."""
    writer = gguf.GGUFWriter(paths.models_folder / "mixed.gguf", "llama")
    writer.add_block_count(1)
    writer.add_string("general.license", "apache-2.0")
    writer.add_string("general.license.link", "https://example.org/licence")
    writer.add_string("general.organization", "Some People")
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_embedding_length(128)
    writer.add_context_length(1024)
    for name, shape, kind in (("a", (4, 32), np.float16), ("b", (8, 32), np.float16), ("c", (6, 32), np.float32)):
        writer.add_tensor(f"{name}.weight", np.zeros(shape, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = json.loads(show(paths, "mixed", as_json=True))
    assert facts["tensor_types"] == [
        {"type": "f16", "tensors": 2, "elements": 384, "bytes": 768, "share": 0.5},
        {"type": "f32", "tensors": 1, "elements": 192, "bytes": 768, "share": 0.5},
    ]
    assert facts["parameters"] == 576
    assert facts["bits_per_weight"] == round(8 * 1536 / 576, 3)
    assert (facts["license"], facts["author"]) == ("apache-2.0", "Some People")
    assert facts["license_link"] == "https://example.org/licence"
    text = show(paths, "mixed")
    assert rows(text)["licence"] == "apache-2.0 https://example.org/licence"
    assert "f16            2       384  768 B  50.0%" in text
    # It has no vocabulary: llama.cpp says so, and the rest is told all the same.
    assert facts["vocabulary"] is None
    assert "What llama.cpp makes of it cannot be told" in text


def test_show_tells_special_tokens_and_an_example(paths: Paths) -> None:
    """The tiny vocabulary has ChatML's markers; ids are those that llama.cpp gives for these texts."""
    tiny.build("llama", paths.models_folder, add_bos=True)
    facts = json.loads(show(paths, "llama", as_json=True))
    special = {token["role"]: token["text"] for token in facts["vocabulary"]["special"]}
    assert special["EOS"] == "<|im_end|>"
    assert facts["vocabulary"]["adds_bos"] is True
    assert facts["vocabulary"]["size"] == 512
    assert "<|im_end|>" in [text for _, text in facts["vocabulary"]["ends"]]
    example = facts["template_example"]
    assert example["text"] == (
        "<|im_start|>system\nAnswer briefly.<|im_end|>\n<|im_start|>user\nWhat is a cache?<|im_end|>\n"
        "<|im_start|>assistant\nMemory for later.<|im_end|>\n<|im_start|>user\nThanks!<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert example["template"] == "GGUF"
    text = show(paths, "llama")
    assert f"A conversation as this model reads it, {example['tokens']} tokens:\n  <|im_start|>system\n" in text
    assert "EOS '<|im_end|>'" in rows(text)["special tokens"]


def test_show_of_a_template_that_steers_the_terminal(paths: Paths) -> None:
    evil = "{% for message in messages %}\x1b[2J\u202e{{ message['content'] }}\n{% endfor %}"
    tiny.build("llama", paths.models_folder, chat_template=evil)
    text = show(paths, "llama")
    assert "\x1b" not in text and "\u202e" not in text
    assert "␛[2JWhat is a cache?" in text


def test_show_of_a_template_that_never_ends(paths: Paths) -> None:
    endless = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}"
    tiny.build("llama", paths.models_folder, chat_template=endless)
    facts = json.loads(show(paths, "llama", as_json=True))
    assert facts["template_example"]["template"] == "ChatML (fallback)"
    assert "takes too much" in facts["template_example"]["note"]
