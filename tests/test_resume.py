"""`kvchat ask` in processes of its own, with the real model: what is computed, what is restored, what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = 128
TOKEN_BYTES = 23040  # SmolLM2-135M, f16: 30 layers, 3 KV heads of 64, K and V, 2 bytes
SYSTEM = "You are brief. " + " ".join(f"Rule {i}: never speak of thing {i}." for i in range(60))  # over 600 tokens

pytestmark = pytest.mark.usefixtures("smollm2")


def kvchat(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "kvchat", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(*arguments: str) -> dict[str, Any]:
    return kvchat("ask", "--temp", "0", "-n", "12", *arguments)


def test_the_second_process_computes_only_its_own_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many threads as a person gets who asks for none."""
    monkeypatch.delenv("KVCHAT_THREADS")
    first = ask("Name three colours.")
    assert first["prompt"]["reused"] == 0
    assert first["finish"] == "length"
    second = ask("-c", "And three animals.")
    assert second["chat"] == first["chat"]
    # the past: the first prompt and its reply; the reply's last token was sampled and never decoded
    past = first["prompt"]["tokens"] + first["decode"]["tokens"]
    assert second["prompt"]["computed"] == second["prompt"]["tokens"] - past + 1
    assert second["prompt"]["from"] == {"resident": 0, "shared": 0, "pages": past - 1, "checkpoint": 0}
    assert second["prompt"]["cut"] is None
    assert second["cache"]["bytes"] == second["cache"]["cells"] * TOKEN_BYTES
    nothing = ask("-c", "And three trees.", "--no-kv")
    assert nothing["prompt"]["computed"] == nothing["prompt"]["tokens"]
    assert nothing["prompt"]["cut"] == "no-kv"
    assert nothing["saved"]["pages"] == 0


def test_two_chats_share_the_pages_of_their_system_prompt(home: Path) -> None:
    first = ask("-s", SYSTEM, "Name three colours.")
    before = kvchat("kv", "ls")
    assert [(chain["start"], chain["parent"]) for chain in before] == [(0, None)]
    second = ask("-s", SYSTEM, "Which animals fly?")
    assert second["chat"] != first["chat"]
    shared = second["prompt"]["from"]["pages"]
    assert shared >= 600
    assert second["prompt"]["computed"] < 20
    chains = kvchat("kv", "ls")
    (root,) = [chain for chain in chains if chain["parent"] is None]
    assert root["tokens"] == shared // PAGE * PAGE
    assert root["pages"] == shared // PAGE
    assert root["hits"] == 1
    assert sorted(chain["start"] for chain in chains) == [0, root["tokens"], root["tokens"]]
    files = [path.stat().st_size for path in home.glob("kv/pages/*/*/*") if len(path.name) == 64]
    assert sum(chain["bytes"] for chain in chains) == sum(files)
    tokens = root["tokens"] + sum(answer["cache"]["cells"] - root["tokens"] for answer in (first, second))
    assert sum(chain["tokens"] for chain in chains) == tokens
    assert sum(files) < tokens * TOKEN_BYTES * 1.01


def test_another_cache_type_is_made_of_what_is_kept_and_both_are_kept() -> None:
    first = ask("Name three colours.")
    quantized = ask("-c", "And three animals.", "-ctk", "q8_0", "-ctv", "q8_0")
    made = quantized["prompt"]
    assert (made["cut"], made["transcoded"]) == (None, "f16")
    assert made["reused"] == made["from"]["pages"] == made["transcoded_tokens"] == first["cache"]["cells"]
    back = ask("-c", "And three trees.")
    assert back["prompt"]["from"]["pages"] > 0
    assert {(chain["type_k"], chain["type_v"]) for chain in kvchat("kv", "ls")} == {("f16", "f16"), ("q8_0", "q8_0")}
