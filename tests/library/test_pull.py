"""What a name means that is to be fetched, and all files of a model into our folder."""

from __future__ import annotations

import hashlib
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny
from pull_server import Web, serving

from kvchat.errors import KvchatError
from kvchat.library.catalog import offers
from kvchat.library.fetch import SPARE, Remote
from kvchat.library.pull import Source, pull, source_of
from kvchat.library.transport import Wire

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny.build("llama", tmp_path_factory.mktemp("model")).read_bytes()


def parts(folder: Path, count: int) -> list[bytes]:
    """A model in so many files."""
    found = []
    for number in range(count):
        path = folder / f"part{number}"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_tensor(f"t{number}", np.zeros(4096 + number, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        found.append(path.read_bytes())
    return found


# ------------------------------------------------------------------ what a name means


@pytest.mark.parametrize("name", [offer.name for offer in offers()])
def test_names_of_the_catalogue(name: str) -> None:
    source = source_of(name.upper())
    ((file, remote),) = source.files
    assert file.endswith(".gguf")
    assert remote.url.startswith("https://huggingface.co/" + source.folder + "/resolve/")
    assert remote.sha256 is not None and len(remote.sha256) == 64
    assert source.licence


def test_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    ((_, remote),) = source_of("qwen3:4b").files
    assert remote.url.startswith("https://mirror.example/Qwen/Qwen3-4B-GGUF/resolve/")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h.example/a/My%20Model.gguf?download=true", "My Model"),
        ("http://127.0.0.1:8000/m.GGUF", "m"),
        ("https://huggingface.co/o/r/blob/main/x.gguf", "x"),
        ("https://h.example/ü/모델 1.gguf".replace(" ", "%20"), "모델 1"),
    ],
)
def test_urls(url: str, name: str) -> None:
    source = source_of(url, "A" * 64)
    ((_, remote),) = source.files
    assert (source.name, source.folder, remote.sha256) == (name, "", "a" * 64)
    assert "/blob/" not in remote.url and remote.url.isascii()


# Each row: what was asked for, a part of the message, a part of the hint.
@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("qwen3:4", "the catalogue has no 'qwen3:4'", "did you mean qwen3:4b"),
        ("zzzzzz", "the catalogue has no", "smollm2:360m, "),
        ("", "the catalogue has no ''", "there are"),
        ("https://h.example/", "is not the name of a GGUF file", "NAME.gguf"),
        ("https://h.example/model.bin", "is not the name of a GGUF file", "NAME.gguf"),
        ("https://h.example/..%2Fx.gguf", "is not the name of a GGUF file", "NAME.gguf"),
        ("https://h.example/.hidden.gguf", "is not the name of a GGUF file", "NAME.gguf"),
        ("https://h.example/a%0Ab.gguf", "is not the name of a GGUF file", "NAME.gguf"),
        ("https://h.example/%1b%5D0;x.gguf", "is not the name of a GGUF file", "NAME.gguf"),
        (f"https://h.example/{'x' * 300}.gguf", "is not the name of a GGUF file", "NAME.gguf"),
        ("https://h.example/m-00001-of-00003.gguf", "one of 3 parts", "hf:OWNER/NAME"),
        ("ftp://h.example/m.gguf", "not a URL that can be fetched", "https://"),
        ("file:///etc/m.gguf", "not a URL that can be fetched", "https://"),
        ("https://:99999/m.gguf", "not a URL that can be fetched", "https://"),
        ("https://[/m.gguf", "not a URL that can be fetched", "https://"),
        ("https://h.example/a b.gguf", "not a URL that can be fetched", "https://"),
        ("https://me:secret@h.example/m.gguf", "not a URL that can be fetched", "https://"),
        ("https://hé.example/m.gguf", "has a host that cannot be asked for", "xn--"),
        ("owner/name-GGUF:Q8_0", "the catalogue has no", "did you mean hf:owner/name-GGUF:Q8_0?"),
        ("hf:", "names no repository", "hf:OWNER/NAME"),
        ("hf:owner", "names no repository", "hf:OWNER/NAME"),
        ("hf:../../etc", "names no repository", "hf:OWNER/NAME"),
        ("hf:o/r/s", "names no repository", "hf:OWNER/NAME"),
    ],
)
def test_what_cannot_be_fetched(text: str, message: str, hint: str) -> None:
    with pytest.raises(KvchatError, match=message) as caught:
        source_of(text)
    assert hint in caught.value.hint
    assert len(caught.value.message) < 300


def test_a_checksum_that_is_none() -> None:
    with pytest.raises(KvchatError, match="no sha256"):
        source_of("https://h.example/m.gguf", "abc")


# ------------------------------------------------------------------ all files of a model


def source(web: Web, *names: str, folder: str = "owner/name", sizes: Any = None) -> Source:
    files = tuple((name, Remote(f"{web.url}/{name}", sizes[name] if sizes else None)) for name in names)
    return Source("m", folder, files)


def test_a_split_model(web: Web, tmp_path: Path) -> None:
    names = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    data = parts(tmp_path, 3)
    for name, each in zip(names, data, strict=True):
        web.put(f"/{name}", each)
    told: list[tuple[int, int | None]] = []
    sizes = dict(zip(names, map(len, data), strict=True))
    found = pull(source(web, *names, sizes=sizes), tmp_path / "models", lambda *at: told.append(at), Wire())
    assert found.path == tmp_path / "models" / "owner" / "name" / names[0]
    assert found.size == sum(map(len, data)) == told[-1][0]
    assert {total for _, total in told} == {found.size}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert not found.had


def test_only_what_is_missing(web: Web, tmp_path: Path) -> None:
    names = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for name, each in zip(names, parts(tmp_path, 3), strict=True):
        web.put(f"/{name}", each)
    wanted = source(web, *names)
    pull(wanted, tmp_path / "models", lambda *_: None, Wire())
    (tmp_path / "models" / "owner" / "name" / names[1]).unlink()
    web.asked.clear()
    assert len(pull(wanted, tmp_path / "models", lambda *_: None, Wire()).files) == 1
    assert [asked.path for asked in web.asked] == [f"/{names[1]}"]
    assert pull(wanted, tmp_path / "models", lambda *_: None, Wire()).had


def test_another_file_of_the_same_name(web: Web, tmp_path: Path, model: bytes) -> None:
    web.put("/m.gguf", model)
    (tmp_path / "m.gguf").write_text("mine")
    with pytest.raises(KvchatError, match=f"has 4 bytes, not {len(model):,}"):
        pull(source(web, "m.gguf", folder="", sizes={"m.gguf": len(model)}), tmp_path, lambda *_: None, Wire())
    assert (tmp_path / "m.gguf").read_text() == "mine"


def test_room_for_all_parts_is_asked_for_first(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, SPARE + 2 * 10**9))
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    wanted = source(web, *names, sizes=dict.fromkeys(names, 1_000_000_001))
    with pytest.raises(KvchatError, match=r"m takes 1\.9 GiB, and .* has 2\.1 GiB free"):
        pull(wanted, tmp_path / "models", lambda *_: None, Wire())
    assert web.asked == []
    assert not (tmp_path / "models").exists()


def test_nothing_is_left_of_what_never_came(web: Web, tmp_path: Path) -> None:
    with pytest.raises(KvchatError, match="no such file"):
        pull(source(web, "m.gguf"), tmp_path / "models", lambda *_: None, Wire())
    assert list((tmp_path / "models").iterdir()) == []
    with pytest.raises(KvchatError, match="no such file"):
        pull(source(web, "m.gguf", folder=""), tmp_path / "models", lambda *_: None, Wire())
    assert list((tmp_path / "models").iterdir()) == []  # it stays itself


def test_a_file_that_is_there_has_to_have_the_checksum(web: Web, tmp_path: Path, model: bytes) -> None:
    """Of a URL nothing else says whether it is the same file."""
    (tmp_path / "m.gguf").write_bytes(model)
    found = pull(source_of(f"{web.url}/m.gguf", hashlib.sha256(model).hexdigest()), tmp_path, lambda *_: None, Wire())
    assert (found.had, found.checked) == (True, True)
    with pytest.raises(KvchatError, match="is there and has another checksum"):
        pull(source_of(f"{web.url}/m.gguf", "0" * 64), tmp_path, lambda *_: None, Wire())
    assert not pull(source_of(f"{web.url}/m.gguf"), tmp_path, lambda *_: None, Wire()).checked
    assert web.asked == []
