"""`kill -9` of app, engine or both at random moments of random sessions, and whether a word or a page was lost.

    python benchmarks/crash.py [--kills 300] [--seed N]

Exit code 1 when anything that must hold after a kill did not.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from crash_campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), random.Random(given.seed))  # noqa: S311
        campaign.run(given.kills)
    seconds = time.monotonic() - start
    print(f"{given.kills} kills in {seconds:.0f} s (seed {given.seed}): {dict(campaign.killed)}")
    print(f"seen: {dict(campaign.found)}; {len(campaign.problems)} problems")
    for line in campaign.problems:
        print(line)
    return 1 if campaign.problems else 0


if __name__ == "__main__":
    sys.exit(main())
