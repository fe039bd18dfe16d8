"""`kvchat ask` with drafts, as a program on real engines: the same answers, what is told of them, what comes back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import tiny

# Batches of other shapes compute the same here (LLAMA_FACTS 0.11), so answers are equal to the letter.
EXACT = ("-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on", "-t", "1", "--temp", "0", "-n", "24")
NOTHING = {"kind": "off", "proposed": 0, "accepted": 0, "steps": 0, "seconds": 0.0, "speedup": 0.0, "note": None}


QUESTION = "Count from one to ten in words."


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvchat", "ask", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input="")


def ask(*arguments: object) -> dict[str, Any]:
    done = run("--json", *EXACT, *arguments)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_draft_model(home: Path, smollm2: Path, tmp_path: Path) -> None:
    """The model itself drafts for itself, so nearly all of its drafts stand; the answer is the one without."""
    draft = tmp_path / "copy.gguf"
    draft.symlink_to(smollm2)
    lines = "\n".join(["/draft off", QUESTION, "/new", f"/draft {draft}", "/draft model", QUESTION, "/draft"])
    done = subprocess.run(
        [sys.executable, "-m", "kvchat", "--plain", "-m", str(smollm2), *EXACT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        input=lines,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    told = [place for place, line in enumerate(said) if line.startswith(("draft ", "A new chat"))]
    plain, drafted = said[told[0] + 1 : told[1]], said[told[2] + 1 : told[3]]
    assert plain == drafted != []
    assert said[-1] == "draft model: the draft model alone; draft model: copy"
    first, second = (line for line in done.stderr.splitlines() if line.startswith("prompt "))
    assert "drafts" not in first
    found = re.search(r"drafts (\d+) of (\d+) \(draft model\)", second)
    assert found is not None, second
    assert int(found[2]) / 2 < int(found[1]) <= int(found[2])


def test_a_lookup(home: Path, tmp_path: Path) -> None:
    path, words = tiny.build("llama", tmp_path, weights="q4_1"), "Letters, reports and the like. " * 4
    plain, lookup = (ask("-m", path, "--draft", mode, words) for mode in ("off", "ngram"))
    assert plain["draft"] == NOTHING
    assert (lookup["text"], lookup["draft"]["kind"]) == (plain["text"], "ngram")
    assert lookup["draft"]["proposed"] >= lookup["draft"]["accepted"]


def test_what_cannot_draft_is_left_out_and_told(home: Path, smollm2: Path, tmp_path: Path) -> None:
    """The vocabularies differ, which is found when both are loaded; the question is answered all the same."""
    done = run(*EXACT, "-m", tiny.build("llama", tmp_path), "-md", smollm2, "Hello.")
    assert done.returncode == 0
    assert "note: draft model" in done.stderr
    assert "vocabular" in done.stderr
