"""Models of other programs, in made-up folders of each; and what among them is no model to chat with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.gguf import model_name
from kvchat.library import find
from kvchat.library.find import ModelFile, check, find_files, find_models, resolve
from kvchat.library.kinds import UNFINISHED
from kvchat.library.places import Place, places
from kvchat.paths import Paths


@pytest.fixture
def person(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of somebody without the built-in model."""
    monkeypatch.setattr(find, "_BUILT_IN_PACKAGE", "no_such_package_anywhere")
    return home


@pytest.fixture
def paths(person: Path) -> Paths:
    return Paths.find({"KVCHAT_HOME": str(person)})


def put(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def named(models: list[ModelFile]) -> dict[str, str]:
    return {model.name: model.source for model in models}


def header(path: Path, architecture: str, tensors: int = 1, **values: Any) -> Path:
    """A GGUF file with these keys, the architecture's name in place of ARCH, and a long vocabulary behind them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        name = key.replace("ARCH", architecture).replace("__", ".")
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case _:
                writer.add_string(name, value)
    writer.add_token_list([f"t{number}" for number in range(1000)])
    for number in range(tensors):
        writer.add_tensor(f"t{number}", np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# ------------------------------------------------------------------ Ollama


def ollama(store: Path, name: str, content: bytes, **others: bytes) -> Path:
    """A model in Ollama's store: HOST/NAMESPACE/MODEL:TAG."""

    def layer(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        put(store / "blobs" / f"sha256-{digest}", data)
        return {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layers = [layer("model", content), *(layer(kind, data) for kind, data in others.items())]
    place, tag = name.rsplit(":", 1)
    put(store / "manifests" / place / tag, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    return store / "blobs" / f"sha256-{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def store(person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setattr("kvchat.library.places._OLLAMA_SERVICE", ())
    return person / ".ollama" / "models"


def test_ollama(store: Path, paths: Paths) -> None:
    blob = ollama(store, "registry.ollama.ai/library/llama3.2:3b", b"GGUF1", license=b"L", template=b"{{ }}")
    ollama(store, "registry.ollama.ai/somebody/mine:latest", b"GGUF2")
    ollama(store, "hf.co/bartowski/Qwen-GGUF:Q4_K_M", b"GGUF3", projector=b"GGUF4")
    models = find_models(paths)
    assert named(models) == dict.fromkeys(
        ("hf.co/bartowski/Qwen-GGUF:Q4_K_M", "llama3.2:3b", "somebody/mine:latest"), "Ollama"
    )
    found = next(model for model in models if model.name == "llama3.2:3b")
    assert (found.path, found.size, found.foreign) == (blob, 5, True)


def test_names_of_ollama_are_understood(store: Path, paths: Paths, tmp_path: Path) -> None:
    content = tiny.build("llama", tmp_path).read_bytes()
    blob = ollama(store, "registry.ollama.ai/library/llama3.2:latest", content)
    ollama(store, "registry.ollama.ai/somebody/mine:latest", content + bytes(32))
    models = find_models(paths)
    assert resolve("llama3.2", models).path == blob
    assert resolve("LLAMA3.2:latest", models).path == blob
    assert resolve("somebody/mine:latest", models).name == "somebody/mine:latest"  # although it could be a path
    assert resolve(str(blob), models).name == "llama3.2:latest"
    assert model_name(blob) == "llama3.2:latest"  # the engine calls it so as well
    with pytest.raises(KvchatError, match="there is no file"):
        resolve("somebody/else:latest", models)


def test_a_blob_with_two_names(store: Path, paths: Paths) -> None:
    blob = ollama(store, "registry.ollama.ai/library/llama3.2:latest", b"GGUF")
    ollama(store, "registry.ollama.ai/library/llama3.2:3b", b"GGUF")
    assert [model.path for model in find_models(paths)] == [blob]
    assert model_name(blob) == "llama3.2:3b"


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b'{"layers": 7}',
        b'{"layers": [7, {"mediaType": "application/vnd.ollama.image.model"}]}',
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../etc/passwd"}]}',
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:' + b"0" * 64 + b'"}]}',
        b"[" * 100_000,
        b" " * (2 << 20),
    ],
)
def test_damaged_manifests_are_passed_over(store: Path, paths: Paths, manifest: bytes) -> None:
    ollama(store, "registry.ollama.ai/library/good:1b", b"GGUF")
    put(store / "manifests" / "registry.ollama.ai" / "library" / "bad" / "1b", manifest)
    put(store / "manifests" / "registry.ollama.ai" / "library" / "stray", b"{}")
    os.mkfifo(store / "manifests" / "registry.ollama.ai" / "library" / "bad" / "pipe")
    assert list(named(find_models(paths))) == ["good:1b"]


def test_what_ollama_has_not_finished(store: Path, paths: Paths) -> None:
    put(store / "blobs" / f"sha256-{'0' * 64}-partial")
    put(store / "blobs" / f"sha256-{'0' * 64}-partial-0")
    (found,) = find_files(paths)
    assert (found.source, found.unfit) == ("Ollama", UNFINISHED)


def test_ollamas_variable(person: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    ollama(tmp_path, "registry.ollama.ai/library/llama3.2:3b", b"GGUF")
    ollama(person / ".ollama" / "models", "registry.ollama.ai/library/elsewhere:3b", b"GGUF1")
    assert list(named(find_models(paths))) == ["llama3.2:3b"]


def test_a_store_that_is_not_for_everybody(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama's own user keeps its home closed: asking for a folder below is refused, not answered with no."""
    is_dir = Path.is_dir

    def closed(path: Path) -> bool:
        if str(path).startswith("/closed"):
            raise PermissionError(13, "Permission denied")
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", closed)
    monkeypatch.setenv("OLLAMA_MODELS", "/closed/.ollama/models")
    assert find_files(paths) == []
    assert Path("/closed/.ollama/models") not in find.searched(paths)


# ------------------------------------------------------------------ the others


def test_lm_studio(person: Path, paths: Paths) -> None:
    put(person / ".lmstudio" / "models" / "lmstudio-community" / "Qwen3-4B-GGUF" / "Qwen3-4B-Q4_K_M.gguf")
    put(person / ".lmstudio" / "models" / "lmstudio-community" / "Qwen3-4B-GGUF" / "mmproj-Qwen3-4B-F16.gguf")
    put(person / ".lmstudio" / "models" / "p" / "r" / "downloading_big-Q8_0.gguf.part")
    put(person / ".cache" / "lm-studio" / "models" / "p" / "r" / "older.gguf")
    assert named(find_models(paths)) == dict.fromkeys(("Qwen3-4B-Q4_K_M", "older"), "LM Studio")
    unfit = {file.path.name: file.unfit for file in find_files(paths) if file.unfit}
    assert unfit["downloading_big-Q8_0.gguf.part"] == UNFINISHED
    assert "projector" in unfit["mmproj-Qwen3-4B-F16.gguf"]


def test_lm_studio_elsewhere(person: Path, paths: Paths, tmp_path: Path) -> None:
    put(person / ".lmstudio-home-pointer", f"{tmp_path}/lm\n".encode())
    put(tmp_path / "lm" / "settings.json", json.dumps({"downloadsFolder": str(tmp_path / "disk")}).encode())
    put(tmp_path / "disk" / "p" / "r" / "m.gguf")
    assert named(find_models(paths)) == {"m": "LM Studio"}


@pytest.mark.parametrize(
    "settings",
    [
        b"{",
        b"[]",
        b'{"downloadsFolder": 7}',
        b'{"downloadsFolder": "relative"}',
        b'{"downloadsFolder": "/\\u0000"}',
        b'{"downloadsFolder": "/\\ud800"}',
    ],
)
def test_lm_studio_with_damaged_settings(person: Path, paths: Paths, settings: bytes) -> None:
    put(person / ".lmstudio" / "settings.json", settings)
    put(person / ".lmstudio" / "models" / "m.gguf")
    assert named(find_models(paths)) == {"m": "LM Studio"}


def hugging_face(hub: Path, repository: str, revision: str, *names: str) -> None:
    folder = hub / f"models--{repository.replace('/', '--')}"
    for name in names:
        content = f"GGUF{name}{revision}".encode()
        blob = put(folder / "blobs" / hashlib.sha256(content).hexdigest(), content)
        link = folder / "snapshots" / revision / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))


def test_hugging_face(person: Path, paths: Paths) -> None:
    hub = person / ".cache" / "huggingface" / "hub"
    hugging_face(hub, "owner/name", "abc1", "m-Q4_K_M.gguf", "README.md")
    hugging_face(hub, "owner/name", "def2", "m-Q4_K_M.gguf", "sub/n-Q8_0.gguf")
    put(hub / "models--owner--name" / "refs" / "main", b"def2")
    hugging_face(hub, "owner/detached", "123", "d.gguf")
    put(hub / "models--owner--name" / "blobs" / ("0" * 64 + ".incomplete"))
    models = find_models(paths)
    assert named(models) == dict.fromkeys(("d", "m-Q4_K_M", "n-Q8_0"), "Hugging Face")
    newest = next(model for model in models if model.name == "m-Q4_K_M")
    assert "/snapshots/def2/" in str(newest.path)
    assert [file.name for file in find_files(paths) if file.unfit == UNFINISHED] == ["owner/name"]


def test_hugging_face_updated_between_two_fetches(person: Path, paths: Paths) -> None:
    """Each revision has what was fetched of it: a file that only the older one has is still a model."""
    hub = person / ".cache" / "huggingface" / "hub"
    hugging_face(hub, "owner/name", "abc1", "m-Q4_K_M.gguf", "n-Q8_0.gguf")
    hugging_face(hub, "owner/name", "def2", "m-Q4_K_M.gguf")
    put(hub / "models--owner--name" / "refs" / "main", b"def2")
    found = {model.name: str(model.path) for model in find_models(paths)}
    assert found.keys() == {"m-Q4_K_M", "n-Q8_0"}
    assert "/snapshots/def2/" in found["m-Q4_K_M"]
    assert "/snapshots/abc1/" in found["n-Q8_0"]


@pytest.mark.parametrize("revision", [b"../../../..", b"", b"\xff", b"gone"])
def test_hugging_face_with_a_damaged_reference(person: Path, paths: Paths, revision: bytes) -> None:
    hub = person / ".cache" / "huggingface" / "hub"
    hugging_face(hub, "owner/name", "abc1", "m.gguf")
    put(hub / "models--owner--name" / "refs" / "main", revision)
    assert named(find_models(paths)) == {"m": "Hugging Face"}


def test_llama_cpps_cache(person: Path, paths: Paths) -> None:
    cache = person / ".cache" / "llama.cpp"
    put(cache / "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf")
    put(cache / "manifest=ggml-org=gemma-3-1b-it-GGUF=latest.json", b"{}")
    put(cache / "other_repo_x.gguf")
    put(cache / "half_x.gguf.downloadInProgress")
    assert named(find_models(paths)) == dict.fromkeys(("gemma-3-1b-it-Q4_K_M", "other_repo_x"), "llama.cpp")


def test_gpt4all(person: Path, paths: Paths, tmp_path: Path) -> None:
    put(person / ".local" / "share" / "nomic.ai" / "GPT4All" / "Llama-3.2-1B-Instruct-Q4_0.gguf")
    put(person / ".local" / "share" / "nomic.ai" / "GPT4All" / "incomplete-Phi-3.gguf")
    assert named(find_models(paths)) == {"Llama-3.2-1B-Instruct-Q4_0": "GPT4All"}
    put(person / ".config" / "nomic.ai" / "GPT4All.ini", f"[General]\nmodelPath={tmp_path}/\nx=1\n".encode())
    put(tmp_path / "moved.gguf")
    assert named(find_models(paths)) == {"moved": "GPT4All"}
    put(person / ".config" / "nomic.ai" / "GPT4All.ini", b"[General]\nmodelPath=/\0\n")
    assert named(find_models(paths)) == {"Llama-3.2-1B-Instruct-Q4_0": "GPT4All"}


def test_variables_move_the_places(tmp_path: Path) -> None:
    environ = {
        "HF_HOME": "/hf",
        "LLAMA_CACHE": "/llama",
        "XDG_DATA_HOME": "/data",
        "XDG_CACHE_HOME": "relative",  # is no place
        "OLLAMA_MODELS": "/ollama",
    }
    found = {place.owner: place.folder for place in places(environ, tmp_path)}
    assert found["Hugging Face"] == Path("/hf/hub")
    assert found["llama.cpp"] == Path("/llama")
    assert found["GPT4All"] == Path("/data/nomic.ai/GPT4All")
    assert found["Ollama"] == Path("/ollama")
    found = {place.owner: place.folder for place in places({"HF_HUB_CACHE": "/hub", "LLAMA_CACHE": "/hub"}, tmp_path)}
    assert found["Hugging Face"] == Path("/hub")  # of two programs with one cache the first
    assert Place("llama.cpp", Path("/hub")) not in places({"HF_HUB_CACHE": "/hub", "LLAMA_CACHE": "/hub"}, tmp_path)


def test_a_file_with_several_ways_to_it_is_one_model(person: Path, paths: Paths) -> None:
    """Linked into our own folder, it is ours by name; the program that has it keeps it."""
    file = put(person / ".lmstudio" / "models" / "p" / "r" / "m.gguf")
    paths.models_folder.mkdir()
    (paths.models_folder / "mine.gguf").symlink_to(file)
    os.link(file, put(person / ".cache" / "llama.cpp" / "x").with_name("again.gguf"))
    assert named(find_models(paths)) == {"mine": "models"}


def test_nothing_is_changed(person: Path, store: Path, paths: Paths) -> None:
    ollama(store, "registry.ollama.ai/library/llama3.2:3b", b"GGUF")
    hugging_face(person / ".cache" / "huggingface" / "hub", "o/r", "abc", "m.gguf")
    put(person / ".lmstudio" / "models" / "p" / "r" / "m.gguf")

    def snapshot() -> dict[str, tuple[int, int]]:
        found = {}
        for top in (".ollama", ".cache", ".lmstudio"):
            for path in (person / top).rglob("*"):
                info = path.lstat()
                found[str(path)] = (info.st_size, info.st_mtime_ns)
        return found

    before = snapshot()
    find_files(paths, again=True)
    assert snapshot() == before


def test_not_endlessly(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may name the root of a disk: so many names are looked at, and no more."""
    monkeypatch.setattr("kvchat.library.walk._MOST_ENTRIES", 40)
    for number in range(100):
        put(paths.models_folder / f"f{number % 10}" / f"m{number}.gguf")
    assert 0 < len(find_models(paths)) < 40


# ------------------------------------------------------------------ choosing among them


def made(name: str, source: str, size: int = 1) -> ModelFile:
    return ModelFile(name, Path(f"/{source}/{name}.gguf"), size, source)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "check", lambda model: None)


@pytest.mark.usefixtures("unchecked")
def test_ours_go_before_theirs() -> None:
    models = [made("qwen", "Ollama"), made("qwen", "models"), made("qwen", "built-in")]
    assert resolve("qwen", models).source == "models"
    assert resolve("qwen", models[::2]).source == "Ollama"
    assert resolve(None, models).source == "models"
    assert resolve(None, models[::2]).source == "built-in"  # nobody asked for theirs
    assert resolve(None, models[:1]).source == "Ollama"


@pytest.mark.usefixtures("unchecked")
def test_copies_of_two_programs_are_one_model() -> None:
    assert resolve("m", [made("m", "LM Studio"), made("m", "GPT4All")]).source == "LM Studio"
    with pytest.raises(KvchatError, match="can mean 2 models"):
        resolve("m", [made("m", "LM Studio"), made("m", "GPT4All", size=2)])


@pytest.mark.usefixtures("unchecked")
def test_names_of_the_catalogue() -> None:
    model = ModelFile("Qwen3-4B-Q4_K_M", Path("/models/Qwen3-4B-Q4_K_M.gguf"), 1, "models")
    assert resolve("qwen3:4b", [made("other", "models"), model]) == model
    with pytest.raises(KvchatError, match="no model 'qwen3:4b'") as caught:
        resolve("qwen3:4b", [made("other", "models")])
    assert "kvchat models pull qwen3:4b" in caught.value.hint


@pytest.mark.parametrize("name", ["hf:owner/name", "https://h.example/m.gguf"])
def test_what_must_be_fetched_first(name: str) -> None:
    with pytest.raises(KvchatError, match="is not on this machine") as caught:
        resolve(name, [])
    assert caught.value.hint == f"kvchat models pull {name}"


# ------------------------------------------------------------------ what one cannot chat with


# Each row: the architecture, keys (ARCH: its name, __: a dot), tensors, a word of the reason.
@pytest.mark.parametrize(
    ("architecture", "values", "tensors", "reason"),
    [
        ("clip", {}, 1, "projector"),
        ("llama", {"general__type": "mmproj"}, 1, "projector"),
        ("llama", {"general__type": "adapter"}, 1, "adapter"),
        ("llama", {"general__type": "imatrix"}, 1, "matrix"),
        ("controlvector", {}, 1, "control vector"),
        ("bert", {"ARCH__attention__causal": False}, 1, "embeddings"),
        ("qwen3", {"ARCH__pooling_type": 3}, 1, "embeddings"),
        ("qwen3", {"ARCH__pooling_type": 4}, 1, "ranks"),
        ("llama", {}, 0, "vocabulary"),
        ("llama", {"ARCH__pooling_type": 0, "ARCH__attention__causal": True, "general__type": "model"}, 1, ""),
    ],
)
def test_kinds(paths: Paths, architecture: str, values: dict[str, Any], tensors: int, reason: str) -> None:
    header(paths.models_folder / "m.gguf", architecture, tensors, **values)
    (found,) = find_files(paths)
    assert reason in found.unfit
    assert bool(found.unfit) == bool(reason)
    assert len(find_models(paths)) == (not reason)


def test_parts_that_are_missing(paths: Paths) -> None:
    folder = paths.models_folder
    put(folder / "a-00001-of-00003.gguf"), put(folder / "a-00003-of-00003.gguf")
    put(folder / "b-00002-of-00002.gguf")
    for number in (1, 2):
        put(folder / f"c-0000{number}-of-00002.gguf")
    assert list(named(find_models(paths))) == ["c"]
    assert {file.name: file.unfit for file in find_files(paths) if file.unfit} == {
        "a": f"{UNFINISHED}: 2 of 3 parts are there",
        "b": f"{UNFINISHED}: the first part is missing",
    }


def test_a_download_of_aria2(paths: Paths) -> None:
    put(paths.models_folder / "m.gguf")
    put(paths.models_folder / "m.gguf.aria2")
    assert [file.unfit for file in find_files(paths)] == [UNFINISHED]


def test_a_part_that_is_another(paths: Paths, tmp_path: Path) -> None:
    """A set that leads round in a circle, and one with a part of another model."""
    first = header(paths.models_folder / "m-00001-of-00002.gguf", "llama", split__no=0, split__count=2)
    second = paths.models_folder / "m-00002-of-00002.gguf"
    second.symlink_to(first.name)
    model = ModelFile("m", first, 0, "models")
    with pytest.raises(FormatError, match="is not part 2 of this model"):
        check(model)
    second.unlink()
    header(second, "llama", split__no=1, split__count=3)
    with pytest.raises(FormatError, match="is not part 2 of this model"):
        check(model)
    second.unlink()
    header(second, "llama", split__no=1, split__count=2)
    assert check(model).split == (0, 2)


# ------------------------------------------------------------------ fast


def test_two_hundred_files(person: Path, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the beginnings is read, once; a file that has changed is read again."""
    content = tiny.build("llama", tmp_path).read_bytes()
    for number in range(200):
        put(person / ".lmstudio" / "models" / f"p{number % 9}" / "r" / f"m{number}.gguf", content)
    read: list[Path] = []
    peek = find.unfit.__globals__["peek"]
    monkeypatch.setitem(find.unfit.__globals__, "peek", lambda path: read.append(path) or peek(path))
    assert len(find_models(paths)) == 200
    assert len(read) == 200
    read.clear()
    assert len(find_models(paths)) == 200
    assert read == []
    header(person / ".lmstudio" / "models" / "p0" / "r" / "m0.gguf", "clip")
    assert len(find_models(paths)) == 199
    assert len(read) == 1
    cache = paths.state_folder / "models.json"
    assert "/p1/" in cache.read_text()
    shutil.rmtree(person / ".lmstudio" / "models" / "p1")
    put(paths.models_folder / "new.gguf", content)
    assert "new" in named(find_models(paths))
    assert "/p1/" not in cache.read_text()


@pytest.mark.parametrize("cache", [b"", b"{", b"[]", b'{"version": 7}', b'{"version": "1 0.1.0", "files": [[1], 2]}'])
def test_a_damaged_cache_is_empty(paths: Paths, cache: bytes, tmp_path: Path) -> None:
    put(paths.state_folder / "models.json", cache)
    paths.models_folder.mkdir()
    tiny.build("llama", paths.models_folder)
    assert list(named(find_models(paths))) == ["llama"]


def test_a_cache_that_cannot_be_written(paths: Paths) -> None:
    put(paths.state_folder, b"a file")
    put(paths.models_folder / "m.gguf")
    assert list(named(find_models(paths))) == ["m"]
