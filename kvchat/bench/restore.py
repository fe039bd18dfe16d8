"""`restore`: how fast a chat is saved and comes back, against computing it again, by cache type.

Owns the order of these measurements and their rows. Every round has a text of its own, so that nothing of it is on disk
before it is computed; it comes back into empty cells, from files that the system still has in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvchat.backend.fidelity import Pair
from kvchat.backend.values import Usage
from kvchat.bench.pool import Pool
from kvchat.bench.report import Column, Part, Row, Stat
from kvchat.bench.rig import RefusedError, Rig, Told
from kvchat.bench.wanted import Wanted, pair_name
from kvchat.errors import KvchatError


@dataclass(frozen=True, slots=True)
class Sample:
    """The turn that computed and saved, and the one that restored."""

    computed: Usage
    restored: Usage


class Restore:
    """The measurement: `run`, and a `part` of what there is, at any time."""

    name = "restore"

    def __init__(self, rig: Rig, pool: Pool, wanted: Wanted, rate: float) -> None:
        """`rate`: tokens a second of prefill, about."""
        self._rig, self._pool, self._wanted, self._base = rig, pool, wanted, rig.config
        self._tokens = wanted.chat_tokens(rate, rig.ready.cache.context)
        self._samples: dict[Pair, list[Sample]] = {pair: [] for pair in wanted.pairs}
        self._notes: list[str] = []

    def run(self, tell: Told) -> None:
        """Measure. Raises what `Rig` raises."""
        if not self._rig.ready.cache.pages:
            self._notes.append("nothing to measure: the state of this architecture cannot be kept")
            return
        total, done = self._wanted.rounds * len(self._samples), 0
        for _ in range(self._wanted.rounds):
            for pair in list(self._samples):
                tell(done, total, f"{pair_name(pair)}, {self._tokens:,} tokens")
                done += 1
                if self._has_types(pair):
                    self._samples[pair].append(self._sample())
        self._rig.configure(self._base)

    def _has_types(self, pair: Pair) -> bool:
        """Go over to these types; where the model cannot have them they are out."""
        try:
            self._rig.configure(replace(self._base, type_k=pair[0], type_v=pair[1]))
        except RefusedError as error:
            self._notes.append(f"{pair_name(pair)}: {error.message}")
            del self._samples[pair]
            return False
        return True

    def _sample(self) -> Sample:
        rig, prompt = self._rig, self._pool.fresh(self._tokens)
        rig.forget()
        rig.read(self._pool.fresh(16), 2, keep=False)
        rig.forget()
        computed = rig.read(prompt, 1).usage
        if computed.save_problem is not None:
            raise KvchatError(f"the chat could not be saved: {computed.save_problem}")
        rig.forget()
        return Sample(computed, rig.read(prompt, 1).usage)

    def part(self) -> Part:
        """What was measured so far."""
        return Part(
            self.name,
            "Save and restore",
            f"a chat of {self._tokens:,} tokens is computed and saved, then restored into empty cells",
            (
                Column("cache", "cache", names=True),
                Column("tokens", "tokens", "count"),
                Column("bytes", "on disk", "bytes", "lower"),
                Column("compute", "compute, tokens/s", "rate", "higher"),
                Column("save", "save, tokens/s", "rate", "higher"),
                Column("save_bytes", "save, MB/s", "bytes_rate", "higher"),
                Column("restore", "restore, tokens/s", "rate", "higher"),
                Column("restore_bytes", "restore, MB/s", "bytes_rate", "higher"),
                Column("first_computed", "first token, computed", "seconds", "lower"),
                Column("first_restored", "first token, restored", "seconds", "lower"),
                Column("times", "times sooner", "ratio", "higher"),
            ),
            tuple(self._row(pair, samples) for pair, samples in self._samples.items() if samples),
            notes=tuple(self._notes),
        )

    def _row(self, pair: Pair, samples: list[Sample]) -> Row:
        saved = [each.computed for each in samples if each.computed.save_seconds > 0]
        restored = [each for each in samples if each.restored.restore_seconds > 0 and each.restored.reused]
        size = Stat.of([each.bytes_saved for each in saved])
        return {
            "cache": pair_name(pair),
            "tokens": self._tokens,
            "bytes": int(size.median) if size is not None else None,
            "compute": Stat.of([each.computed.computed / each.computed.prefill_seconds for each in samples]),
            "save": Stat.of([each.computed / each.save_seconds for each in saved]),
            "save_bytes": Stat.of([each.bytes_saved / each.save_seconds for each in saved]),
            "restore": Stat.of([each.restored.reused / each.restored.restore_seconds for each in restored]),
            "restore_bytes": Stat.of(
                [_restored_bytes(each) / each.restored.restore_seconds for each in restored if each.computed.computed]
            ),
            "first_computed": Stat.of([each.computed.ttft_seconds for each in samples]),
            "first_restored": Stat.of([each.restored.ttft_seconds for each in restored]),
            "times": Stat.of([each.computed.ttft_seconds / each.restored.ttft_seconds for each in restored]),
        }


def _restored_bytes(sample: Sample) -> float:
    """Of the bytes that were saved, those of the tokens that came back."""
    return sample.computed.bytes_saved * sample.restored.reused / sample.computed.computed
