"""docs/json.md is what comes out: a real `ask --json`, field by field, and what the other commands print after it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_backend import make_ready

import kvchat
from kvchat.backend.switching import SwitchingEngine
from kvchat.backend.values import EngineConfig, Remote, Usage
from kvchat.cli import main
from kvchat.commands.ask import run_ask
from kvchat.commands.report import Answer, report
from kvchat.commands.summarizing import Done
from kvchat.config import load_settings
from kvchat.paths import Paths

PAGE = (Path(kvchat.__file__).parent.parent / "docs" / "json.md").read_text(encoding="utf-8")
ASK, OTHERS = PAGE.split("\n## ")[1:]
WORD = re.compile(r"`([a-z_0-9.]+)`")


def fields_of_ask() -> set[str]:
    """The fields in the first column of the table."""
    rows = [line.split(" | ")[0] for line in ASK.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in WORD.findall(row)}


def fields_of(command: str) -> set[str]:
    """The fields in the row of one of the other commands; what stands in brackets are words about them."""
    (row,) = [line for line in OTHERS.splitlines() if line.startswith(f"| `{command}` |")]
    text = re.sub(r"\([^)]*\)", "", row.split(" | ")[1].partition("; then")[0])
    return set(WORD.findall(text))


def flat(value: dict[str, Any], before: str = "") -> Iterator[str]:
    """The names of all fields, with a point between those within each other."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from flat(inner, f"{before}{key}.")
        else:
            yield before + key


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build("qwen3", tmp_path_factory.mktemp("model"))


@pytest.fixture
def asked(home: Path, model: Path) -> dict[str, Any]:
    """What a real turn printed; the chat, its pages and its model are there after it."""

    def engine(config: EngineConfig, *rest: Any) -> SwitchingEngine:
        return SwitchingEngine(replace(config, extra_buffers=False, threads=1), *rest)

    paths = Paths.find({"KVCHAT_HOME": str(home)})
    flags = {"model": str(model), "ctx_size": "512", "predict": "3", "fit": "off"}
    settings, out, err = load_settings(paths, {}, flags), io.StringIO(), io.StringIO()
    options: dict[str, Any] = {"chat": None, "continue_last": False, "resume": False, "engine_factory": engine}
    run_ask(["Hello"], settings, paths, json=True, out=out, err=err, stdin=io.StringIO(), **options)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_a_real_answer_has_these_fields(asked: dict[str, Any]) -> None:
    documented = fields_of_ask()
    only_sometimes = {name for name in documented if name.startswith(("overflow.", "remote."))} | {"alternatives"}
    assert set(flat(asked)) == documented - only_sometimes
    assert asked["prompt"]["tokens"] == asked["prompt"]["reused"] + asked["prompt"]["computed"]
    assert asked["decode"]["tokens"] == 3
    assert asked["overflow"] is None
    assert asked["remote"] is None
    assert asked["prefix"] is None


def test_what_is_there_only_sometimes() -> None:
    """A server, a full context and summaries: the objects that are null else."""
    ready = replace(make_ready(), remote=Remote("lab", "http://127.0.0.1:8080/v1"))
    made = report(Answer("c", "m", "t", "stop"), ready, Usage(remote="127.0.0.1:8080"), [{"messages": 2}])
    expected = fields_of_ask() - {"overflow", "remote", "alternatives"}
    assert set(flat(made)) == expected
    assert made["remote"] == {"host": "127.0.0.1:8080", "leaves": False}


def test_a_summary_has_these_fields() -> None:
    (row,) = [line for line in ASK.splitlines() if line.startswith("| `overflow.summaries`")]
    assert WORD.findall(row.split(" | ")[1]) == list(Done(2, 30, 10, "t").told())


def test_other_commands_have_these_fields(
    asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*words: str) -> list[dict[str, Any]]:
        assert main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return found if isinstance(found, list) else [found]

    exported = str(tmp_path / "exported")
    (chain,) = printed("kv", "ls")
    for command, words in (
        ("chats ls", ()),
        ("chats show", ("Hello",)),
        ("chats search", ("hello",)),
        ("kv ls", ()),
        ("kv show", (chain["chain"],)),
        ("kv verify", ()),
        ("kv gc", ()),
        ("paths", ()),
        ("chats export --all", ("-o", exported)),
        ("chats import", (exported,)),
    ):
        found = printed(*command.split(), *words)
        assert found
        assert all(set(one) == fields_of(command) for one in found), command
    (renamed,) = printed("chats", "rename", "Hello", "Another")
    assert set(renamed) == fields_of("chats ls") - {"messages"}
    (purged,) = printed("chats", "empty-trash", "--yes")
    assert set(purged) == fields_of("chats rm --purge`, `empty-trash")


def test_models_and_plans_have_these_fields(
    home: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = home / "models"
    models.mkdir()
    (models / "small.gguf").write_bytes(model.read_bytes())
    for command, words in (("models ls", ()), ("models scan", ()), ("plan", (str(model),)), ("models pull", ())):
        assert main([*command.split(), *words, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        row = "models pull` without a name" if command == "models pull" else command
        one = printed[0] if isinstance(printed, list) else printed
        if command == "models pull":
            (line,) = [line for line in OTHERS.splitlines() if line.startswith(f"| `{row}")]
            assert set(one) == set(WORD.findall(line.split(" | ")[1]))
        else:
            assert set(one) == fields_of(row)
