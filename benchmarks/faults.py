"""Damage to saved pages under an engine that lives: flips, cuts, swaps between chats and cache types.

    python benchmarks/faults.py [MODEL.gguf] [--rounds 500] [--seed N]

Counts what was noticed, whether the process lived and whether each answer was that without faults. Exit code 1 when any
of it was not so. The model needs Q4_1 weights; the built-in one has them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fault_campaign import Campaign

from kvchat.library.find import BUILT_IN, find_models
from kvchat.paths import Paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = find_models(Paths.find({"KVCHAT_HOME": folder}))
        model = given.model or next(each.path for each in found if each.source == BUILT_IN)
        campaign = Campaign(Path(folder), model)
        start = time.monotonic()
        campaign.run(given.rounds, given.seed)
        seconds = time.monotonic() - start
    for name, count in sorted(campaign.rounds.items()):
        print(f"{count:5}  {name}")
    print(f"{given.rounds} rounds in {seconds:.0f} s, {len(campaign.wrong)} wrong; afterwards: {campaign.store}")
    for line in campaign.wrong:
        print(line)
    return 1 if campaign.wrong or campaign.store.damaged else 0


if __name__ == "__main__":
    sys.exit(main())
