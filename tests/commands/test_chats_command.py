"""`kvchat chats ls` and `show`: the JSON names, and that nothing foreign reaches the terminal as it is."""

from __future__ import annotations

import io
import json
import os
from contextlib import closing

import pytest

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.commands.chats import run_ls, run_show
from kvchat.errors import KvchatError
from kvchat.paths import Paths

EVIL = "\x1b]0;owned\x07 \x9b2J \u202e one\r\ntwo"


@pytest.fixture
def paths() -> Paths:
    return Paths.find(os.environ)


def fill(paths: Paths) -> None:
    usage = json.dumps({"prompt_tokens": 10, "reused": 7, "computed": 3, "decode_tokens": 2, "cells": 12})
    with closing(ChatStore(paths.chats_db)) as store:
        for number, title in enumerate(("Older", EVIL)):
            chat = Chat(f"01C{number}", title, 1.0, 2.0 + number, "", 1.0, "fake", None)
            store.add_turn(
                chat,
                [
                    Message(f"{number}u", chat.id, None, "user", EVIL, 3.0, ""),
                    Message(f"{number}a", chat.id, f"{number}u", "assistant", "Half", 4.0, "stop", EVIL, usage),
                    Message(f"{number}v", chat.id, f"{number}a", "user", "한국어", 5.0, ""),
                    Message(f"{number}b", chat.id, f"{number}v", "assistant", "", 6.0, None),
                ],
            )


def ls(paths: Paths, json: bool = False) -> str:
    out = io.StringIO()
    assert run_ls(paths, json=json, out=out) == 0
    return out.getvalue()


def show(paths: Paths, chat: str, json: bool = False) -> str:
    out = io.StringIO()
    assert run_show(paths, chat, json=json, out=out) == 0
    return out.getvalue()


def test_ls_without_chats(paths: Paths) -> None:
    assert "No chats yet" in ls(paths)
    assert json.loads(ls(paths, json=True)) == []


def test_ls_json(paths: Paths) -> None:
    fill(paths)
    listed = json.loads(ls(paths, json=True))
    assert [chat["id"] for chat in listed] == ["01C1", "01C0"]  # the last used first
    assert listed[1] == {
        "id": "01C0",
        "title": "Older",
        "created": 1.0,
        "updated": 2.0,
        "model": "fake",
        "system": "",
        "messages": 4,
    }


def test_show_json(paths: Paths) -> None:
    fill(paths)
    shown = json.loads(show(paths, "older", json=True))
    assert [message["id"] for message in shown] == ["0u", "0a", "0v", "0b"]
    assert shown[0]["text"] == EVIL  # escaped, not changed
    assert shown[1] == {
        "id": "0a",
        "chat": "01C0",
        "parent": "0u",
        "role": "assistant",
        "text": "Half",
        "created": 4.0,
        "finish": "stop",
        "model": EVIL,
        "prompt_tokens": 10,
        "reused": 7,
        "computed": 3,
        "decode_tokens": 2,
    }
    assert shown[3]["finish"] is None and shown[3]["reused"] is None


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_foreign_reaches_the_terminal(paths: Paths, as_json: bool) -> None:
    fill(paths)
    printed = ls(paths, as_json) + show(paths, "01C1", as_json)
    assert not set(printed) & set("\x1b\x07\r\x9b\u202e")


def test_ls_has_one_line_per_chat(paths: Paths) -> None:
    fill(paths)
    lines = ls(paths).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("01C1") and lines[1].endswith("two")


def test_show_says_what_is_not_finished(paths: Paths) -> None:
    fill(paths)
    text = show(paths, "01C0")
    assert "# you" in text and "한국어" in text
    assert text.count("not finished") == 1


def test_show_of_an_unknown_chat(paths: Paths) -> None:
    fill(paths)
    with pytest.raises(KvchatError) as caught:
        show(paths, "oldr")
    assert "Older" in caught.value.hint


def test_a_damaged_file(paths: Paths) -> None:
    paths.chats_db.write_text("not a database at all, not a database at all" * 50)
    with pytest.raises(KvchatError, match="not a chat database"):
        ls(paths)
