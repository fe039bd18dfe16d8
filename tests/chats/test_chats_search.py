"""Search as you type: words, beginnings, scripts without spaces, symbols, and queries that mean harm."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message, SearchHit


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    with closing(ChatStore(tmp_path / "chats.db")) as opened:
        yield opened


def add(store: ChatStore, name: str, text: str, answer: str = "", title: str = "A title", updated: float = 1.0) -> None:
    chat = Chat(name, title, 1.0, updated, "", 1.0, "", None)
    question = Message(f"{name}-u", name, None, "user", text, 1.0, "")
    store.add_turn(chat, [question, Message(f"{name}-r", name, question.id, "assistant", answer, 1.0, "stop")])


def found(store: ChatStore, query: str) -> set[str]:
    return {hit.message for hit in store.search(query)}


TEXTS = {
    "zh": "请解释一下注意力机制是怎么工作的。",
    "ja": "今日は天気がいいから、トークンのキャッシュを説明してください。",
    "ko": "키밸류캐시를 한국어로 설명해 주세요",
    "th": "อธิบายการทำงานของหน่วยความจำ",
    "en": "Explain the KV-cache of a Transformer: café, naïve, STRASSE 100% of snake_case a\\b",
    "mix": "Was ist 注意力 in PyTorch? 🙂 C++ -> Rust",
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # every beginning of what is typed, in the middle of a run without spaces
        ("注", {"zh", "mix"}),
        ("注意", {"zh", "mix"}),
        ("注意力", {"zh", "mix"}),
        ("注意力机", {"zh"}),
        ("注意力机制是", {"zh"}),
        ("天気", {"ja"}),
        ("キャッシュ", {"ja"}),
        ("ッシュを説", {"ja"}),
        ("캐시", {"ko"}),
        ("한국어", {"ko"}),  # without its particle
        ("ความจำ", {"th"}),
        # all words must be there, whatever their script
        ("注意力 pytorch", {"mix"}),
        ("pytorch 注意力", {"mix"}),
        ("注意力 机制", {"zh"}),
        ("注意力 tensorflow", set()),
        ("天気 注意力", set()),
        ("pyt 注意力", set()),  # only the last word may be a beginning
        ("注意力 pyt", {"mix"}),
        # letters: words and beginnings, without case and accents
        ("e", {"en"}),
        ("transf", {"en"}),
        ("CAFE", {"en"}),
        ("naive", {"en"}),
        ("former", set()),  # no end of a word
        ("explain cache", {"en"}),
        ("kv-cache", {"en"}),
        # what the tokenizer takes for no word at all
        ("🙂", {"mix"}),
        ("->", {"mix"}),
        ("%", {"en"}),
        ("\\", {"en"}),
        ("_", {"en"}),
        ("%%", set()),
        ("✓", set()),
    ],
)
def test_what_is_found(store: ChatStore, query: str, expected: set[str]) -> None:
    for name, text in TEXTS.items():
        add(store, name, text, title="0")
    assert found(store, query) == {f"{name}-u" for name in expected}


def test_snippets_show_the_match(store: ChatStore) -> None:
    add(store, "zh", "开头" * 100 + "注意力" + "结尾" * 100)
    add(store, "en", "before " * 100 + "attention" + " after" * 100)
    for query, word in (("注意力", "注意力"), ("atten", "attention")):
        (hit,) = store.search(query)
        assert word in hit.snippet
        assert len(hit.snippet) < 200 and hit.snippet.startswith("…") and hit.snippet.endswith("…")


def test_titles_come_first(store: ChatStore) -> None:
    add(store, "a", "about gravity", title="Physics", updated=3.0)
    add(store, "b", "hello", title="GRAVITY and more", updated=2.0)
    add(store, "c", "hello", title="Über gravity", updated=1.0)
    hits = store.search("gravity")
    assert hits[:2] == (SearchHit("b", "b-r", "GRAVITY and more", ""), SearchHit("c", "c-r", "Über gravity", ""))
    assert [hit.message for hit in hits[2:]] == ["a-u"]
    assert [hit.chat for hit in store.search("über grav")] == ["c"]
    assert len(store.search("gravity", most=1)) == 1
    store.rename("b", "Something else")
    assert [hit.chat for hit in store.search("gravity")] == ["c", "a"]


@pytest.mark.parametrize("per_chat", [False, True])
@pytest.mark.parametrize("query", ["gravity", "重力"])
def test_a_chat_whose_title_and_text_match_is_there_once(store: ChatStore, query: str, per_chat: bool) -> None:
    """What was found in its text stands where its title puts it."""
    add(store, "a", f"{query} of the moon", title="Physics", updated=2.0)
    add(store, "b", f"more {query}", title=f"About {query}", updated=1.0)
    hits = store.search(query, per_chat=per_chat)
    assert [(hit.chat, hit.message) for hit in hits] == [("b", "b-u"), ("a", "a-u")]
    assert all(query in hit.snippet for hit in hits)


@pytest.mark.parametrize("query", ["words", "語"])
def test_what_is_deleted_is_not_found_until_it_is_back(store: ChatStore, query: str) -> None:
    add(store, "c", "my words 日本語", answer="their words 日本語")
    assert found(store, query) == {"c-u", "c-r"}
    answer = store.path("c-r")[1]
    at, _ = store.delete_message(answer)
    assert found(store, query) == {"c-u"}
    store.undelete("c", at, answer.id)
    assert found(store, query) == {"c-u", "c-r"}
    store.trash("c")
    assert found(store, query) == set()
    store.restore("c")
    assert found(store, query) == {"c-u", "c-r"}
    store.update_partial("c-r", "another text", "m")
    assert found(store, query) == {"c-u"}
    store._connection.execute("INSERT INTO message_text (message_text) VALUES ('integrity-check')")


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '"注',
        "注*",
        "'; DROP TABLE messages; --注",
        "注 OR hello",
        "注\0hello",
        "\\",
        "\\%",
        "%' OR 1=1 --注",
        "注" * 100_000,
        "注 " * 5000,
        "% " * 5000,
        "\ud800注",
        "\ud800",
        "\u202e",
        "a\u0301",
        "\U0010ffff",
    ],
)
def test_hostile_queries(store: ChatStore, query: str) -> None:
    add(store, "c", "hello world")
    assert store.search(query) == ()
    assert found(store, "hello") == {"c-u"}


def test_no_more_than_asked_for(store: ChatStore) -> None:
    for number in range(60):
        add(store, f"c{number:02}", "hello 日本")
    assert len(store.search("hello")) == 50
    assert len(store.search("hello", most=3)) == 3
    assert [hit.message for hit in store.search("日本", most=2)] == ["c59-u", "c58-u"]  # the newest first


@pytest.mark.parametrize("query", ["hello", "日本", "hello 日本"])
def test_one_message_of_each_chat(store: ChatStore, query: str) -> None:
    """A chat full of hits does not hide the others."""
    add(store, "quiet", "once: hello 日本 " + "and something else " * 50, title="Quiet")
    for number in range(20):
        question = Message(f"{number}", "loud", None, "user", "hello 日本", 1.0, "")
        store.add_turn(Chat("loud", "Loud", 1.0, 1.0, "", 1.0, "", None), [question])
    assert len(store.search(query)) == 21
    assert {hit.chat for hit in store.search(query, most=2)} == {"loud"}
    hits = store.search(query, most=2, per_chat=True)
    assert [hit.chat for hit in hits] == ["loud", "quiet"]
    assert all(query[:2] in hit.snippet for hit in hits)


def test_a_commit_of_a_long_reply_indexes_it_once(store: ChatStore) -> None:
    """What a streamed reply writes each time does not grow with how often it was written."""
    add(store, "c", "hello")
    text = "".join(f"word{number} 日本語 " for number in range(2000))
    connection = store._connection
    store.update_partial("c-r", text, "m")
    connection.execute("INSERT INTO message_text (message_text) VALUES ('optimize')")
    first = _index_bytes(connection)
    for _ in range(20):
        store.update_partial("c-r", text, "m")
    connection.execute("INSERT INTO message_text (message_text) VALUES ('optimize')")
    assert _index_bytes(connection) <= 1.1 * first


def _index_bytes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT sum(length(block)) FROM message_text_data").fetchone()[0])
