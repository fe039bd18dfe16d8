"""The prompt of the real app with the real model in tmux: tokens of chips, drafts after `kill -9`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if shutil.which("tmux") is None:
    pytest.skip("tmux is not installed", allow_module_level=True)

from test_tmux import Terminal, is_ready

TEXT = "\n".join(f"Line {number} of a text: naïve, 한국어, {number * 37}." for number in range(40))
COUNT = """
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], vocab_only=True, verbose=False)
print(len(model.tokenize(sys.stdin.read().encode(), add_bos=False, special=False)))
"""


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    terminal = Terminal(home)
    yield terminal
    terminal.close()


def tokens(model: Path, text: str) -> int:
    """What llama.cpp makes of a text."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(model)], input=text, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_chips_have_the_tokens_that_llama_cpp_counts_and_survive_a_kill(
    terminal: Terminal, home: Path, smollm2: Path
) -> None:
    terminal.open("-n", "8", "--temp", "0")
    terminal.until(is_ready)
    terminal.run("set-buffer", TEXT, ";", "paste-buffer", "-p")
    screen = terminal.until(lambda screen: re.search(r"40 lines · [\d,]+ tokens\]", screen) is not None)
    (shown,) = re.findall(r"40 lines · ([\d,]+) tokens\]", screen)
    assert int(shown.replace(",", "")) == tokens(smollm2, TEXT)

    terminal.keys("-l", " and more")
    terminal.until_text("and more")
    time.sleep(2)  # a crash may cost some seconds of typing
    app = int(Path(f"/proc/{terminal.engine()}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(app, signal.SIGKILL)
    terminal.until_text("ended with 137")
    terminal.open("-n", "8", "--temp", "0")
    terminal.until_text("and more")
    terminal.keys("Home")
    screen = terminal.until_text("Line 39 of a text")
    assert "naïve, 한국어, 1443. and more" in screen
