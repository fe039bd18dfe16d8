"""Mutated input for every reader of what others wrote, for as long as it is wanted.

    python benchmarks/fuzz.py [TARGET...] [--inputs 10000] [--seed N] [--corpus FOLDER]

A reader may answer or refuse; anything else, too much time and too much memory are reported, and kept in FOLDER/bad.
With --corpus what led anywhere new is kept in FOLDER, and taken up by the next run. Exit code 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fuzz_targets import TARGETS
from fuzzing import Run, fuzz


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(TARGETS)}; all without")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--corpus", type=Path)
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    broken = 0
    for name in given.targets or TARGETS:
        kept = given.corpus and given.corpus / name.replace(" ", "-")
        known = [path.read_bytes() for path in sorted(kept.glob("*.input"))] if kept else []
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            run = fuzz(TARGETS[name], Path(folder), given.inputs, given.seed, known)
        seconds = time.process_time() - start
        print(
            f"{name}: {run.inputs:,} inputs in {seconds:.1f} s of the processor, {run.refused:,} refused, "
            f"corpus {len(run.corpus)}, {len(run.bad)} bad (seed {given.seed})"
        )
        for raw, outcome in run.bad[:10]:
            print(f"  {outcome}: {raw[:60]!r}")
        if kept:
            _keep(kept, run)
        broken += len(run.bad)
    return 1 if broken else 0


def _keep(folder: Path, run: Run) -> None:
    for where, inputs in ((folder, run.corpus), (folder / "bad", [raw for raw, _ in run.bad])):
        where.mkdir(parents=True, exist_ok=True)
        for raw in inputs:
            (where / f"{hashlib.sha256(raw).hexdigest()[:16]}.input").write_bytes(raw)


if __name__ == "__main__":
    sys.exit(main())
