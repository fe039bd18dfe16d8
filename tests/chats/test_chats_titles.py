"""How a chat is called after its first message: the first sentence as plain text; and who gave a title."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from wcwidth import wcswidth

from kvchat.chats.resolve import TITLE_CELLS, title_of
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("\n  \n  Second   line \twith gaps\nthird", "Second line with gaps"),
        # the first sentence
        ("What is 2+2? Answer briefly.", "What is 2+2?"),
        ("Explain the KV cache.", "Explain the KV cache"),
        ("Hi! Can you help me with Rust?", "Hi! Can you help me with Rust?"),  # a greeting says nothing
        ("See e.g. the docs. Then go.", "See e.g. the docs"),
        ("Why is v1.2 slower than v1.1? I measured both.", "Why is v1.2 slower than v1.1?"),
        ("Wait for it... What is this?", "Wait for it..."),
        ("注意力机制是什么？请解释一下。", "注意力机制是什么？"),
        ("请解释注意力机制。谢谢", "请解释注意力机制"),
        # marks of Markdown
        ("# **Explain** the `KV cache`\n\nmore", "Explain the KV cache"),
        ("> - [x] _done_ and ~~not~~", "done and not"),
        ("1. first\n2. second", "first"),
        ("[a link](https://example.com) and ![a picture](p.png)", "a link and a picture"),
        ("---\nAfter a rule", "After a rule"),
        # what only looks like a mark
        ("snake_case_name stays, 2*3*4 = 24", "snake_case_name stays, 2*3*4 = 24"),
        ("Use __init__ here", "Use __init__ here"),
        ("array[0] and <b>", "array[0] and <b>"),
        ("-5 degrees", "-5 degrees"),
        # fences
        ("```python\nprint(1)\n```\nWhy does this fail?", "Why does this fail?"),
        ("~~~~\n```\n~~~\n~~~~\nA question", "A question"),
        ("```\nonly code\n```", "only code"),
        ("```\nnever closed", "never closed"),
        ("```\n" + "code\n" * 100_000 + "```\nBehind a long file", "Behind a long file"),
        # hostile, empty, long
        ("\u202eevil\x1b[2J", "evil␛[2J"),  # no overrides, no escapes
        ("\u200b\n\u200b", "Untitled"),  # nothing to see
        ("```\n```", "Untitled"),
        ("x" * 60, "x" * 60),
        ("y" * 61, "y" * 59 + "…"),
        ("键" * 30, "键" * 30),
        ("键" * 31, "键" * 29 + "…"),  # two cells each
        ("👩\u200d💻" * 31, "👩\u200d💻" * 29 + "…"),  # never half of one
    ],
)
def test_title(text: str, title: str) -> None:
    assert title_of(text) == title
    assert wcswidth(title) <= TITLE_CELLS


def test_a_title_that_a_person_gave_is_not_replaced(tmp_path: Path) -> None:
    with closing(ChatStore(tmp_path / "chats.db")) as store:
        chat = Chat("c", "Made of the message", 1.0, 1.0, "", 1.0, "", None)
        store.add_turn(chat, [Message("m", "c", None, "user", "hello", 1.0, "")])
        assert store.get("c").title_by == "message"
        store.name_by_model("c", "Found by the model")
        assert (store.get("c").title, store.get("c").title_by) == ("Found by the model", "model")
        store.name_by_model("c", "Found again")
        assert store.get("c").title == "Found again"
        store.rename("c", "Mine")
        store.name_by_model("c", "Not mine")
        assert (store.get("c").title, store.get("c").title_by) == ("Mine", "person")
