"""A chat database with contents that kvchat would not write: read as far as it makes sense, never a traceback."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from conversing import GREEDY, WAIT
from fake_backend import FakeBackend, make_ready

from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat, KnownIds, Message, stored_object
from kvchat.commands.chats import run_ls, run_search, run_show
from kvchat.conversation import Conversation, engine_choice, read_usage
from kvchat.paths import Paths

DEEP = "[" * 100_000


@pytest.fixture
def paths() -> Paths:
    return Paths.find(os.environ)


@pytest.fixture(autouse=True)
def database(paths: Paths) -> Path:
    with closing(ChatStore(paths.chats_db)) as store:
        chat = Chat("01C", "A title", 1.0, 1.0, "", 1.0, "m", None)
        question = Message("u", "01C", None, "user", "old words", 1.0, "")
        store.add_turn(chat, [question, Message("a", "01C", "u", "assistant", "old answer", 1.0, "length")])
        store.set_ids("k", {"u": [1, 2], "a": [3]})
    return paths.chats_db


def damage(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def read_everything(paths: Paths) -> str:
    """What each command that reads chats prints, and a conversation that goes on."""
    out = io.StringIO()
    for as_json in (False, True):
        run_ls(paths, json=as_json, out=out)
        run_show(paths, "01C", json=as_json, out=out)
        for word in ("old", "한"):
            run_search(paths, [word], json=as_json, out=out)
    store = StoreThread(paths.chats_db, lambda error: None)
    try:
        backend = FakeBackend(make_ready())
        conversation = Conversation.open(store, backend, "01C", sampling=GREEDY).result(WAIT)
        assert conversation.engine_settings is None
        conversation.submit("new words").result(WAIT)
        conversation.stop()
        assert backend.requests[-1].messages[-1].text == "new words"
    finally:
        store.close()
    return out.getvalue()


@pytest.mark.parametrize("column", ["text", "model", "finish", "usage"])
@pytest.mark.parametrize("value", ["CAST(x'6f6c6420ff80c3' AS TEXT)", "x'6f6c6420ff'", "12", "CAST(x'ed' AS TEXT)"])
def test_odd_values_in_messages(paths: Paths, database: Path, column: str, value: str) -> None:
    damage(database, f"UPDATE messages SET {column} = {value}")
    assert "A title" in read_everything(paths)


@pytest.mark.parametrize("column", ["title", "system", "model", "settings"])
@pytest.mark.parametrize("value", ["CAST(x'6f6c6420ff80c3' AS TEXT)", "x'6f6c6420ff'", "12"])
def test_odd_values_in_chats(paths: Paths, database: Path, column: str, value: str) -> None:
    damage(database, f"UPDATE chats SET {column} = {value}")
    assert "01C" in read_everything(paths)


@pytest.mark.parametrize("value", ["9e999", "-9e999", "1e300", "x'00'", "'yesterday'"])
def test_odd_times(paths: Paths, database: Path, value: str) -> None:
    damage(database, f"UPDATE chats SET created = {value}, updated = {value}, clock = {value}")
    damage(database, f"UPDATE messages SET created = {value}")
    assert "A title" in read_everything(paths)


def test_invalid_utf8_is_shown_as_such(paths: Paths, database: Path) -> None:
    damage(database, "UPDATE messages SET text = CAST(x'6f6c64ff' AS TEXT)")
    out = io.StringIO()
    run_show(paths, "01C", json=False, out=out)
    assert "old\ufffd" in out.getvalue()


@pytest.mark.timeout(60)
def test_a_circle_of_parents(paths: Paths, database: Path) -> None:
    damage(database, "UPDATE messages SET parent = 'a' WHERE id = 'u'")
    assert read_everything(paths).count("# you") == 1


def test_ids_that_are_none(database: Path) -> None:
    damage(database, "UPDATE message_ids SET ids = 'text' WHERE message = 'u'")
    damage(database, "UPDATE message_ids SET ids = x'000000' WHERE message = 'a'")
    with closing(ChatStore(database)) as store:
        assert store.known_ids("a", "k") == {}
        store.set_ids("k", {"a": [3]})
        assert store.known_ids("a", "k") == {"a": KnownIds((3,), ())}


@pytest.mark.parametrize("text", ["", "not JSON", "[]", "null", "3", DEEP, "9" * 5000, '{"reused": '])
def test_damaged_json(paths: Paths, database: Path, text: str) -> None:
    assert stored_object(text) == {}
    damage(database, f"UPDATE messages SET usage = '{text}'", f"UPDATE chats SET settings = '{text}'")
    out = io.StringIO()
    run_show(paths, "01C", json=True, out=out)
    assert json.loads(out.getvalue())[1]["reused"] is None
    read_everything(paths)


def test_usage_of_the_wrong_kind() -> None:
    def usage(text: str | None) -> object:
        return read_usage(Message("a", "c", "u", "assistant", "", 1.0, "stop", usage=text))

    assert usage(None) is None
    found = usage(
        json.dumps(
            {
                "reused": 7,
                "computed": "7",
                "cells": True,
                "pages": -1,
                "resident": 1.5,
                "prompt_tokens": 10**400,
                "decode_seconds": 2,
                "prefill_seconds": float("nan"),
                "saved_seconds": float("inf"),
                "ttft_seconds": None,
                "cut": "version",
                "overflow": ["?"],
                "of a later version": 1,
            }
        )
    )
    plain = Message("a", "c", "u", "assistant", "", 1.0, "stop", usage='{"reused": 7, "cut": "version"}')
    expected = read_usage(plain)
    assert expected is not None
    assert (expected.reused, expected.cut, expected.computed) == (7, "version", 0)

    assert found == replace(expected, decode_seconds=2)


@pytest.mark.parametrize("context", ["true", "-1", "1e3", "null", "1" + "0" * 100])
def test_an_engine_choice_of_the_wrong_kind(context: str) -> None:
    settings = '{"model": "m.gguf", "type_k": "f16", "type_v": "f16", "flash_attention": "auto", "context": 0}'
    assert engine_choice(Chat("c", "t", 1.0, 1.0, "", 1.0, "m", None, settings=settings)) is not None
    settings = settings.replace("0}", context + "}")
    assert engine_choice(Chat("c", "t", 1.0, 1.0, "", 1.0, "m", None, settings=settings)) is None
