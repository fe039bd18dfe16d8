"""Models of a repository, asked of a hub on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from pull_server import Web, serving

from kvchat.errors import KvchatError
from kvchat.library.pull import pull, source_of
from kvchat.library.transport import Wire

pytest.importorskip("huggingface_hub")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def repository(web: Web, *names: str, data: bytes = b"", name: str = "owner/name-GGUF") -> None:
    """A repository with these files, all the same."""
    lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    siblings = [{"rfilename": each, "size": len(data), "blobId": "b", "lfs": lfs} for each in names]
    told = {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}
    web.put(f"/api/models/{name}", json.dumps(told).encode())
    for each in names:
        web.put(f"/{name}/resolve/{COMMIT}/{each}", data)


QUANTIZED = ("m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q4_K_L.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf", "README.md")


# Each row: files of the repository, what is asked for, what is meant.
@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [
        (QUANTIZED, "", ["m-Q4_K_M.gguf"]),
        (QUANTIZED, ":q8_0", ["m-Q8_0.gguf"]),
        (QUANTIZED, ":Q2_K", ["m-Q2_K.gguf"]),
        (QUANTIZED, ":m-Q4_K_L.gguf", ["m-Q4_K_L.gguf"]),
        (("only.gguf",), "", ["only.gguf"]),
        (("m.Q8_0.gguf", "m.BF16.gguf"), "", ["m.Q8_0.gguf"]),
        (("m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf"), ":UD-Q4_K_XL", ["m-UD-Q4_K_XL.gguf"]),
        (("Q6_K/a.gguf", "Q8_0/a.gguf"), ":q8_0", ["a.gguf"]),
        (
            ("Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf", "m-Q4_0.gguf"),
            ":Q8_0",
            ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"],
        ),
    ],
)
def test_which_files(web: Web, names: tuple[str, ...], wanted: str, expected: list[str]) -> None:
    repository(web, *names)
    source = source_of(f"hf:owner/name-GGUF{wanted}")
    assert [name for name, _ in source.files] == expected
    assert source.folder == "owner/name-GGUF"


@pytest.mark.parametrize(
    ("names", "wanted", "message", "hint"),
    [
        (QUANTIZED, ":Q5_K_M", "no 'Q5_K_M' in the 4 models", "m-Q2_K, m-Q4_K_L, m-Q4_K_M, m-Q8_0"),
        (QUANTIZED, ":x.gguf", r"no 'x\.gguf' in the 4 models", "m-Q2_K"),
        (("README.md", "model.safetensors"), "", "has no GGUF files", "GGUF"),
        (("a-Q4_K_M.gguf", "b-Q4_K_M.gguf"), ":Q4_K_M", "can mean 2 of the 2 models", "a-Q4_K_M, b-Q4_K_M"),
        (("a-IQ1_S.gguf", "a-IQ2_XS.gguf"), "", "no usual choice among", "a-IQ1_S"),
    ],
)
def test_which_are_none(web: Web, names: tuple[str, ...], wanted: str, message: str, hint: str) -> None:
    repository(web, *names)
    with pytest.raises(KvchatError, match=message) as caught:
        source_of(f"hf:owner/name-GGUF{wanted}")
    assert hint in caught.value.hint


def test_pulled_whole(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By commit and checksum, with the person's token."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    data = tiny.build("llama", tmp_path).read_bytes()
    repository(web, "m-Q4_K_M.gguf", data=data)
    found = pull(source_of("hf:owner/name-GGUF"), tmp_path / "models", lambda *_: None, Wire())
    assert found.path == tmp_path / "models" / "owner" / "name-GGUF" / "m-Q4_K_M.gguf"
    assert found.checked
    assert found.path.read_bytes() == data
    assert [asked.headers.get("Authorization") for asked in web.asked] == ["Bearer hf_secret"] * 2
    assert f"/resolve/{COMMIT}/" in web.asked[-1].path


@pytest.mark.parametrize(
    ("status", "code", "message", "hint"),
    [
        (404, "RepoNotFound", "the hub has no repository owner/name-GGUF", "check the name"),
        (401, "RepoNotFound", "the hub has no repository owner/name-GGUF", "HF_TOKEN"),
        (403, "GatedRepo", "is given only to those who accept its terms", "HF_TOKEN"),
        (500, "", "the hub answered 500", "try again"),
    ],
)
def test_refusals(web: Web, status: int, code: str, message: str, hint: str) -> None:
    web.put("/api/models/owner/name-GGUF", b"", status=[status] * 9, headers={"X-Error-Code": code})
    with pytest.raises(KvchatError, match=message) as caught:
        source_of("hf:owner/name-GGUF")
    assert hint in caught.value.hint


def test_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(KvchatError, match="the hub cannot be reached") as caught:
        source_of("hf:owner/name-GGUF")
    assert "network" in caught.value.hint


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(KvchatError, match="need huggingface_hub") as caught:
        source_of("hf:owner/name-GGUF")
    assert "kvchat[hub]" in caught.value.hint
