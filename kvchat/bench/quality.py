"""`fidelity` as one part of a report beside others: divergence from f16 by cache type and depth.

Owns the rows; the question and its limits are those of `kvchat bench fidelity`.
"""

from __future__ import annotations

import math

from kvchat.backend.fidelity import FidelityReport, Measure
from kvchat.bench.fidelity import Watch, passage
from kvchat.bench.fidelity_text import about, name_of
from kvchat.bench.report import Column, Part, PlotSpec, Row
from kvchat.bench.rig import Rig, Told
from kvchat.bench.wanted import Wanted

_TURN = "bench fidelity"
_DEPTHS, _QUICK_DEPTHS = (256, 1024), (256,)


class Quality:
    """The measurement: `run`, and a `part` of what there is: nothing before it is over."""

    name = "fidelity"

    def __init__(self, rig: Rig, wanted: Wanted) -> None:
        self._rig, self._wanted = rig, wanted
        self._report: FidelityReport | None = None

    def run(self, tell: Told) -> None:
        """Measure. Raises what `Rig` raises, and KvchatError where it cannot be measured."""
        depths = tuple(depth for depth in self._wanted.depths or () if depth >= min(_DEPTHS))
        usual = _QUICK_DEPTHS if self._wanted.quick else _DEPTHS
        pairs = tuple(pair for pair in self._wanted.pairs if pair != ("f16", "f16"))
        watch = Watch(_TURN, lambda done, total: tell(done, total, f"{done:,} of {total:,} tokens"))
        self._rig.engine.measure(Measure(_TURN, (), passage(), depths or usual, pairs))
        while not watch.over:
            watch.take(self._rig.take())
        self._report = watch.report

    def part(self) -> Part:
        """What was measured."""
        report = self._report
        return Part(
            self.name,
            "Fidelity",
            about(report) if report is not None else "divergence from f16",
            (
                Column("cache", "cache", names=True),
                Column("depth", "depth", "count", names=True),
                Column("kl", "KL mean, nats", "number", "lower"),
                Column("kl_99", "KL 99 %, nats", "number", "lower"),
                Column("agreement", "same token", "share", "higher"),
                Column("perplexity", "perplexity, ratio", "ratio"),
            ),
            tuple(_rows(report)) if report is not None else (),
            (PlotSpec("mean KL by depth, nats", "depth", "kl", ("cache",)),),
            report.refused if report is not None else (),
        )


def _rows(report: FidelityReport) -> list[Row]:
    return [
        {
            "cache": name_of(row),
            "depth": at.depth,
            "kl": at.kl,
            "kl_99": at.kl_99,
            "agreement": at.agreement,
            "perplexity": None if math.isnan(at.perplexity) else at.perplexity / at.reference_perplexity,
        }
        for row in report.rows
        for at in row.depths
    ]
