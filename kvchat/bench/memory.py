"""`memory`: what each cache type takes: by the ledger, as llama.cpp reports it, and as the system counts it.

Owns the reading of llama.cpp's log and of /proc. Must not estimate: the ledger does.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from kvchat.backend.fidelity import Pair
from kvchat.bench.pool import Pool
from kvchat.bench.report import Column, Part, Row
from kvchat.bench.rig import RefusedError, Rig, Told, flash
from kvchat.bench.wanted import Wanted, pair_name
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory as Free
from kvchat.kv.needs import Need, subject_at
from kvchat.kv.plan import Wanted as Planned
from kvchat.kv.plan import make_plan

_CACHE = re.compile(r"(?:KV|RS) buffer size = +([\d.]+) MiB")
_COMPUTE = re.compile(r"sched_reserve: .*compute buffer size = +([\d.]+) MiB")
_LARGEST_LOG = 16 << 20  # bytes of it that are read


class Memory:
    """The measurement: `run`, and a `part` of what there is, at any time."""

    name = "memory"

    def __init__(self, rig: Rig, pool: Pool, wanted: Wanted) -> None:
        self._rig, self._pool, self._wanted, self._base = rig, pool, wanted, rig.config
        self._rows: list[Row] = []
        self._notes: list[str] = []

    def run(self, tell: Told) -> None:
        """Measure. Raises what `Rig` raises."""
        for number, pair in enumerate(self._wanted.pairs):
            tell(number, len(self._wanted.pairs), pair_name(pair))
            config = replace(self._base, type_k=pair[0], type_v=pair[1])
            log = self._rig.log_file
            try:
                if config == self._rig.config:  # built long ago: once more, for what is told of it
                    self._rig.configure(replace(config, context=max(1, config.context // 2)))
                start = log.stat().st_size if log.exists() else 0
                self._rig.configure(config)
            except RefusedError as error:
                self._notes.append(f"{pair_name(pair)}: {error.message}")
                continue
            self._rig.read(self._pool.fresh(min(256, self._rig.ready.cache.context // 2)), 2, keep=False)
            self._rows.append(self._row(pair, read_log(log, start)))
        self._rig.configure(self._base)

    def _row(self, pair: Pair, told: tuple[int | None, int | None]) -> Row:
        ready = self._rig.ready
        anonymous, resident = resident_bytes(self._rig.pid)
        need = self._need()
        return {
            "cache": pair_name(pair),
            "context": ready.cache.context,
            "token": ready.model.kv_bytes_per_token,
            "ledger": need.kv_bytes + need.state_bytes if need else None,
            "reported": told[0],
            "compute_estimate": need.compute_bytes if need else None,
            "compute": told[1],
            "anonymous": anonymous,
            "resident": resident,
        }

    def _need(self) -> Need | None:
        """What the plan says of the configuration that runs; None: nothing."""
        cache = self._rig.ready.cache
        config = replace(self._rig.config, flash_attention=flash(cache), gpu_layers=cache.gpu_layers)
        try:
            plan = make_plan(subject_at(Path(config.model_path)), Free(), Planned.of(config))
        except KvchatError:
            return None
        return plan.chosen if plan.chosen.refusal is None else None

    def part(self) -> Part:
        """What was measured so far."""
        return Part(
            self.name,
            "Memory",
            "the ledger is what kvchat foretells, llama.cpp is what that says it allocated, the process is as the "
            "system counts it after a turn: its own pages, and with those of the mapped model",
            (
                Column("cache", "cache", names=True),
                Column("context", "context", "count"),
                Column("token", "a token", "bytes", "lower"),
                Column("ledger", "KV, ledger", "bytes"),
                Column("reported", "KV, llama.cpp", "bytes", "lower"),
                Column("compute_estimate", "compute, estimate", "bytes"),
                Column("compute", "compute, llama.cpp", "bytes", "lower"),
                Column("anonymous", "process, own", "bytes", "lower"),
                Column("resident", "process, all", "bytes", "lower"),
            ),
            tuple(self._rows),
            notes=tuple(self._notes),
        )


def read_log(file: Path, start: int) -> tuple[int | None, int | None]:
    """Bytes of cache and of computations that llama.cpp says it allocated for its last context behind byte `start`."""
    try:
        with file.open("rb") as log:
            log.seek(start)
            text = log.read(_LARGEST_LOG).decode("utf-8", "replace")
    except OSError:
        return None, None
    text = text.rpartition("constructing llama_context")[2]
    return _bytes(_CACHE.findall(text)), _bytes(_COMPUTE.findall(text))


def _bytes(mebibytes: list[str]) -> int | None:
    return round(sum(map(float, mebibytes)) * (1 << 20)) if mebibytes else None


def resident_bytes(pid: int | None) -> tuple[int | None, int | None]:
    """Bytes of a process: anonymous ones, and all that are in memory. None where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None, None
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.endswith(" kB")}
    return sizes.get("Anonymous"), sizes.get("Rss")
