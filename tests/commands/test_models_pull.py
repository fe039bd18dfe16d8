"""`kvchat models pull`, `scan` and `rm`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny

from kvchat.cli import main
from kvchat.commands import models_files
from kvchat.config import Settings
from kvchat.errors import KvchatError, UsageError
from kvchat.library import catalog, find
from kvchat.library.catalog import offers
from kvchat.paths import Paths

sys.path.insert(0, str(Path(__file__).parent.parent / "library"))
from pull_server import Web, serving


@pytest.fixture
def paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(find, "_BUILT_IN_PACKAGE", "no_such_package_anywhere")
    found = Paths.find({"KVCHAT_HOME": str(home)})
    found.models_folder.mkdir()
    return found


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny.build("llama", tmp_path_factory.mktemp("model")).read_bytes()


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


# ------------------------------------------------------------------ pull


def test_pull_by_url(paths: Paths, web: Web, model: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    web.put("/a/m.gguf", model)
    sha256 = hashlib.sha256(model).hexdigest()
    code, out, err = run("models", "pull", f"{web.url}/a/m.gguf", "--sha256", sha256, capsys=capsys)
    path = paths.models_folder / "m.gguf"
    assert code == 0
    assert out.startswith(f"{path}  ") and "checksum agrees" in out
    assert "to chat with it: kvchat -m m" in err
    assert path.read_bytes() == model
    code, out, _ = run("models", "pull", f"{web.url}/a/m.gguf", capsys=capsys)
    assert (code, "was there already" in out) == (0, True)


def test_pull_json(paths: Paths, web: Web, model: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    web.put("/m.gguf", model)
    code, out, err = run("models", "pull", "--json", f"{web.url}/m.gguf", capsys=capsys)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found.pop("seconds") >= 0
    assert found == {
        "name": "m",
        "path": str(paths.models_folder / "m.gguf"),
        "size": len(model),
        "fetched": True,
        "checked": False,
        "sha256": [hashlib.sha256(model).hexdigest()],
    }


def test_pull_from_the_catalogue(
    paths: Paths, web: Web, model: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its short name, from the person's mirror; known by it afterwards, and wrong bytes are refused."""
    monkeypatch.setenv("HF_ENDPOINT", web.url)
    known = catalog.offer("qwen3:4b")
    assert known is not None
    web.put(f"/{known.address}", model)
    code, _, err = run("models", "pull", "qwen3:4b", capsys=capsys)
    assert code == 1
    assert f"has {len(model):,} bytes there, not {known.size:,}" in err
    assert "licence: Apache-2.0" in err
    assert list(paths.models_folder.iterdir()) == []


def test_the_catalogue_is_listed(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("models", "pull", capsys=capsys)
    title, *lines = out.splitlines()
    assert code == 0
    assert title.split()[:4] == ["name", "size", "fits", "licence"]
    assert [line.split()[0] for line in lines] == [offer.name for offer in offers()]
    code, out, _ = run("models", "pull", "--json", capsys=capsys)
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["qwen3:4b"]["draft"] == "qwen3:0.6b"
    assert rows["qwen3:4b"]["context_trained"] == 40_960


@pytest.mark.parametrize("how", ["flag", "variable", "file"])
def test_offline(
    paths: Paths, web: Web, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["models", "pull", f"{web.url}/m.gguf"]
    match how:
        case "flag":
            words.append("--offline")
        case "variable":
            monkeypatch.setenv("KVCHAT_OFFLINE", "1")
        case _:
            paths.config_file.write_text("offline = true\n")
    code, _, err = run(*words, capsys=capsys)
    assert (code, web.asked) == (1, [])
    assert "nothing is fetched: offline is set" in err
    assert run("models", "pull", capsys=capsys)[0] == 0  # the list needs no network


def test_what_is_wrong_is_said(paths: Paths, web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["qwen"], "the catalogue has no 'qwen'"),
        ([f"{web.url}/gone.gguf"], "has no such file (404)"),
        ([f"{web.url}/m.gguf", "--sha256", "abc"], "no sha256"),
        (["http://127.0.0.1:9/m.gguf"], "connection to 127.0.0.1 failed"),
    ):
        code, out, err = run("models", "pull", *words, capsys=capsys)
        assert (code, out) == (1, "")
        assert message in err and "hint: " in err


def test_progress_on_a_terminal_and_ctrl_c(paths: Paths, web: Web, model: bytes) -> None:
    """A bar that is drawn over itself; Ctrl+C keeps what has come, and the next try goes on there."""
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "kvchat", "models", "pull", f"{web.url}/m.gguf"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its, text=True)
    os.close(its)
    assert web.halfway.wait(20)
    part = paths.models_folder / "m.gguf.part"
    for _ in range(1000):
        if part.exists() and part.stat().st_size == len(model) // 2:
            break
        threading.Event().wait(0.01)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    shown = os.read(mine, 1 << 16).decode()
    os.close(mine)
    assert child.returncode == 130
    assert out == ""
    assert "\r" in shown and "━" in shown and "50%" in shown
    assert "what has come stays" in shown
    gate.set()
    web.pages["/m.gguf"].gate = None
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\r" not in done.stderr
    assert (paths.models_folder / "m.gguf").read_bytes() == model
    assert web.ranges()[-1] == f"bytes={len(model) // 2}-"


# ------------------------------------------------------------------ scan


def test_scan(paths: Paths, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: bytes) -> None:
    theirs = home / ".lmstudio" / "models" / "p" / "r"
    theirs.mkdir(parents=True)
    (theirs / "a.gguf").write_bytes(model)
    (theirs / "mmproj-a.gguf").write_bytes(model)
    (paths.models_folder / "b.gguf").write_bytes(model)
    (tmp_path / "c.gguf").write_bytes(model)
    code, out, _ = run("models", "scan", str(tmp_path), capsys=capsys)
    assert code == 0
    rows = {tuple(line.split()[:2]): line for line in out.splitlines()}
    assert ("kvchat", str(paths.models_folder)) in rows
    assert ("yours", str(tmp_path)) in rows
    # the folder has no space in its name, but the program has
    (lm_studio,) = (line for line in out.splitlines() if line.startswith("LM Studio"))
    assert str(home / ".lmstudio" / "models") in lm_studio and lm_studio.split()[-1] == "1"
    assert f"mmproj-a: a projector for images or sound ({theirs}/mmproj-a.gguf)" in out
    code, out, _ = run("models", "scan", "--json", str(tmp_path), capsys=capsys)
    found = {row["name"]: (row["owner"], row["unfit"]) for row in json.loads(out)}
    assert found == {
        "a": ("LM Studio", None),
        "b": ("kvchat", None),
        "c": ("yours", None),
        "mmproj-a": ("LM Studio", "a projector for images or sound"),
    }


@pytest.mark.parametrize("folder", ["", "/no/such/folder", "a\0b"])
def test_scan_of_what_is_no_folder(paths: Paths, folder: str) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        models_files.run_scan(Settings(), paths, [folder], json=False, out=io.StringIO())


def test_folders_of_the_settings(
    paths: Paths, tmp_path: Path, model: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.gguf").write_bytes(model)
    paths.config_file.write_text(f'model_folders = ["{tmp_path}"]\n')
    _, out, _ = run("models", "ls", "--json", capsys=capsys)
    assert [(row["name"], row["source"]) for row in json.loads(out)] == [("c", str(tmp_path))]
    assert run("models", "show", "c", capsys=capsys)[0] == 0
    assert run("plan", "c", capsys=capsys)[0] == 0


def test_what_ls_found_out_is_kept(
    paths: Paths, model: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (paths.models_folder / "m.gguf").write_bytes(model)
    (paths.models_folder / "cut.gguf").write_bytes(model[:-99])
    first = json.loads(run("models", "ls", "--json", capsys=capsys)[1])
    read: list[str] = []
    check = find.check
    monkeypatch.setattr("kvchat.commands.models.check", lambda file: read.append(file.name) or check(file))
    assert json.loads(run("models", "ls", "--json", capsys=capsys)[1]) == first
    assert read == ["cut"]  # what is damaged may be on its way


# ------------------------------------------------------------------ rm


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rm(paths: Paths, name: str, answer: str | None = None, settings: Settings | None = None) -> str:
    """What is asked or, where nothing is, said."""
    out, err, stdin = io.StringIO(), Terminal(), io.StringIO() if answer is None else Terminal(answer)
    asks = answer is not None
    models_files.run_rm(settings or Settings(), paths, name, yes=not asks, json=asks, out=out, err=err, stdin=stdin)
    if not asks:
        return out.getvalue()
    assert json.loads(out.getvalue())["removed"]  # stdout has that, and no question
    return err.getvalue()


@pytest.mark.parametrize("name", ["m", "M.gguf", "PATH"])
def test_rm(paths: Paths, model: bytes, name: str) -> None:
    folder = paths.models_folder / "owner" / "name"
    folder.mkdir(parents=True)
    path = folder / "m.gguf"
    path.write_bytes(model)
    assert "removed m, " in rm(paths, str(path) if name == "PATH" else name)
    assert list(paths.models_folder.iterdir()) == []


def test_rm_asks(paths: Paths, model: bytes) -> None:
    path = paths.models_folder / "m.gguf"
    path.write_bytes(model)
    for answer in ("n\n", "\n", "", "yess\n"):
        with pytest.raises(KvchatError, match="nothing was removed"):
            rm(paths, "m", answer)
    assert path.exists()
    assert rm(paths, "m", "y\n") == f"Remove m ({len(model) / 1024:.1f} KiB, {path})? [y/N] "
    assert not path.exists()
    path.write_bytes(model)
    with pytest.raises(UsageError, match="nobody to answer"):
        out, stdin = io.StringIO(), io.StringIO("y\n")
        models_files.run_rm(Settings(), paths, "m", yes=False, json=False, out=out, err=Terminal(), stdin=stdin)
    assert path.exists()


def test_rm_of_all_parts_and_of_what_is_not_whole(paths: Paths) -> None:
    folder = paths.models_folder
    for name in ("s-00001-of-00002.gguf", "s-00002-of-00002.gguf", "p.gguf.part", "p.gguf.part.json"):
        (folder / name).write_bytes(b"GGUF")
    rm(paths, "s")
    assert sorted(path.name for path in folder.iterdir()) == ["p.gguf.part", "p.gguf.part.json"]
    rm(paths, "p.gguf")
    assert list(folder.iterdir()) == []


def test_rm_of_a_link_leaves_the_file(paths: Paths, tmp_path: Path, model: bytes) -> None:
    file = tmp_path / "file.gguf"
    file.write_bytes(model)
    (paths.models_folder / "linked.gguf").symlink_to(file)
    assert "a link: the file that it leads to stays" in rm(paths, "linked", "y\n")
    assert file.exists()
    assert list(paths.models_folder.iterdir()) == []


def test_rm_touches_nothing_of_others(paths: Paths, home: Path, tmp_path: Path, model: bytes, smollm2: Path) -> None:
    theirs = home / ".lmstudio" / "models" / "a.gguf"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(model)
    (tmp_path / "c.gguf").write_bytes(model)
    settings = Settings(model_folders=(tmp_path,))
    for name, message in (
        ("a", f"a belongs to LM Studio: {theirs}"),
        (str(theirs), "belongs to LM Studio"),
        ("c", "c belongs to another folder"),
        ("b", "there is no model called 'b'"),
        ("", "there is no model called ''"),
    ):
        with pytest.raises(KvchatError, match=message):
            rm(paths, name, settings=settings)
    assert theirs.exists() and (tmp_path / "c.gguf").exists()


def test_rm_of_the_built_in_model(home: Path, smollm2: Path) -> None:
    with pytest.raises(KvchatError, match="belongs to a Python package"):
        rm(Paths.find({"KVCHAT_HOME": str(home)}), "SmolLM2-135M-Instruct.Q4_1")
    assert smollm2.exists()
