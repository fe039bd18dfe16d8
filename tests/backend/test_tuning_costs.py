"""The cost curve of checking drafts, kept between starts."""

from __future__ import annotations

import json

import pytest

from kvchat.backend.protocol import Tuned
from kvchat.backend.tuning import FILE, TuningBook
from kvchat.backend.values import EngineConfig

CONFIG = EngineConfig("/nowhere/model.gguf")
CURVE = (1.0, 1.4, 1.9, 2.5)


def test_it_comes_back(tmp_path):
    TuningBook(tmp_path).remember(CONFIG, Tuned(True, 2, ("fast",), CURVE))
    applied = TuningBook(tmp_path).apply(CONFIG)
    assert (applied.draft_costs, applied.tune) == (CURVE, False)
    assert (applied.flash_attention, applied.threads) == ("on", 2)


# From before there was a curve; not a list; not numbers; no beginning; a cost that falls, or is none.
@pytest.mark.parametrize(
    "costs", [None, "1,2", [1, "2"], [True, 2], [1.5, 2], [1, 3, 2], [1, 0.5], [1, float("nan")], [1, float("inf")], []]
)
def test_what_is_no_curve_is_measured_again(tmp_path, costs):
    TuningBook(tmp_path).remember(CONFIG, Tuned(True, 2, ("fast",), CURVE))
    content = json.loads((tmp_path / FILE).read_text())
    for entry in content.values():
        if costs is None:
            del entry["draft_costs"]
        else:
            entry["draft_costs"] = costs
    (tmp_path / FILE).write_text(json.dumps(content))
    applied = TuningBook(tmp_path).apply(CONFIG)
    assert (applied.draft_costs, applied.tune) == ((), True)
    assert (applied.flash_attention, applied.threads) == ("on", 2)


def test_an_engine_that_died_measuring_does_not_measure_again(tmp_path):
    TuningBook(tmp_path).fatal(CONFIG)
    assert TuningBook(tmp_path).apply(CONFIG) == CONFIG
