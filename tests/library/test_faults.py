"""The zoo of faults against the commands that open models: a clear error each, in bounded memory, and little is read.

What is bounded is what takes the time: bytes that are read. The slowest ones read a quarter of a gigabyte.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_faults import FAULTS

PROBE = Path(__file__).with_name("faults_probe.py")
MOST_READ = 300 << 20
# Only a scan tells of these: they do not stand in the list of models.
NOT_LISTED = {"only a vocabulary", "cyclic split: a link to itself", "cyclic split: a link back"}
NOT_LISTED |= {name for name in FAULTS if name.startswith("split: ")}
# Their headers can be read; what they say of the model is judged where a cache is built.
BY_THE_ENGINE = {
    "absurd number of blocks",
    "absurd heads",
    "absurd context",
    "negative number of blocks",
    "negative context",
    "negative width",
}
Answers = dict[tuple[str, str], tuple[int, str, int, int]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Answers:
    """What each command said of each fault: exit code, words, bytes read, engines started."""
    lines = []
    for number, (name, (make, _)) in enumerate(FAULTS.items()):
        folder = tmp_path_factory.mktemp(f"fault{number}")
        lines.append(json.dumps([name, str(make(folder))]))
    home = tmp_path_factory.mktemp("faults")
    done = subprocess.run(
        [sys.executable, PROBE, home],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={"KVCHAT_HOME": str(home), "HOME": str(home), "OLLAMA_MODELS": str(home / "none")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = map(json.loads, done.stdout.splitlines())
    return {(fault, command): tuple(rest) for fault, command, *rest in found}  # type: ignore[misc]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_clear_error(answers: Answers, fault: str) -> None:
    expected = FAULTS[fault][1]
    for command in ("show", "plan", "ask"):
        code, said, read, started = answers[fault, command]
        assert code == 1, (command, said)
        assert read < MOST_READ
        if command == "ask" and fault in BY_THE_ENGINE:
            continue
        assert expected in said, command
        assert said.startswith("error: ")
        assert "Traceback" not in said
        assert started == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_the_list_of_models_says_it_too(answers: Answers, fault: str) -> None:
    code, said, read, _ = answers[fault, "ls"]
    assert (code, read < 2 * MOST_READ) == (0, True)  # its beginning is read before all of it
    if fault not in NOT_LISTED:
        assert FAULTS[fault][1] in said


@pytest.mark.parametrize("fault", sorted(BY_THE_ENGINE))
def test_what_the_engine_says(home: Path, tmp_path: Path, fault: str) -> None:
    make, expected = FAULTS[fault]
    command = [sys.executable, "-m", "kvchat", "ask", "-m", make(tmp_path), "-t", "1", "Hello?"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, input="")
    assert (done.returncode, done.stdout) == (1, "")
    assert expected in done.stderr
