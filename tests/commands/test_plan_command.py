"""`kvchat plan`: its JSON is a contract, its table is for a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny

from kvchat.cli import main
from kvchat.commands import plan as command
from kvchat.library import find
from kvchat.paths import Paths

GIB = 1 << 30
KEYS = {
    "model",
    "architecture",
    "attention",
    "context",
    "weights_bytes",
    "kv_bytes",
    "kv_bytes_per_token",
    "state_bytes",
    "compute_bytes",
    "process_bytes",
    "draft_bytes",
    "total_bytes",
    "free_ram_bytes",
    "free_vram_bytes",
    "fits",
    "largest_context",
}
BY_TYPE = ("kv_bytes", "kv_bytes_per_token", "total_bytes", "fits", "largest_context")


@pytest.fixture
def models(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the person's models, on a machine with 8 GiB of free RAM and no GPU."""
    monkeypatch.setattr(find, "_BUILT_IN_PACKAGE", "no_such_package_anywhere")
    monkeypatch.setattr(command, "drop_in_folders", tuple)
    monkeypatch.setattr(command, "free_memory", lambda: 8 * GIB)
    monkeypatch.setattr(command, "free_vram", lambda: None)
    folder = Paths.find({"KVCHAT_HOME": str(home)}).models_folder
    folder.mkdir()
    return folder


class Ran:
    """What `kvchat plan` with these words printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        self.code = main(["plan", *words])
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err

    @property
    def object(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    def row(self, label: str) -> list[str]:
        line = next(line for line in self.out.splitlines() if line.startswith(label))
        return line.removeprefix(label).split()


def test_json_has_the_names_that_scripts_rely_on(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tiny.build("llama", models)
    found = Ran(capsys, "llama", "--json").object
    assert found.keys() >= KEYS
    for key in BY_TYPE:
        assert list(found[key]) == ["f16", "q8_0", "q4_0"]
    assert (found["model"], found["architecture"], found["attention"]) == ("llama", "llama", "GQA")
    assert (found["context"], found["weights_bytes"]) == (4096, file.stat().st_size)
    assert found["kv_bytes_per_token"] == {"f16": 1024, "q8_0": 2 * 2 * 4 * 34, "q4_0": 2 * 2 * 4 * 18}
    assert found["kv_bytes"] == {kind: 4096 * size for kind, size in found["kv_bytes_per_token"].items()}
    assert (found["state_bytes"], found["draft_bytes"]) == (0, 0)
    assert (found["free_ram_bytes"], found["free_vram_bytes"]) == (8 * GIB, None)
    assert found["fits"] == {"f16": True, "q8_0": True, "q4_0": True}
    assert found["largest_context"] == {"f16": 4096, "q8_0": 4096, "q4_0": 4096}
    parts = ("weights_bytes", "compute_bytes", "process_bytes")
    total = found["kv_bytes"]["f16"] + sum(found[part] for part in parts)
    assert (found["cache_types"], found["total_bytes"]["f16"]) == ({"k": "f16", "v": "f16"}, total)


def test_flags_say_what_to_plan_for(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.build("llama", models)
    tiny.build("mqa", models)
    found = Ran(
        capsys, "llama", "--json", "--ctx-size", "1000", "-ctk", "q8_0", "-ctv", "q4_0", "--model-draft", "mqa"
    ).object
    assert found["context"] == 1000
    assert found["kv_bytes"]["f16"] == 1024 * 1024
    assert found["cache_types"] == {"k": "q8_0", "v": "q4_0"}
    assert found["chosen"]["kv_bytes"] == 1024 * 2 * 4 * (34 + 18)
    assert found["draft_model"] == "mqa"
    assert found["draft_bytes"] > (models / "mqa.gguf").stat().st_size


def test_a_draft_model_of_another_vocabulary_is_refused(
    models: Path, smollm2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.build("llama", models)
    ran = Ran(capsys, "llama", "--model-draft", str(smollm2))
    assert ran.code == 1
    assert "the vocabularies differ: it cuts text by the rules of smollm, not gpt-2" in ran.err


def test_the_settings_file_counts_too(home: Path, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.build("llama", models)
    (home / "config.toml").write_text('ctx_size = 512\ncache_type_k = "q8_0"\n')
    found = Ran(capsys, "llama", "--json").object
    assert (found["context"], found["cache_types"]) == (512, {"k": "q8_0", "v": "f16"})


def test_a_recurrent_state_is_told(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two layers of 3 * 256 and 16 * 256 elements, for three sequences."""
    tiny.build("mamba", models)
    found = Ran(capsys, "mamba", "--json").object
    assert found["state_bytes"] == 3 * 2 * (3 * 256 + 16 * 256) * 4
    assert set(found["kv_bytes"].values()) == {0}
    assert Ran(capsys, "mamba").row("recurrent state")


def test_types_that_are_refused_have_no_numbers(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.build("mha", models, head_size=80)
    found = Ran(capsys, "mha", "--json").object
    for key in BY_TYPE:
        assert found[key]["f16"] is not None
        assert (found[key]["q8_0"], found[key]["q4_0"]) == (None, None)
    assert "multiple of 32" in found["refusals"]["q8_0"]
    ran = Ran(capsys, "mha")
    assert ran.row("fits") == ["yes", "-", "-"]
    assert "q8_0: a q8_0 cache for K needs heads of a multiple of 32; this model's have 80" in ran.out


def test_the_table(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.build("gemma3", models)
    ran = Ran(capsys, "gemma3", "--ctx-size", "2048")
    assert ran.out.startswith("gemma3: gemma3, SWA, window layers keep the last 128 tokens\n")
    assert "context: 2,048 tokens, of 4,096 it was trained for" in ran.out
    assert ran.row("cache type") == ["f16", "q8_0", "q4_0"]
    # two full layers of 2,048 cells, two with a window of 768, 512 bytes each a token
    assert ran.row("KV cache")[:2] == ["2.8", "MiB"]
    assert ran.row("computations, estimate")
    assert ran.row("largest context") == ["4,096", "4,096", "4,096"]
    assert "free: 8.0 GiB RAM, VRAM -; 1.0 GiB is left to other programs" in ran.out
    assert ran.out.rstrip().endswith("f16 with 2,048 tokens fits. Up to 4,096 tokens would.")
    assert "draft" not in ran.out
    assert "recurrent" not in ran.out


def test_mixed_types_have_a_column(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.build("llama", models)
    ran = Ran(capsys, "llama", "-ctk", "q8_0")
    assert ran.row("cache type") == ["f16", "q8_0", "q4_0", "q8_0/f16"]
    assert "q8_0/f16 with 4,096 tokens fits." in ran.out


def test_no_room(models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.build("llama", models)
    monkeypatch.setattr(command, "free_memory", lambda: 1 << 20)
    found = Ran(capsys, "llama", "--json").object
    assert set(found["fits"].values()) == {False}
    assert set(found["largest_context"].values()) == {0}
    assert "does not fit" in Ran(capsys, "llama").out


def test_memory_that_is_not_known(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.build("llama", models)
    monkeypatch.setattr(command, "free_memory", lambda: None)
    found = Ran(capsys, "llama", "--json").object
    assert (found["free_ram_bytes"], set(found["fits"].values())) == (None, {None})
    assert Ran(capsys, "llama").row("fits") == ["-", "-", "-"]


def test_a_gpu(models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.build("llama", models)
    monkeypatch.setattr(command, "free_vram", lambda: 4 * GIB)
    assert Ran(capsys, "llama", "--json").object["free_vram_bytes"] == 4 * GIB
    assert "free: 8.0 GiB RAM, 4.0 GiB VRAM; 512.0 MiB is left to other programs" in Ran(capsys, "llama").out


# ------------------------------------------------------------------ what cannot be planned


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("bad",), 1, "not a GGUF file"),
        (("bert",), 1, "do not generate text"),
        (("other",), 1, "there is no model 'other'"),
        (("llama", "-md", "other"), 1, "there is no model 'other'"),
        (("mha", "-ctk", "q8_0", "-ctv", "q8_0"), 1, "heads of a multiple of 32"),
        (("llama", "-ctv", "q8_0", "-fa", "off"), 2, "flash attention"),
        (("llama", "--ctx-size", "many"), 2, "not a whole number"),
        (("llama", "-m", "llama"), 2, "-m/--model means nothing to kvchat plan"),
        (("llama", "--temp", "1"), 2, "--temp means nothing to kvchat plan"),
        ((), 2, "MODEL"),
    ],
)
def test_what_cannot_be_planned(
    words: tuple[str, ...], code: int, message: str, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.build("llama", models)
    tiny.build("mha", models, head_size=80)
    (models / "bad.gguf").write_bytes(b"not a model")
    writer = gguf.GGUFWriter(models / "bert.gguf", "bert")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ran = Ran(capsys, *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "hint: " in ran.err


# ------------------------------------------------------------------ VRAM


def test_names_from_files_cannot_reach_the_terminal(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.build("llama", models, name="a\x1b[31mb")
    assert "\x1b" not in Ran(capsys, str(path)).out
