"""The app with a fake engine, as a program to be run on a terminal. It echoes what it is told.

A message "!noise" makes the engine write to descriptors 1 and 2 and print; "!evil" answers with what a terminal would
obey; "!say" answers with what follows, a character at a time; "!slow" answers in many pieces, until it is stopped;
"!die" ends the engine for good.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fake_backend import delta, finished, make_ready, prompt_events

from kvchat.backend.protocol import (
    EngineDied,
    Event,
    Forecast,
    Forecasted,
    Generate,
    LoadFailed,
    Preview,
    ReadAhead,
    Ready,
    Title,
    Warm,
    Warmed,
)
from kvchat.backend.values import EngineConfig, Failure
from kvchat.config import Settings
from kvchat.paths import Paths
from kvchat.ui.app import run_app
from kvchat.ui.launch import Survey

EVIL = "a\x1b]0;OWNED\x07b\x1b]52;c;T1dORUQ=\x07c\x1b[2Jd\x9b31me\u202ef\x00g"


class Engine:
    """Answers on a thread of its own, as the real one does."""

    def __init__(self, config: EngineConfig, post: Callable[[Event], None]) -> None:
        self.config = config
        self._post = post
        self._stopped: set[str] = set()
        self.ready: Ready | None = None

    def start(self) -> None:
        ready = make_ready()
        self.ready = replace(ready, model=replace(ready.model, path=self.config.model_path))
        self._post(self.ready)

    def configure(self, config: EngineConfig) -> None:
        self.config = config
        self.start()

    def warm(self, command: Warm) -> None:
        self._post(Warmed(command.turn, len(command.ids), len(command.ids), len(command.ids), 0.05, None))

    def forecast(self, command: Forecast) -> None:
        self._post(Forecasted(command.turn, 40, 0, 30, 10, 0.2, None))

    def read_ahead(self, command: ReadAhead) -> None:
        pass

    def preview(self, command: Preview) -> None:
        pass

    def title(self, command: Title) -> None:
        pass

    def submit(self, request: Generate) -> None:
        threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def cancel(self, turn: str) -> None:
        self._stopped.add(turn)

    def close(self, patience: float = 0.0) -> None:
        pass

    def _answer(self, request: Generate) -> None:
        text = request.messages[-1].text
        for event in prompt_events(request):
            self._post(event)
        match text:
            case "!noise":
                os.write(1, b"NOISE-ON-1")
                os.write(2, b"NOISE-ON-2")
                print("NOISE-PRINTED")
                pieces = ["quiet"]
            case "!evil":
                pieces = [EVIL]
            case "!slow":
                pieces = [f"piece {number}\n" for number in range(5_000)]
            case "!die":
                self._die(request)
                return
            case _ if text.startswith("!say "):
                pieces = list(text.removeprefix("!say "))
            case _:
                pieces = [f"echo {text!a}"]
        for piece in pieces:
            if request.turn in self._stopped:
                self._post(finished(request, "cancelled"))
                return
            self._post(delta(request, piece))
            time.sleep(0.002)
        self._post(finished(request))

    def _die(self, request: Generate) -> None:
        self.ready = None
        self._post(EngineDied("the engine was killed by SIGKILL", (), restarting=False))
        self._post(finished(request, "died", Failure("the engine was killed by SIGKILL", "/continue goes on")))
        self._post(LoadFailed(Failure("it is not started again", "take a smaller model")))


if __name__ == "__main__":
    paths = Paths.find(os.environ)
    continued = "-c" in sys.argv
    sys.exit(
        run_app(
            Settings(),
            paths,
            continue_last=continued,
            engine_factory=lambda config, post, *_: Engine(config, post),
            surveyor=lambda *_: Survey(chosen=Path("/models/fake-1b.gguf")),
        )
    )
