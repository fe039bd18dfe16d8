"""`chats rm --purge` with the real engine: no word and no token of the chat is left in any file, and what another chat
shares with it is still reused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from traces import traces

KVCHAT = [sys.executable, "-m", "kvchat"]
MARKER = "zanzibarquokka"
SYSTEM = "You keep to the rules. " + " ".join(f"Rule {i}: be kind to thing number {i}." for i in range(20))
SECRET = f"My word is {MARKER}. " + " ".join(f"It likes thing {i * 7919}." for i in range(40))


def kvchat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KVCHAT, *arguments], capture_output=True, text=True, check=False, timeout=180, stdin=subprocess.DEVNULL
    )


def ask(*arguments: str) -> dict:
    answered = kvchat("ask", *arguments, "-s", SYSTEM, "-n", "8", "--temp", "0", "--json")
    assert answered.returncode == 0, answered.stderr
    return json.loads(answered.stdout)


def packed_ids(home: Path, chat: str) -> bytes:
    """As pages and index have them."""
    with closing(sqlite3.connect(home / "chats.db")) as connection:
        found = connection.execute(
            "SELECT i.ids FROM message_ids i JOIN messages m ON m.id = i.message WHERE m.chat = ? ORDER BY m.number",
            (chat,),
        )
        return b"".join(blob for (blob,) in found)


def own_runs(ids: bytes, others: bytes) -> list[bytes]:
    """Four tokens in a row, at many places, but those that the other chat has too."""
    runs = [ids[at : at + 16] for at in range(0, len(ids) - 15, 16)]
    return [run for run in runs if run not in others]


@pytest.mark.usefixtures("smollm2")
def test_nothing_of_it_is_left(home: Path) -> None:
    other = ask("What is rule 1?")
    secret = ask(SECRET)
    assert secret["prompt"]["from"]["pages"] > 0  # the system prompt, of the other chat
    ids = own_runs(packed_ids(home, secret["chat"]), packed_ids(home, other["chat"]))
    assert len(ids) > 50
    assert traces([home], [MARKER])
    assert traces([home / "kv"], ids)
    asked = kvchat("chats", "rm", "--purge", secret["chat"])
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    purged = kvchat("chats", "rm", "--purge", secret["chat"], "--yes", "--json")
    assert purged.returncode == 0, purged.stderr
    assert json.loads(purged.stdout)["kv_pages"] > 0
    assert traces([home], [MARKER, *ids]) == set()
    after = ask("And rule 2?", "--chat", other["chat"])
    assert after["prompt"]["cut"] is None
    assert after["prompt"]["reused"] >= other["prompt"]["tokens"] - 1
    (verified,) = json.loads(kvchat("kv", "verify", "--json").stdout)
    assert verified["damaged"] == 0
