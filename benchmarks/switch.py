"""A chat of about 4,000 tokens that changes its cache type in the running app: f16 to q8_0, to q4_0, back to f16.

    python benchmarks/switch.py [--tokens N] [--model NAME]

The app runs in tmux. A text is pasted and sent; then the types are changed in the settings, three times, with a short
question after each. Told are: what the app says about the switch, and, from what it stored with the answer, how many
tokens of the prompt were reused and computed, of which the question with its template takes the given number. "Reading
again": as many tokens as the chat then has at the speed at which the pasted text was read.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from kvchat.backend.values import Usage
from kvchat.chats.store import ChatStore
from kvchat.conversation.turns import read_usage
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths

KINDS = ("q8_0", "q4_0", "f16")
PATIENCE = 600.0
OPTIONS = "-n 8 --temp 0 --ctx-size 6144 -ctk f16 -ctv f16 -t 1 --draft off"


class App:
    """The app in a tmux server of its own."""

    def __init__(self, home: Path, model: str) -> None:
        self._server = ["tmux", "-S", str(home / "tmux"), "-f", "/dev/null"]
        command = f"env -u COLUMNS -u LINES {sys.executable} -m kvchat -m {model} {OPTIONS}"
        self._run("new-session", "-d", "-x", "110", "-y", "40", command)
        self.until(lambda screen: "Write a message" in screen and "○" in screen)

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._server, *arguments], capture_output=True, text=True, check=False).stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def paste(self, text: str) -> None:
        """As a terminal pastes it."""
        subprocess.run([*self._server, "load-buffer", "-"], input=text, text=True, check=True)
        self._run("paste-buffer", "-p")

    def until(self, condition: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE
        while not condition(screen := self.screen()):
            if time.monotonic() > deadline:
                raise SystemExit(f"error: this did not come:\n{screen}")
            time.sleep(0.1)
        return screen

    def switch(self, kind: str) -> str:
        """Choose a type for K and V in the settings; what the app says when the past is back."""
        self.keys("F2")
        self.until(lambda screen: "Applying" in screen)
        for side in ("K", "V"):
            self._focus(side)
            self._choose(side, kind)
        self.keys("Enter")
        screen = self.until(lambda screen: "─ Settings ─" not in screen and "tokens back from" in screen)
        return next(found[0] for found in re.finditer(r"[\d,]+ tokens back from [^│]*? in [\d.]+ s", screen))

    def _focus(self, side: str) -> None:
        while f"▸ {side} cache" not in self.screen():
            self.keys("Down")
            time.sleep(0.3)

    def _choose(self, side: str, kind: str) -> None:
        chosen = re.compile(rf"▸ {side} cache\s+‹ {kind} ")
        while not chosen.search(self.screen()):
            self.keys("Right")
            time.sleep(0.3)

    def close(self) -> None:
        self._run("kill-server")


def answered(store: ChatStore, count: int) -> Usage:
    """What the answer of that number cost, once it is there."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        chat = store.latest()
        messages = store.branch(chat.id, chat.head).messages if chat is not None else ()
        found = [read_usage(message) for message in messages if message.role == "assistant"]
        if len(found) == count and (usage := found[-1]) is not None:
            return usage
        time.sleep(0.2)
    raise SystemExit("error: no answer was stored")


def measure(home: Path, model: str, tokens: int) -> None:
    text = " ".join(f"Item {i} is a thing of its own." for i in range(tokens // 11))
    paths = Paths.find({"KVCHAT_HOME": str(home)})
    app = App(home, model)
    try:
        app.paste(text)
        app.until(lambda screen: "computes" in screen)  # what sending would cost
        app.keys("Enter")
        with closing(ChatStore(paths.chats_db)) as store:
            usage = answered(store, 1)
            speed = usage.computed / usage.prefill_seconds
            print(f"f16 pasted: {usage.computed:,} tokens read in {usage.prefill_seconds:.1f} s, {speed:.0f} a second")
            for number, kind in enumerate(KINDS, 2):
                before = usage
                said = app.switch(kind)
                app.keys("And then?", "Enter")
                usage = answered(store, number)
                new = usage.prompt_tokens - before.prompt_tokens - before.decode_tokens
                again = usage.reused / speed
                took = float(said.split()[-2])
                print(
                    f"to {kind:<5} {said}; next turn: {usage.reused:,} reused, {usage.computed} computed, {new} of "
                    f"them new; reading again {again:.1f} s, ratio {again / took:.0f}"
                )
    finally:
        app.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--model", default="SmolLM2")
    given = parser.parse_args()
    if shutil.which("tmux") is None:
        raise SystemExit("error: tmux is not installed")
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KVCHAT_HOME"] = folder
        measure(Path(folder), given.model, given.tokens)


if __name__ == "__main__":
    main()
