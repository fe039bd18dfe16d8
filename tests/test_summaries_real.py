"""Summaries with the real model, in processes of their own: a full context goes on, and the old pages stay of use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvchat.chats.store import ChatStore
from kvchat.paths import Paths

pytestmark = pytest.mark.usefixtures("smollm2")
ITEMS = " ".join(f"Item {number} is red." for number in range(14))


def ask(*arguments: str, most: int = 24) -> dict[str, Any]:
    command = [sys.executable, "-m", "kvchat", "ask", "--temp", "0", "-n", str(most), "--ctx-size", "512", "-t", "1"]
    done = subprocess.run(
        [*command, "--draft", "off", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_full_context_goes_on_the_next_turn_computes_what_is_new_and_undo_finds_the_old_pages(home: Path) -> None:
    first = ask("My name is Ada. " + ITEMS)
    told = first
    for number in range(1, 3):
        told = ask("-c", f"Part {number}. {ITEMS}")
    past = told["cache"]["cells"]
    full = ask("-c", "--overflow", "summarize", f"And the rest: {ITEMS}", most=100)
    assert full["overflow"]["policy"] == "summarize"
    summary = full["overflow"]["summaries"][0]
    assert summary["messages"] >= 2
    assert 0 < summary["tokens_after"] < summary["tokens_before"]
    assert summary["text"].strip()
    assert full["cache"]["cells"] < 512
    assert full["prompt"]["cut"] == "summary"
    then = ask("-c", "Well?", most=4)
    assert then["prompt"]["cut"] is None
    assert then["prompt"]["computed"] < 24  # the question and its turns
    assert then["prompt"]["from"]["pages"] == then["prompt"]["tokens"] - then["prompt"]["computed"]
    store = ChatStore(Paths.find({"KVCHAT_HOME": str(home)}).chats_db)
    try:
        chat = store.get(full["chat"])
        messages = store.path(chat.head)
        assert len(messages) == 10  # nothing is gone from the chat
        for each in store.branch(chat.id, chat.head).summaries:
            store.remove_summary(each.id)
        store.show(chat.id, messages[5].id)
        store.delete_message(messages[6])  # without the question that did not fit
    finally:
        store.close()
    again = ask("-c", "Well?", most=4)
    assert again["prompt"]["from"]["pages"] >= past - 1
    assert again["prompt"]["cut"] is None
