"""Makes demo.svg: the real app with the built-in model in a terminal of 100x30, from a question to a resumed chat.

    python assets/make_demo.py

Needs tmux. What is seen is what the app drew, at its pace; where nothing moves, that is cut to a second, or rests for
reading. It takes about a minute; home folder and terminal are new ones, and gone at its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from moving_svg import Frame, moving, rows_of

COLUMNS, ROWS = 100, 30
PATIENCE = 90.0  # seconds for anything
LONGEST = 1.0  # seconds that the same screen is shown, where nothing is to be read
STEP = 0.1  # seconds between looks
KEY = 0.06  # seconds between keys
MEASURES = 6.0  # seconds in which a new engine looks how fast this machine is, while nothing is asked
SETTINGS = """model = "SmolLM2"
system = "You are brief and exact."
temp = 0
repeat_penalty = 1.1
predict = 120
draft = "off"
auto_title = false
"""
TITLE = (
    "kvchat in a terminal: a question and its answer, a second one that reuses what was computed, the end of the"
    " program, kvchat -c, and a third answer for which all of the chat came back from disk"
)


class Recorder:
    """A terminal with a shell, and the frames of what it showed."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        self.frames: list[Frame] = []
        (folder / "config.toml").write_text(SETTINGS)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = {"KVCHAT_HOME": str(folder), "PATH": path, "PS1": "$ ", "COLORTERM": "truecolor"}
        self._environment = {**os.environ, **shell}
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "bash", "--norc", "--noprofile")
        self._tmux("set", "-g", "status", "off")

    def _tmux(self, *words: str) -> str:
        command = ["/usr/bin/env", "tmux", "-S", self._socket, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=self._environment)
        return done.stdout

    def close(self) -> None:
        self._tmux("kill-server")

    def look(self, seconds: float) -> str:
        """Take what stands there for a frame of so many seconds; its text."""
        screen = self._tmux("capture-pane", "-eN", "-p")
        rows = rows_of(screen)
        if self.frames and self.frames[-1].rows == rows:
            seconds += self.frames.pop().seconds
        self.frames.append(Frame(rows, seconds))
        return "\n".join("".join(text for text, _ in row) for row in rows)

    def until(self, there: Callable[[str], bool]) -> None:
        """Watch until something stands on the screen, and cut short what does not move."""
        started = before = time.monotonic()
        while not there(screen := self.look(time.monotonic() - before)):
            before = time.monotonic()
            if before - started > PATIENCE:
                raise SystemExit(f"error: the app did not get so far:\n{screen}")
            time.sleep(STEP)
            last = self.frames[-1]
            self.frames[-1] = Frame(last.rows, min(last.seconds, LONGEST))

    def type(self, text: str) -> None:
        for letter in text:
            self._tmux("send-keys", "-l", letter)
            time.sleep(KEY)
            self.look(KEY)

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def rest(self, seconds: float) -> None:
        """Time to read."""
        for _ in range(round(seconds / STEP)):
            time.sleep(STEP)
            self.look(STEP)


def ask(recorder: Recorder, question: str) -> None:
    """Type a question, read what sending it would cost, and watch the answer come to its end."""
    recorder.type(question)
    recorder.rest(1.5)
    recorder.press("Enter")
    recorder.until(lambda screen: "esc stop" in screen)
    recorder.until(lambda screen: "esc stop" not in screen and "generating" not in screen)
    recorder.rest(3)


def play(recorder: Recorder) -> None:
    recorder.rest(0.5)
    recorder.type("kvchat")
    recorder.press("Enter")
    recorder.until(lambda screen: "KV f16" in screen)
    time.sleep(MEASURES)
    ask(recorder, "Write a short poem about the sea.")
    ask(recorder, "Now one about the wind.")
    recorder.press("C-q")
    recorder.until(lambda screen: screen.rstrip().endswith("$"))
    recorder.type("kvchat -c")
    recorder.press("Enter")
    recorder.until(lambda screen: "back from pages" in screen)
    recorder.rest(2.5)
    ask(recorder, "Give both poems one title.")
    recorder.rest(2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        try:
            play(recorder)
        finally:
            recorder.close()
    target = Path(__file__).with_name("demo.svg")
    target.write_text(moving(recorder.frames, COLUMNS, TITLE), encoding="utf-8")


if __name__ == "__main__":
    main()
