"""Nothing uses the network unless a model is fetched or a remote was chosen: every attempt to connect, in the program
and in its engine process, is recorded and refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KVCHAT = [sys.executable, "-m", "kvchat"]
# Python reads it at the start of every process that has the folder in its path, the engine's too.
CUSTOMIZE = """
import os, socket
def refuse(self, address, *rest):
    if self.family == socket.AF_UNIX:
        return real[0](self, address, *rest)
    with open(os.environ["ATTEMPTS"], "a") as file:
        print(os.getpid(), address, file=file)
    raise OSError(101, "Network is unreachable")
def resolve(*words, **more):
    with open(os.environ["ATTEMPTS"], "a") as file:
        print(os.getpid(), words, file=file)
    raise socket.gaierror(-3, "Temporary failure in name resolution")
real = [socket.socket.connect]
socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = socket.gethostbyname = resolve
with open(os.environ["ATTEMPTS"] + ".watched", "a") as file:
    print(os.getpid(), file=file)
"""


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of attempts."""
    (tmp_path / "sitecustomize.py").write_text(CUSTOMIZE)
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), before))))
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    return tmp_path / "attempts"


def watched(attempts: Path) -> int:
    return len(set(attempts.with_name("attempts.watched").read_text().split()))


def run(*words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KVCHAT, *words], capture_output=True, text=True, check=False, timeout=180, input=lines)


@pytest.mark.usefixtures("smollm2")
def test_ask_and_its_engine(attempts: Path) -> None:
    answered = run("ask", "Hi.", "-n", "4")
    assert answered.returncode == 0, answered.stderr
    assert watched(attempts) >= 2  # the program and at least one engine
    assert not attempts.exists(), attempts.read_text()


@pytest.mark.parametrize(
    "words",
    [("models", "ls"), ("models", "scan"), ("models", "pull"), ("chats", "ls"), ("kv", "ls"), ("paths",), ("doctor",)],
    ids=" ".join,
)
def test_commands_that_look(attempts: Path, words: tuple[str, ...]) -> None:
    run(*words)
    assert watched(attempts) >= 1
    assert not attempts.exists(), attempts.read_text()


def test_the_attempts_are_seen(attempts: Path) -> None:
    """Or this file would prove nothing."""
    assert run("models", "pull", "http://192.0.2.1/x.gguf").returncode == 1
    assert attempts.exists()
