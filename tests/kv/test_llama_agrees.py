"""llama.cpp's own answers on the tiny models: sizes, rotation, refusals, and what a sequence's state consists of."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
from llama_cases import BLOBS, CASES, LONGEST, ROLLBACK, TYPES
from sections import KvSection, Reader, StateSection

from kvchat.formats.ggml import row_bytes
from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import Geometry, geometry

CELL, PLANE_CELL = 12, 24  # position, number of sequences, sequence id; two positions and a token id: once per token
F32 = 0


@dataclass(frozen=True)
class Model:
    path: Path
    geometry: Geometry
    contexts: dict[str, Any]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    pytest.importorskip("llama_cpp")
    folder = tmp_path_factory.mktemp("models")
    files = {kind: tiny.build(kind, folder) for kind in tiny.KINDS}
    script = Path(__file__).with_name("llama_answers.py")
    done = subprocess.run(
        [sys.executable, script, *files.values()], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        kind: Model(path, geometry(read_header(path)), line)
        for (kind, path), line in zip(files.items(), lines, strict=True)
    }


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_sizes_rotation_and_refusals(kind: str, models: dict[str, Model]) -> None:
    found = models[kind].geometry
    parts = sum(part != "state" for part in found.parts)  # full and window layers have cells of their own
    cells = parts * (PLANE_CELL if found.plane_positions else CELL)
    assert len(models[kind].contexts) == len(CASES)
    for case, answer in models[kind].contexts.items():
        type_k, type_v, flash = case.split()
        refused = found.refusal(type_k, type_v, flash) is not None  # type: ignore[arg-type]
        if case == "q8_0 f16 off" and found.head_k % 32:
            # llama.cpp builds this one, and its logits are not a number
            assert refused
            assert not answer["finite"]
            continue
        assert refused == (answer is None), case
        if answer is None:
            continue
        assert answer["finite"], case
        assert answer["per_token"] == found.bytes_per_token(type_k, type_v) + cells, case
        assert answer["rotated"] == list(found.rotated(type_k, type_v)), case


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_states_of_past_tokens_are_kept_where_llama_cpp_can(kind: str, models: dict[str, Model]) -> None:
    states = {answer["states"] for answer in models[kind].contexts.values() if answer}
    assert states == {ROLLBACK if models[kind].geometry.rollback else 0}


@pytest.mark.parametrize("case", BLOBS)
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_the_state_consists_of_the_parts(kind: str, case: str, models: dict[str, Model]) -> None:
    found = models[kind].geometry
    if models[kind].contexts[case] is None:
        assert found.refusal(*case.split()) is not None  # type: ignore[arg-type]
        return
    reader = Reader(Path(f"{models[kind].path}.{case}").read_bytes())
    for part in found.parts:
        if part == "state":
            _check_state(reader.state(_recurrent_layers(kind)), found)
        else:
            _check_rows(reader.kv(found.plane_positions, found.has_v), found, part == "window", case)
    assert reader.left == 0


def _recurrent_layers(kind: str) -> int:
    """As the tiny models are built."""
    return 3 if kind in ("qwen35", "qwen3next") else 2


def _check_rows(section: KvSection, found: Geometry, windowed: bool, case: str) -> None:
    type_k, type_v, flash = case.split()
    layers = [layer for layer in found.cache if layer.window == windowed]
    kept = min(LONGEST, found.window) if windowed else LONGEST
    assert section.positions == tuple(range(LONGEST - kept, LONGEST))
    assert section.transposed == (flash == "off")  # said even where there is no V
    assert section.layers == len(layers)
    assert section.keys == tuple((TYPES[type_k], row_bytes(layer.key, type_k)) for layer in layers)
    values = tuple((TYPES[type_v], row_bytes(layer.value, type_v)) for layer in layers)
    assert section.values == (values if found.has_v else ())


def _check_state(section: StateSection, found: Geometry) -> None:
    assert (section.position, section.layers) == (LONGEST - 1, found.layers)
    rows = [*section.rolling, *section.states]
    assert {kind for kind, _ in rows} == {F32}
    assert sum(size for _, size in rows) == found.state_bytes
