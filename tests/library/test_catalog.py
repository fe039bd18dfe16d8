"""The catalogue: what it promises of shapes must be what the published models have."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import kvchat
from kvchat.kv.compute import workload
from kvchat.kv.geometry import geometry
from kvchat.library.catalog import offer, offers
from kvchat.library.pairing import MOST_DIFFERENT

ROOT = Path(kvchat.__file__).parent.parent


# Each row: bytes of K and V of a token in f16 (layers x KV heads x head size x 2 x 2), as the model's own configuration
# has it, the kind of attention, and parameters in thousand millions, the tied output matrix counted once.
@pytest.mark.parametrize(
    ("name", "layers", "row", "attention", "parameters"),
    [
        ("smollm2:360m", 32, 5 * 64, "GQA", 0.36),
        ("qwen3:0.6b", 28, 8 * 128, "GQA", 0.60),
        ("gemma3:1b", 26, 1 * 256, "SWA", 1.00),
        ("llama3.2:1b", 16, 8 * 64, "GQA", 1.24),
        ("smollm2:1.7b", 24, 32 * 64, "MHA", 1.71),
        ("qwen3:1.7b", 28, 8 * 128, "GQA", 1.72),
        ("smollm3:3b", 36, 4 * 128, "GQA", 3.08),
        ("llama3.2:3b", 28, 8 * 128, "GQA", 3.21),
        ("gemma3:4b", 34, 4 * 256, "SWA", 3.88),
        ("qwen3:4b", 36, 8 * 128, "GQA", 4.02),
        ("qwen3:8b", 36, 8 * 128, "GQA", 7.57),
        ("gemma3:12b", 48, 8 * 256, "SWA", 11.77),
        ("qwen3:14b", 40, 8 * 128, "GQA", 13.99),
        ("gpt-oss:20b", 24, 8 * 64, "SWA", 20.3),
    ],
)
def test_shapes(name: str, layers: int, row: int, attention: str, parameters: float) -> None:
    found = offer(name)
    assert found is not None
    shape = geometry(found.header)
    assert shape.bytes_per_token("f16", "f16") == layers * row * 2 * 2
    assert shape.attention == attention
    assert found.header.parameters / 1e9 == pytest.approx(parameters, rel=0.01)
    assert workload(found.header, shape).vocabulary > 0


def test_every_model_is_whole_and_of_its_own() -> None:
    names = [each.name for each in offers()]
    assert len(names) == len(set(names)) >= 12
    assert len({each.sha256 for each in offers()}) == len(names)
    assert [each.size for each in offers()] == sorted(each.size for each in offers())
    for each in offers():
        assert each.name == each.name.lower()
        # 2 to 9 bits for each parameter: a size of another file would not fit
        assert 2 <= 8 * each.size / each.header.parameters <= 9, each.name


def test_drafts_have_the_vocabulary_of_their_model_and_are_far_smaller() -> None:
    for each in offers():
        if each.draft:
            draft = offer(each.draft)
            assert draft is not None
            sizes = [found.header.get("tokenizer.ggml.tokens").length for found in (each, draft)]  # type: ignore[union-attr]
            assert abs(sizes[0] - sizes[1]) <= MOST_DIFFERENT
            assert draft.size < each.size / 2


def test_it_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"models/catalog.toml": "kvchat/library/catalog.toml"}
    assert (ROOT / "models" / "catalog.toml").is_file()
