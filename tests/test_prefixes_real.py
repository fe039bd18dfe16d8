"""A pinned prefix with the real model, in processes of their own: pinned once, of use to a new chat at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TOKEN_BYTES = 23040  # SmolLM2-135M, f16: 30 layers, 3 KV heads of 64, K and V, 2 bytes
LINES = [f"Rule {i}: hive number {i} is painted in colour {i * 7 % 13} and has {i * 3} frames." for i in range(80)]
PROGRAM = [sys.executable, "-m", "kvchat"]

pytestmark = pytest.mark.usefixtures("smollm2")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=240, stdin=subprocess.DEVNULL
    )


def told(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = told("ask", "--temp", "0", "-n", "4", "-t", "1", *arguments)
    return answer


@pytest.fixture
def document(tmp_path: Path) -> str:
    file = tmp_path / "rules.md"
    file.write_text("\n".join(LINES))
    return str(file)


def test_a_new_chat_computes_only_what_follows(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "rules.md"
    file.write_text("\n".join(LINES[:30]))
    (made,) = told("kv", "pin", "--name", "brief", "--file", str(file), "--system", "You know the rules.", "-t", "1")
    tokens = made["tokens"]
    assert (made["computed"], made["missing"], made["state"]) == (tokens, 0, "pinned")
    assert tokens > 5 * 128  # pages
    files = [file.stat().st_size for file in home.glob("kv/pages/*/*/*") if len(file.name) == 64]
    assert made["bytes"] == sum(files) == pytest.approx(tokens * TOKEN_BYTES, rel=0.01)

    first = ask("--prefix", "brief", "What colour is hive 7?")
    assert first["prefix"] == "brief"
    assert first["prompt"]["from"]["pages"] == first["prompt"]["reused"] == tokens
    assert first["prompt"]["computed"] == first["prompt"]["tokens"] - tokens
    second = ask("--prefix", "BRIEF", "And 8?")
    assert second["chat"] != first["chat"]
    assert second["prompt"]["computed"] <= second["prompt"]["tokens"] - tokens
    assert ask("-c", "Why?")["prefix"] == "brief"

    (pinned,) = [each for each in told("kv", "ls") if "prefix" in each]
    assert (pinned["uses"], pinned["chats"]) == (2, 2)
    assert pinned["seconds_saved"] == pytest.approx(2 * made["seconds"])


def test_each_cache_type_is_computed_for_itself() -> None:
    told("kv", "pin", "--name", "brief", "--system", " ".join(LINES[:12]), "-t", "1")
    types = "-ctk", "q4_0", "-ctv", "q4_0"
    other = run("ask", "--prefix", "brief", *types, "-n", "2", "-t", "1", "Hi")
    assert other.returncode == 0
    assert "it is not computed for this cache type" in other.stderr
    (again,) = told("kv", "pin", "brief", *types, "-t", "1")
    assert (again["computed"], again["type_k"]) == (0, "q4_0")  # that chat had read it
    third = ask("--prefix", "brief", *types, "And 9?")
    assert (third["prompt"]["reused"], third["prompt"]["transcoded"]) == (again["tokens"], None)
    pins = [each for each in told("kv", "ls") if "prefix" in each]
    states = [(each["type_k"], each["state"], each["uses"]) for each in pins]
    assert states == [("f16", "pinned", 1), ("q4_0", "pinned", 1)]
    told("kv", "unpin", "brief")
    assert not any("prefix" in each for each in told("kv", "ls"))
    assert ask("-c", "And so?")["prefix"] is None


def test_one_that_is_broken_off_leaves_no_prefix(document: str) -> None:
    command = [*PROGRAM, "kv", "pin", "--name", "brief", "--file", document, "-t", "1"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    home = Path(os.environ["KVCHAT_HOME"])
    deadline = time.monotonic() + 120
    while not list(home.glob("kv/pages/*/*/*")):  # it is being computed
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not any("prefix" in each for each in told("kv", "ls"))
    assert list(home.glob("kv/pins/*")) == []
