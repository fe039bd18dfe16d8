"""`kvchat kv transcode`: real rows of a tiny model, by the real process; and what is refused before it is started."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny

from kvchat.backend.errands import transcode
from kvchat.backend.protocol import Transcode
from kvchat.cli import main
from kvchat.commands.kv_transcode import run_transcode
from kvchat.config import Settings
from kvchat.errors import KvchatError, UsageError
from kvchat.formats.gguf import fingerprint, read_header
from kvchat.formats.page import chain_tokens
from kvchat.formats.rows import LayerShape
from kvchat.kv.namespace import Namespace
from kvchat.kv.newpage import NewPage, NewRows
from kvchat.kv.overview import chain_pages, chains
from kvchat.kv.store import PageStore
from kvchat.paths import Paths

IDS = list(range(300))
ROW = 2 * 2 * 64  # bytes of two heads of 64, f16


@pytest.fixture
def paths(home: Path) -> Paths:
    """With the model and one chain of it."""
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    paths.models_folder.mkdir()
    model = tiny.build("llama", paths.models_folder)
    put(paths, fingerprint(model, read_header(model)), IDS)
    return paths


def put(paths: Paths, name: str, ids: Sequence[int]) -> None:
    store = PageStore(paths.kv_folder, Namespace(name, "llama", "", (), "f16", "f16", False, "0"), 2**30)
    source, key = np.random.default_rng(0), store.namespace.root
    for at in range(0, len(ids), 128):
        some = ids[at : at + 128]
        rows = source.standard_normal((4, len(some) * ROW // 2)).astype(np.float16).view(np.uint8)
        group = NewRows("full", (LayerShape(1, ROW, 1, ROW),) * 2, len(some), tuple(row.data for row in rows))
        store.put(NewPage(key, "", tuple(some), at, (group,), {}, 1.0))
        key = chain_tokens(key, "", some)
    store.close()


def chain(paths: Paths, type_k: str = "f16") -> str:
    return next(each.chain for each in chains(paths.kv_folder) if each.type_k == type_k)


def run(paths: Paths, name: str, *, json: bool = False, **types: str) -> str:
    out = io.StringIO()
    given = {"type_k": None, "type_v": None} | types
    assert run_transcode(name, Settings(), paths, json=json, out=out, **given) == 0
    return out.getvalue()


def test_a_chain_in_another_type(paths: Paths) -> None:
    said = run(paths, chain(paths), type_k="q8_0", type_v="q8_0")
    assert said.startswith("300 tokens as q8_0: 3 of 3 pages are new, ")
    made = chain_pages(paths.kv_folder, chain(paths, "q8_0"))
    assert (made.chain.lineage, made.chain.tokens, made.namespace and made.namespace.rotation) == ("f16", 300, True)
    assert made.pages[-1].key.hex().startswith(said.split()[-1])
    assert run(paths, chain(paths), type_k="q8_0", type_v="q8_0") == "all 300 tokens are there as q8_0 already\n"


def test_k_and_v_apart_as_json(paths: Paths) -> None:
    (found,) = json.loads(run(paths, chain(paths), json=True, type_v="q4_0"))
    assert (found["type_k"], found["type_v"], found["tokens"], found["written"]) == ("f16", "q4_0", 300, 3)
    assert set(found) == {"page", "type_k", "type_v", "tokens", "pages", "written", "bytes"}


def test_from_the_command_line(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "transcode", chain(paths), "--to", "q5_1", "--v", "iq4_nl"]) == 0
    assert capsys.readouterr().out.startswith("300 tokens as q5_1/iq4_nl: 3 of 3 pages are new")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "into which cache type?"),
        (["--to", "q8"], "did you mean q8_0?"),
        (["--k", "q6_K"], "is not a cache type that pages can have"),
        (["--to", "f16"], "this chain is f16 already"),
    ],
)
def test_wrong_words(paths: Paths, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["kv", "transcode", chain(paths), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_is_gone(paths: Paths) -> None:
    (paths.models_folder / "llama.gguf").unlink()
    with pytest.raises(KvchatError, match="llama, is not on this machine"):
        run(paths, chain(paths), type_k="q8_0", type_v="q8_0")


def test_a_model_that_cannot_have_the_type(paths: Paths) -> None:
    model = tiny.build("llama80", paths.models_folder)
    put(paths, fingerprint(model, read_header(model)), IDS[:5])
    name = next(each.chain for each in chains(paths.kv_folder) if each.tokens == 5)
    with pytest.raises(KvchatError, match="heads of a multiple of 32"):
        run(paths, name, type_k="q8_0", type_v="q8_0")


def test_no_description_of_the_chain(paths: Paths) -> None:
    name = chain(paths)
    (file,) = paths.kv_folder.glob("pages/*/namespace.json")
    file.unlink()
    with pytest.raises(KvchatError, match="of what model"):
        run(paths, name, type_k="q8_0", type_v="q8_0")


def test_a_process_that_ends_early(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backend.errands.TRANSCODES", "kvchat.no_such_module")
    with pytest.raises(KvchatError, match="ended by itself with code 1"):
        transcode(Transcode(str(paths.kv_folder), 0, "x", b"", "m", "q8_0", "q8_0"), paths.log_file)


def test_a_chain_that_there_is_not(paths: Paths) -> None:
    with pytest.raises(KvchatError, match="there is no chain"):
        run(paths, "zz", type_k="q8_0")
    with pytest.raises(UsageError):
        run(paths, chain(paths), type_k="x")
