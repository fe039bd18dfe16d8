"""`speed`: prefill and decode tokens a second, by cache type, threads and depth.

Owns the order of these measurements and their rows. Types take turns within each round, so that a machine that becomes
slower does so for all of them. What lies at a depth is computed once, with the first type; the others get it
transcoded, which is what a chat gets that changes its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvchat.backend.fidelity import Pair
from kvchat.backend.values import EngineConfig
from kvchat.bench.pool import Pool
from kvchat.bench.report import Column, Part, PlotSpec, Row, Stat
from kvchat.bench.rig import RefusedError, Rig, Told, flash
from kvchat.bench.wanted import Wanted, pair_name

READ, WRITTEN = 256, 32  # tokens whose prefill is timed, and of the answer to them
_WARM = 16
_TRIES = 3  # answers that end by themselves before they are long enough
_QUANTIZED = ("q8_0", "q4_0")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared."""

    pair: Pair
    flash: bool
    threads: int
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement, tokens a second; None: the model wrote or read too little."""

    prefill: float | None
    decode: float | None


class Speed:
    """The measurement: `run`, and a `part` of what there is, at any time."""

    name = "speed"

    def __init__(self, rig: Rig, pool: Pool, wanted: Wanted, rate: float) -> None:
        """`rate`: tokens a second of prefill, about."""
        self._rig, self._pool, self._wanted, self._base = rig, pool, wanted, rig.config
        self._context = context = rig.ready.cache.context
        self._read, self._written = min(READ, context // 4), min(WRITTEN, context // 8)
        self._depths, notes = wanted.depths_within(context, self._read + self._written, rate)
        self._notes = list(notes)
        self._settings: list[Setting] = []
        self._samples: dict[tuple[Setting, int], list[Sample]] = {}

    def run(self, tell: Told) -> None:
        """Measure. Raises what `Rig` raises."""
        if not self._rig.ready.cache.pages and self._depths != (0,):
            self._notes.append("only depth 0: the state of this architecture cannot be kept, so none can be shared")
            self._depths = (0,)
        self._choose(tell)
        total = self._wanted.rounds * len(self._depths) * len(self._settings)
        deep, done = self._pool.fresh(max(self._depths, default=0)), 0
        self._fill(deep, tell, total)
        for _ in range(self._wanted.rounds):
            for depth in self._depths:
                for setting in self._settings:
                    tell(done, total, f"{pair_name(setting.pair)}, depth {depth:,}")
                    self._samples.setdefault((setting, depth), []).append(self._sample(setting, deep[:depth]))
                    done += 1
        self._rig.configure(self._base)

    def _choose(self, tell: Told) -> None:
        """With which flash attention and threads each type is measured: as asked for, else as the engine chooses."""
        for pair in self._wanted.pairs:
            tell(0, 1, f"{pair_name(pair)}: what is best here")
            base = replace(self._base, type_k=pair[0], type_v=pair[1])
            try:
                self._rig.configure(base)
            except RefusedError as error:
                self._notes.append(f"{pair_name(pair)}: {error.message}")
                continue
            if pair[1] not in _QUANTIZED and base.flash_attention == "auto":
                self._rig.tune()
            cache = self._rig.ready.cache
            for count in self._wanted.threads or (cache.threads,):
                config = replace(base, flash_attention=flash(cache), threads=count)
                self._settings.append(Setting(pair, cache.flash_attention, count, config))

    def _fill(self, deep: tuple[int, ...], tell: Told, total: int) -> None:
        """Have the depths on disk."""
        for depth in self._depths if self._settings else ():
            if depth:
                tell(0, total, f"reading {depth:,} tokens")
                self._rig.configure(self._settings[0].config)
                self._rig.read(deep[:depth], 1)

    def _sample(self, setting: Setting, deep: tuple[int, ...]) -> Sample:
        self._rig.configure(setting.config)
        self._rig.read(self._pool.fresh(_WARM), 2, keep=False)
        best = Sample(None, None)
        for _ in range(_TRIES):
            self._rig.forget()
            answered = self._rig.read(self._pool.fresh(self._read), self._written, past=deep)
            near = answered.usage.computed <= 2 * self._read  # else the depth was not found, and this is another
            enough = answered.usage.decode_tokens > self._written // 2
            best = Sample(best.prefill or (answered.prefill if near else None), answered.decode if enough else None)
            if enough:
                break
        return best

    def part(self) -> Part:
        """What was measured so far."""
        several = len({setting.threads for setting in self._settings}) > 1
        by = ("cache", "threads") if several else ("cache",)
        return Part(
            self.name,
            "Speed",
            f"prefill: {self._read} tokens behind so many others; decode: the next {self._written - 1} tokens, greedy, "
            f"without drafts; of the whole program, pages are written meanwhile",
            (
                Column("cache", "cache", names=True),
                Column("flash", "flash attention"),
                Column("threads", "threads", "count", names=several),
                Column("depth", "depth", "count", names=True),
                Column("prefill", "prefill, tokens/s", "rate", "higher"),
                Column("decode", "decode, tokens/s", "rate", "higher"),
            ),
            tuple(self._rows()),
            (
                PlotSpec("decode, tokens/s by depth", "depth", "decode", by),
                PlotSpec("prefill, tokens/s by depth", "depth", "prefill", by),
            ),
            tuple(self._notes),
        )

    def _rows(self) -> list[Row]:
        found = ((setting, depth) for setting in self._settings for depth in self._depths)
        return [_row(*each, self._samples[each]) for each in found if self._samples.get(each)]


def _row(setting: Setting, depth: int, samples: Sequence[Sample]) -> Row:
    return {
        "cache": pair_name(setting.pair),
        "flash": "on" if setting.flash else "off",
        "threads": setting.threads,
        "depth": depth,
        "prefill": Stat.of([each.prefill for each in samples if each.prefill is not None]),
        "decode": Stat.of([each.decode for each in samples if each.decode is not None]),
    }
