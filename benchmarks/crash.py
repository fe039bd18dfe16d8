"""`kill -9` of app, engine or both at random moments of random sessions, and whether a word or a page was lost.

    python benchmarks/crash.py [--sessions 300] [--seed N]

Each session has one kill, or up to three of its engine. Chats are begun with the built-in model or with a tiny one: of
plain attention, with a window, hybrid. Exit code 1 when anything that must hold after a kill did not.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import tiny
from crash_campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        models = [tiny.build(kind, Path(folder)) for kind in ("llama", "gemma3", "lfm2")]
        campaign = Campaign(Path(folder), random.Random(given.seed), models)  # noqa: S311
        campaign.run(given.sessions)
    seconds = time.monotonic() - start
    kills = campaign.killed.total()
    print(f"{kills} kills in {given.sessions} sessions, {seconds:.0f} s (seed {given.seed}): {dict(campaign.killed)}")
    print(f"seen: {dict(campaign.found)}; {len(campaign.problems)} problems")
    for line in campaign.problems:
        print(line)
    return 1 if campaign.problems else 0


if __name__ == "__main__":
    sys.exit(main())
