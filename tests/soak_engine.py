"""The engine process of a soak: as always, but that it tells what it has in use. See `soak_measuring`."""

from __future__ import annotations

import sys

from soak_measuring import answer_signals

from kvchat.engine.process import main

if __name__ == "__main__":
    answer_signals()
    sys.exit(main())
