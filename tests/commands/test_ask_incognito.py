"""`ask --incognito`, and what `ask` says of the file of the chats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from asking import Asked
from fake_backend import finished, prompt_events
from scripted_engine import ScriptedEngine
from traces import traces

from kvchat.arguments import parse
from kvchat.backend.protocol import Event, Generate
from kvchat.chats.schema import MIGRATIONS, connect
from kvchat.cli import main
from kvchat.config import Settings
from kvchat.paths import Paths

MARKER = "zanzibarquokka"
INCOGNITO = Settings(model="first", incognito=True)


def test_nothing_is_kept_and_nothing_is_read(ask: Callable[..., Asked], paths: Paths, engine: ScriptedEngine) -> None:
    ask("An open question.", settings=Settings(model="first"))
    before = {path: path.read_bytes() for path in paths.chats_db.parent.rglob("*") if path.is_file()}
    asked = ask(f"Say {MARKER}.", settings=INCOGNITO, json=True)
    assert asked.code == 0
    answer = json.loads(asked.out.getvalue())
    assert (answer["chat"], answer["message"], answer["text"]) == (None, None, "Hello there.")
    assert engine.configs[-1].kv_folder is None
    assert traces([paths.chats_db.parent], [MARKER]) == set()
    assert {path: path.read_bytes() for path in before} == before


def test_no_hint_leads_to_a_chat_that_is_gone(ask: Callable[..., Asked], paths: Paths, engine: ScriptedEngine) -> None:
    def full(request: Generate) -> Iterator[Event]:
        yield from (*prompt_events(request), finished(request, "context"))

    engine.script = full
    asked = ask("Hi.", settings=INCOGNITO)
    assert "the context of" in asked.err.getvalue()
    assert "--resume" not in asked.err.getvalue()


@pytest.mark.parametrize("words", [["-c"], ["--chat", "x"], ["--resume"]])
def test_chats_on_disk_are_not_gone_on_with(words: list[str], capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["ask", "--incognito", *words]) == 2
    assert "does not look at the chats on disk" in capsys.readouterr().err
    assert not (home / "chats.db").exists()
    assert parse(["--incognito"]).incognito


def test_what_became_of_the_file_is_said(ask: Callable[..., Asked], paths: Paths) -> None:
    with closing(connect(paths.chats_db, MIGRATIONS[:-1])):
        pass
    paths.chats_db.chmod(0o644)
    said = ask("Hi.", settings=Settings(model="first")).err.getvalue()
    assert f"chats.db.v{len(MIGRATIONS) - 1}.backup" in said
    assert "others had rights to" in said
    assert "note:" not in ask("Hi.", settings=Settings(model="first")).err.getvalue()


def test_yes_alone_means_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chats", "rm", "x", "--yes"]) == 2
    assert "--purge" in capsys.readouterr().err
