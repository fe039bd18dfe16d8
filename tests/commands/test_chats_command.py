"""`kvchat chats`: the JSON names, what is said of a change, and that nothing foreign reaches the terminal as it is."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import closing

import pytest

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.commands.chats import run_ls, run_pin, run_rename, run_restore, run_rm, run_search, run_show, run_unpin
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


def ls(paths: Paths, json: bool = False, trash: bool = False) -> str:
    out = io.StringIO()
    assert run_ls(paths, json=json, out=out, trash=trash) == 0
    return out.getvalue()


def change(paths: Paths, run: Callable[..., int], *words: object, json: bool = False) -> str:
    """What one of the other commands prints."""
    out = io.StringIO()
    assert run(paths, *words, json=json, out=out) == 0
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
        "deleted_at": None,
        "pinned_at": None,
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
        "pinned": False,
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
    printed += change(paths, run_search, ["owned"], json=as_json)
    printed += change(paths, run_rename, "01C0", [EVIL], json=as_json)
    printed += change(paths, run_rm, "01C1", json=as_json)
    printed += ls(paths, as_json, trash=True)
    printed += change(paths, run_restore, "01C1", json=as_json)
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


def test_a_damaged_file(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    """What became of it is a note on stderr: stdout is what was asked for."""
    fill(paths)
    before = ls(paths)
    with paths.chats_db.open("r+b") as file:
        file.write(b"no header " * 10)
    assert ls(paths) == before
    said = capsys.readouterr().err
    assert said.startswith("note: ")
    assert "chats.db.damaged-" in said
    assert ls(paths) == before
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------ search


def test_search_json(paths: Paths) -> None:
    fill(paths)
    hits = json.loads(change(paths, run_search, ["한국"], json=True))
    assert [(hit["chat"], hit["message"]) for hit in hits] == [("01C1", "1v"), ("01C0", "0v")]
    assert hits[1] == {"chat": "01C0", "message": "0v", "title": "Older", "snippet": "한국어"}
    assert [hit["snippet"] for hit in json.loads(change(paths, run_search, ["old"], json=True))] == [""]  # a title
    assert json.loads(change(paths, run_search, ["한국", "nowhere"], json=True)) == []


def test_search_in_words(paths: Paths) -> None:
    fill(paths)
    lines = change(paths, run_search, ["hal"]).splitlines()
    assert sorted(line[:4] for line in lines) == ["    ", "    ", "01C0", "01C1"]
    assert lines[1] == lines[3] == "    Half"
    assert change(paths, run_search, ["old"]) == "01C0  Older\n"
    assert change(paths, run_search, ["nowhere"]) == "Nothing found.\n"


def test_a_search_says_that_there_is_more(paths: Paths) -> None:
    with closing(ChatStore(paths.chats_db)) as store:
        chat = Chat("01C0", "Long", 1.0, 1.0, "", 1.0, "", None)
        store.add_turn(chat, [Message(f"m{number}", "01C0", None, "user", "bees", 1.0, "") for number in range(52)])
    lines = change(paths, run_search, ["bees"]).splitlines()
    assert lines.count("    bees") == 50
    assert lines[-1].startswith("and more than these 50")
    assert len(json.loads(change(paths, run_search, ["bees"], json=True))) == 52


# ------------------------------------------------------------------ changes


def test_rename(paths: Paths) -> None:
    fill(paths)
    assert change(paths, run_rename, "older", ["Much", "newer"]) == '"Older" is now "Much newer".\n'
    renamed = json.loads(change(paths, run_rename, "01C0", ["한국어"], json=True))
    assert (renamed["id"], renamed["title"], renamed["updated"]) == ("01C0", "한국어", 2.0)
    with pytest.raises(KvchatError, match="show something"):
        change(paths, run_rename, "01C0", [" "])
    with pytest.raises(KvchatError, match="no chat"):
        change(paths, run_rename, "Older", ["x"])


def test_rm_says_how_to_undo_it(paths: Paths) -> None:
    fill(paths)
    said = change(paths, run_rm, "Older")
    assert '"Older" is in the trash' in said and "30 days" in said
    undo = said.splitlines()[-1]
    assert undo.endswith("kvchat chats restore 01C0")
    assert [chat["id"] for chat in json.loads(ls(paths, json=True))] == ["01C1"]
    with pytest.raises(KvchatError, match="no chat"):
        show(paths, "Older")
    (there,) = json.loads(ls(paths, json=True, trash=True))
    assert (there["id"], there["title"], there["messages"]) == ("01C0", "Older", 4) and there["deleted_at"] > 1e9
    heading, line = ls(paths, trash=True).splitlines()
    assert "deleted" in heading and line.startswith("01C0")

    assert change(paths, run_restore, undo.split()[-1]) == '"Older" is back.\n'
    assert ls(paths, trash=True) == "The trash is empty.\n"
    assert json.loads(ls(paths, json=True, trash=True)) == []
    assert "Half" in show(paths, "Older")


def test_rm_and_restore_json(paths: Paths) -> None:
    fill(paths)
    removed = json.loads(change(paths, run_rm, "Older", json=True))
    restored = json.loads(change(paths, run_restore, "older", json=True))
    assert removed["id"] == restored["id"] == "01C0"
    assert removed["deleted_at"] is not None and restored["deleted_at"] is None


def test_pin_and_unpin(paths: Paths) -> None:
    fill(paths)
    assert change(paths, run_pin, "Older") == '"Older" is pinned.\n'
    pinned = json.loads(change(paths, run_pin, "older", json=True))
    assert pinned["pinned_at"] > 1e9 and pinned["updated"] == 2.0
    assert [chat["pinned_at"] for chat in json.loads(ls(paths, json=True))] == [None, pinned["pinned_at"]]
    assert [line.split()[4] for line in ls(paths).splitlines()[1:]] == ["␛]0;owned␇", "*"]
    assert change(paths, run_unpin, "Older") == '"Older" is not pinned any more.\n'
    assert json.loads(ls(paths, json=True))[1]["pinned_at"] is None
    with pytest.raises(KvchatError, match="no chat"):
        change(paths, run_pin, "nothing like it")


def test_restore_of_what_is_not_in_the_trash(paths: Paths) -> None:
    fill(paths)
    with pytest.raises(KvchatError, match="trash is empty"):
        change(paths, run_restore, "Older")
    change(paths, run_rm, "Older")
    with pytest.raises(KvchatError) as caught:
        change(paths, run_restore, "Oldr")
    assert "did you mean 01C0 (Older)?" in caught.value.hint
