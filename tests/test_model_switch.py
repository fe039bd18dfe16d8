"""A chat goes on with another model and comes back, in processes of its own: its text goes along, and each model finds
the KV that it computed itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny


def kvchat(*arguments: object) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "kvchat", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(model: Path, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = kvchat("ask", "-m", model, "-t", 1, "--temp", 0, "-n", 8, *words)
    return answer


@pytest.fixture(params=["gemma3", "zoo"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model with another vocabulary and another template, and one of 512 tokens."""
    found: Path = request.getfixturevalue("gemma3") if request.param == "gemma3" else tiny.build("qwen3", tmp_path)
    return found


def known(answer: dict[str, Any]) -> int:
    """Tokens whose KV the turn leaves: all of the prompt and the reply but the token that was sampled last."""
    return int(answer["prompt"]["tokens"] + answer["decode"]["tokens"] - 1)


def test_another_model_and_back(smollm2: Path, other: Path) -> None:
    """What neither has seen is read, and nothing else: in the third turn what the other model said, in the fourth what
    the first one did. The text of all turns is there, with the name of who wrote it."""
    first = ask(smollm2, "Name three colours.")
    second = ask(other, "-c", "And three animals.")
    assert second["chat"] == first["chat"]
    assert (second["prompt"]["reused"], second["prompt"]["computed"]) == (0, second["prompt"]["tokens"])
    third = ask(smollm2, "-c", "And three trees.")
    assert third["prompt"]["from"] == {"resident": 0, "shared": 0, "pages": known(first), "checkpoint": 0}
    assert third["prompt"]["computed"] == third["prompt"]["tokens"] - known(first)
    fourth = ask(other, "-c", "And three cities.")
    assert fourth["prompt"]["from"]["pages"] == known(second)
    assert fourth["prompt"]["computed"] == fourth["prompt"]["tokens"] - known(second)
    messages = kvchat("chats", "show", first["chat"])
    assert [message["text"] for message in messages] == [
        "Name three colours.",
        first["text"],
        "And three animals.",
        second["text"],
        "And three trees.",
        third["text"],
        "And three cities.",
        fourth["text"],
    ]
    writers = [message["model"] for message in messages if message["role"] == "assistant"]
    assert writers == [answer["model"]["name"] for answer in (first, second, third, fourth)]
    assert {chain["model"] for chain in kvchat("kv", "ls")} == set(writers)
