"""Which models are proposed as drafts, from their headers alone."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants

from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.library.pairing import misfit, proposals


def model(
    folder: Path,
    name: str,
    *,
    width: int = 64,
    weights: str = "F16",
    tokens: int = 300,
    kind: str = "gpt2",
    pre: str = "gpt-2",
    bos: int = 1,
    adds_bos: bool = True,
) -> ModelFile:
    """A file with one matrix of `width` columns, which is most of it."""
    path = folder / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([f"t{token}" for token in range(tokens)])
    writer.add_bos_token_id(bos)
    writer.add_add_bos_token(adds_bos)
    sort = gguf.GGMLQuantizationType[weights]
    data = quants.quantize(np.ones((4096, width), np.float32), sort)
    writer.add_tensor("token_embd.weight", data, raw_dtype=sort)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelFile(name, path, path.stat().st_size, "models")


def named(found):
    return {proposal.model.name: proposal.why for proposal in found}


def test_smaller_models_first_then_lower_quantizations(tmp_path: Path) -> None:
    large = model(tmp_path, "large", width=1024)
    others = [
        large,
        model(tmp_path, "large-q4", width=1024, weights="Q4_0"),
        model(tmp_path, "large-bf16", width=1024, weights="BF16"),  # not lower
        model(tmp_path, "quarter", width=250),
        model(tmp_path, "third", width=350),
        model(tmp_path, "tenth", width=100),
    ]
    found = proposals(large, others)
    assert [proposal.model.name for proposal in found] == ["tenth", "quarter", "large-q4"]
    assert found[0].why == "same vocabulary, 10% of the size"
    assert found[2].why == "the same model in Q4_0, 28% of the size"
    assert [proposal.bytes for proposal in found] == [each.model.path.stat().st_size for each in found]


# Each row: a difference of the vocabularies, and how it is told.
OTHERS = [
    ({"kind": "llama"}, "it is SPM, not BPE"),
    ({"pre": "qwen2"}, "it cuts text by the rules of qwen2, not gpt-2"),
    ({"tokens": 171}, "it has 171 tokens, not 300"),
    ({"tokens": 429}, "it has 429 tokens, not 300"),
    ({"adds_bos": False}, "BOS is not added to its prompts"),
    ({"bos": 4}, "its BOS is token 4, not 1"),
]


@pytest.mark.parametrize(("change", "told"), OTHERS)
def test_another_vocabulary_is_not_proposed(tmp_path: Path, change: dict, told: str) -> None:
    large, small = model(tmp_path, "large", width=1024), model(tmp_path, "small", **change)
    assert proposals(large, [small]) == ()
    assert misfit(large.path, small.path) == f"the vocabularies differ: {told}"


@pytest.mark.parametrize("change", [{"tokens": 172}, {"tokens": 428}, {}])
def test_a_vocabulary_that_is_a_little_larger_is(tmp_path: Path, change: dict) -> None:
    large, small = model(tmp_path, "large", width=1024), model(tmp_path, "small", **change)
    assert named(proposals(large, [small])) == {"small": "same vocabulary, 6% of the size"}
    assert misfit(large.path, small.path) == ""


def test_what_a_file_does_not_say_is_taken_for_equal(tmp_path: Path) -> None:
    path = tmp_path / "silent.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert misfit(model(tmp_path, "large").path, path) == ""


def test_broken_files_are_passed_over(tmp_path: Path) -> None:
    large = model(tmp_path, "large", width=1024)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    broken = ModelFile("broken", tmp_path / "broken.gguf", 4, "models")
    gone = ModelFile("gone", tmp_path / "gone.gguf", 4, "models")
    assert named(proposals(large, [broken, gone, model(tmp_path, "small")])).keys() == {"small"}
    with pytest.raises(KvchatError):
        misfit(large.path, broken.path)
    with pytest.raises(KvchatError):
        proposals(broken, [large])
