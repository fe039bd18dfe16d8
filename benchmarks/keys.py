"""Random keys, commands, pastes, clicks and window sizes in the app, with an engine that echoes, for as long as wanted.

    python benchmarks/keys.py [--sessions 50] [--acts 400] [--seed N]

Whatever is pressed, no exception may end the app; leaving it with ^Q is an act like others, and begins the next start
on the same chats. Printed are the sessions that broke, with their seed and the last acts. Exit code 1 when one did.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ui"))
from key_player import Player

LAST = 25  # acts that are told of a session that broke


def session(seed: int, acts: int) -> bool:
    """Whether it went well."""
    player, before = Player(seed), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # what is exported lies there
        try:
            asyncio.run(player.play(Path(folder) / "kvchat", acts))
        except Exception:  # noqa: BLE001 (whatever it is, it is what is looked for)
            print(
                f"seed {seed}: the app ended after {player.acts[-LAST:]}\n{traceback.format_exc(limit=-6)}", flush=True
            )
            return False
        finally:
            os.chdir(before)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--acts", type=int, default=400)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    given = parser.parse_args()
    os.environ |= {"EDITOR": "true", "VISUAL": "true"}
    fine = sum(session(given.seed + number, given.acts) for number in range(given.sessions))
    print(f"{fine} of {given.sessions} sessions of {given.acts} acts went well (seed {given.seed})")
    return 0 if fine == given.sessions else 1


if __name__ == "__main__":
    sys.exit(main())
