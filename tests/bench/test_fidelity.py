"""What is asked of the fidelity lab, and how its report is told."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from kvchat.backend.fidelity import DepthFidelity, FidelityReport, FidelityRow, Measured, Measuring
from kvchat.backend.protocol import EngineDied, LoadFailed
from kvchat.backend.values import Failure
from kvchat.bench.fidelity import DEPTHS, PAIRS, Watch, passage, read_depths, read_pairs
from kvchat.bench.fidelity_text import BLOCKS, cells, curve, depths, heading, name_of, report_object
from kvchat.errors import KvchatError, UsageError

AT = DepthFidelity(256, 128, 0.0125, 0.25, 0.9375, 11.0, 10.0)
ROW = FidelityRow("native", "q8_0", "q8_0", True, (AT,), (0.001, 0.01))
REPORT = FidelityReport("some", 256, 128, False, 64, (ROW,), ("not so",), 3.0)


# ------------------------------------------------------------------ questions


def test_the_passage_is_long_enough_for_the_deepest_depth():
    """Four tokens for three words is what tokenizers need for English prose at least."""
    assert len(passage().split()) * 4 / 3 > max(DEPTHS)


def test_pairs_and_depths():
    assert read_pairs("q8_0, q8_0/q4_0,f16/q4_0") == (("q8_0", "q8_0"), ("q8_0", "q4_0"), ("f16", "q4_0"))
    assert read_depths("1024, 256,256") == (256, 1024)
    assert {side for pair in PAIRS for side in pair} == {"f16", "bf16", "q8_0", "q4_0"}


@pytest.mark.parametrize("text", ["", "q9", "q8_0/q4_0/f16", "q8_0,", "Q8_0", "f32"])
def test_types_that_there_are_not(text):
    with pytest.raises(UsageError) as error:
        read_pairs(text)
    assert error.value.hint


@pytest.mark.parametrize("text", ["", "0", "31", "-5", "1e3", "999999", "256,", "²", "x"])
def test_depths_that_there_are_not(text):
    with pytest.raises(UsageError) as error:
        read_depths(text)
    assert "256" in error.value.hint


# ------------------------------------------------------------------ the wait


def test_progress_and_report():
    seen = []
    watch = Watch("a", lambda *told: seen.append(told))
    watch.take(Measuring("other", 5, 10))
    watch.take(Measuring("a", 5, 10))
    watch.take(Measured("other", None, None))
    assert seen == [(5, 10)] and not watch.over
    watch.take(Measured("a", REPORT, None))
    assert watch.over and watch.report is REPORT


@pytest.mark.parametrize(
    "event",
    [
        Measured("a", None, Failure("no", "hint")),
        LoadFailed(Failure("no", "hint")),
        EngineDied("no", (), restarting=False),
    ],
)
def test_no_report(event):
    with pytest.raises(KvchatError, match="no"):
        Watch("a", lambda *_: None).take(event)


def test_an_engine_that_is_started_again_is_no_end():
    watch = Watch("a", lambda *_: None)
    watch.take(EngineDied("it died", (), restarting=True))
    assert not watch.over


# ------------------------------------------------------------------ words


def test_a_row():
    assert cells(ROW, AT) == ("q8_0", "0.0125", "0.2500", "93.8%", "+10.00%")
    tiny = replace(AT, kl=0.0, kl_99=3.2e-6, perplexity=math.nan)
    assert cells(ROW, tiny)[1:] == ("0", "3.2e-06", "93.8%", "-")


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (ROW, "q8_0"),
        (replace(ROW, type_v="f16"), "K q8_0, V f16"),
        (replace(ROW, way="transcoded", type_k="q4_0"), "K q4_0, V q8_0, converted"),
        (replace(ROW, way="batch"), "f16, token by token"),
        (replace(ROW, way="flash"), "f16, flash attention on"),
        (replace(ROW, way="flash", flash=False), "f16, flash attention off"),
    ],
)
def test_names(row, name):
    assert name_of(row) == name


def test_the_heading_says_which_tokens_count():
    assert heading(REPORT, 256) == "depth 256: tokens 129 to 256, perplexity with f16 10.00"
    assert depths(REPORT) == [256]
    assert depths(replace(REPORT, rows=())) == []


def test_a_curve_is_logarithmic_and_has_at_most_so_many_blocks():
    row = replace(ROW, curve=(0.0, 1e-5, 10**-2.4, 0.9, 50.0))
    assert curve(row, 64) == BLOCKS[0] + BLOCKS[0] + BLOCKS[4] + BLOCKS[7] + BLOCKS[7]
    assert len(curve(replace(ROW, curve=(0.1,) * 100), 64)) == 50
    assert curve(replace(ROW, curve=()), 64) == ""


def test_json_has_no_nan():
    report = replace(REPORT, rows=(replace(ROW, depths=(replace(AT, perplexity=math.nan),)),))
    found = json.loads(json.dumps(report_object(report), allow_nan=False))
    assert found["rows"][0]["name"] == "q8_0"
    assert found["rows"][0]["depths"][0]["perplexity"] is None
    assert found["rows"][0]["depths"][0]["kl"] == 0.0125
    assert found["tokens"] == 256
