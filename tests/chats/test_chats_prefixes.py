"""Prefixes on disk: names, what was computed of them, chats that are on one, how often it was of use."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kvchat.chats.prefixes import Computation, Document, Prefix, proper_name
from kvchat.chats.schema import MIGRATIONS, connect
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.errors import KvchatError

BRIEF = Prefix("01P", "brief", "Be brief.", (Document("a.md", "```a\nA\n```"), Document("b", "```b\nB\n```")), 5.0, 7.0)
F16 = Computation("f" * 32, "f16", "f16", "0" * 16, "Tiny", "/m/tiny.gguf", 200, 4096, 4.0, 9.0, b"k" * 32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(tmp_path / "chats.db")) as opened:
        yield opened


def add_chat(store: ChatStore, name: str, prefix: str | None, system: str = BRIEF.text) -> Chat:
    chat = Chat(name, "title", 1.0, 1.0, system, 7.0, "", None, prefix=prefix)
    store.add_turn(chat, [Message(f"{name}m", name, None, "user", "words", 1.0, "")])
    return chat


def test_the_text_is_the_system_prompt_and_the_documents_behind_it() -> None:
    assert BRIEF.text == "Be brief.\n\n```a\nA\n```\n\n```b\nB\n```"
    assert replace(BRIEF, system="").text == "```a\nA\n```\n\n```b\nB\n```"
    assert replace(BRIEF, documents=()).text == "Be brief."


def test_a_prefix_is_read_as_it_was_written(store: ChatStore) -> None:
    store.prefixes.put(BRIEF)
    assert store.prefixes.all() == (BRIEF,)
    assert store.prefixes.get("01P") == store.prefixes.find("BRIEF") == BRIEF
    assert (store.prefixes.get("01Q"), store.prefixes.named("other")) == (None, None)


def test_a_name_is_unique_but_for_case_and_the_next_one_takes_its_place(store: ChatStore) -> None:
    store.prefixes.put(BRIEF)
    store.prefixes.computed("01P", F16)
    add_chat(store, "c", "01P")
    store.prefixes.put(replace(BRIEF, id="01Q", name="Brief", system="Be long."))
    (found,) = store.prefixes.all()
    assert (found.id, found.name, found.system, found.computations, found.chats) == ("01Q", "Brief", "Be long.", (), 0)
    chat = store.get("c")
    assert (chat.prefix, chat.system) == (None, BRIEF.text)


def test_another_name_is_answered_with_the_nearest(store: ChatStore) -> None:
    store.prefixes.put(BRIEF)
    with pytest.raises(KvchatError) as caught:
        store.prefixes.find("breif")
    assert caught.value.hint == "did you mean brief?"


@pytest.mark.parametrize("name", ["", " ", "-x", "a/b", "a\x1b[2J", "x" * 61, "é" * 61, ".hidden", "a\u202eb"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(KvchatError, match="cannot be called"):
        proper_name(name)


def test_names_that_can_be() -> None:
    assert proper_name("  my   brief 2.0 ") == "my brief 2.0"
    assert proper_name("e\u0301te") == "\u00e9te"
    assert len(proper_name("x" * 60)) == 60


def test_computations_are_kept_by_model_and_types(store: ChatStore) -> None:
    store.prefixes.put(BRIEF)
    q8 = replace(F16, type_k="q8_0", type_v="q8_0", namespace="1" * 16, computed_at=10.0)
    again = replace(F16, namespace="2" * 16, tokens=201, computed_at=11.0)  # another version of llama.cpp
    for each in (F16, q8, again):
        store.prefixes.computed("01P", each)
    found = store.prefixes.find("brief")
    assert found.computations == (q8, again)
    assert found.of_model("f" * 32, "f16", "f16") == again
    assert found.of_model("f" * 32, "f16", "q8_0") is None
    store.prefixes.computed("gone", F16)
    assert len(store.prefixes.all()) == 1


def test_uses_and_the_seconds_that_they_saved(store: ChatStore) -> None:
    """Computing 200 tokens took 4 seconds: all of them save 4, half of them 2, more than there are no more than 4. What
    was reused with types for which it is not computed was not the prefix's."""
    store.prefixes.put(BRIEF)
    store.prefixes.computed("01P", F16)
    key = ("f" * 32, "f16", "f16")
    for reused in (200, 100, 900):
        store.prefixes.used("01P", reused, *key)
    store.prefixes.used("01P", 200, "f" * 32, "q8_0", "q8_0")
    found = store.prefixes.find("brief")
    assert (found.uses, found.seconds_saved) == (3, pytest.approx(10.0))


def test_chats_on_it_are_counted(store: ChatStore) -> None:
    store.prefixes.put(BRIEF)
    for name in "abc":
        add_chat(store, name, "01P")
    add_chat(store, "d", None)
    store.trash("b")
    copy = store.duplicate("a")
    assert store.get(copy.id).prefix == "01P"
    assert store.prefixes.find("brief").chats == 3
    store.prefixes.remove("01P")
    assert store.prefixes.all() == ()
    assert (store.get("a").prefix, store.get("a").system) == (None, BRIEF.text)


def test_a_chat_with_another_system_prompt_is_not_on_it_any_more(store: ChatStore) -> None:
    store.prefixes.put(BRIEF)
    add_chat(store, "a", "01P")
    store.set_system("a", BRIEF.text)
    assert store.get("a").prefix == "01P"
    store.set_system("a", "Another.")
    assert (store.get("a").prefix, store.get("a").system) == (None, "Another.")
    chat = add_chat(store, "b", "01P")
    store.reopen(replace(chat, system="Another.", prefix=None), "bm")
    assert store.get("b").prefix is None


def test_a_prefix_that_is_gone_when_its_chat_is_written_is_none(store: ChatStore) -> None:
    add_chat(store, "a", "01P")
    assert store.get("a").prefix is None


def test_a_file_from_before_prefixes_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(connect(path, MIGRATIONS[:5])) as fifth:
        fifth.execute(
            """INSERT INTO chats (id, title, created, updated, system, clock, model, settings)
            VALUES ('c', 'title', 1, 1, 'Be kind.', 1, '', '{}')"""
        )
    with closing(ChatStore(path)) as store:
        chat = store.get("c")
        assert (chat.system, chat.prefix) == ("Be kind.", None)
        store.prefixes.put(BRIEF)
        assert store.prefixes.find("brief") == BRIEF
    assert (tmp_path / "chats.db.v5.backup").exists()


@pytest.mark.parametrize("value", ["NULL", "x'00ff'", "'['", "'[1]'", "'{}'", "7", "'" + "[" * 2000 + "'"])
@pytest.mark.parametrize("column", ["documents", "created", "clock", "uses", "seconds_saved", "system"])
def test_rows_of_anything_can_be_read(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "chats.db"
    with closing(ChatStore(path)) as store:
        store.prefixes.put(BRIEF)
        store.prefixes.computed("01P", F16)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE OR IGNORE prefixes SET {column} = {value}")
        connection.execute("UPDATE prefix_computations SET tokens = 'x', bytes = -3, last_key = 'y'")
        connection.commit()
    with closing(ChatStore(path)) as store:
        (found,) = store.prefixes.all()
        assert (found.name, found.computations[0].tokens, found.computations[0].size) == ("brief", 0, 0)
        assert isinstance(found.text, str)
