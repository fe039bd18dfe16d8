"""`kvchat --plain` with a fake engine, as a program to be run on a terminal. It answers as fake_app does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "ui"))

from fake_app import Engine

from kvchat.commands.plain import run_plain
from kvchat.config import Settings
from kvchat.paths import Paths

if __name__ == "__main__":
    sys.exit(
        run_plain(
            Settings(),
            Paths.find(os.environ),
            chat=None,
            continue_last="-c" in sys.argv,
            out=sys.stdout,
            err=sys.stderr,
            stdin=sys.stdin,
            engine_factory=lambda config, post, *_: Engine(config, post),
        )
    )
