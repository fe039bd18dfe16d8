"""The check on resume without a model: labels, what is pending, and what passes."""

from __future__ import annotations

import numpy as np
import pytest

from kvchat.engine.check import FACTOR, KEPT, ResumeCheck, label, read_label
from kvchat.formats.past import Eviction, Past

IDS = (5, 6, 7, 8)
LOGITS = np.linspace(-3, 3, 100, dtype=np.float32)


def check_after(ids=IDS, text=None):
    check = ResumeCheck()
    check.restored(Past(ids), label(LOGITS) if text is None else text)
    return check


def test_a_label_is_read_back():
    found = read_label(label(LOGITS))
    assert list(found) == list(range(99, 99 - KEPT, -1))
    assert found[99] == pytest.approx(float(LOGITS[99] - np.log(np.exp(LOGITS.astype(np.float64)).sum())), abs=1e-4)
    assert len(label(LOGITS)) < 600


@pytest.mark.parametrize(
    "text", ["", " ", "1:0.5", "1:-0.5 x", "nan:nan", "1:-0.1,2:-0.2", "9999999999:-0.1", "1:-1e9"]
)
def test_a_label_of_another_kind_says_nothing(text):
    assert read_label(text) == {}
    assert check_after(text=text).pending(Past(IDS)) is None


@pytest.mark.parametrize("ids", [IDS, (*IDS, 9), IDS[:-1]])
def test_it_is_pending_while_the_cells_hold_what_was_restored(ids):
    """Also without the last token, which may be decoded again as the end of a prompt."""
    mark = check_after().pending(Past(ids))
    assert mark is not None and (mark.length, mark.last) == (4, 8)


@pytest.mark.parametrize("ids", [(), IDS[:-2], (5, 6, 0), (5, 6, 7, 0), (0, 6, 7, 8, 9)])
def test_it_is_not_when_they_hold_something_else(ids):
    check = check_after()
    assert check.pending(Past(ids)) is None
    assert check.pending(Past(IDS)) is None  # what comes back later was computed


def test_what_was_evicted_behind_a_token_makes_it_another_one():
    """It saw more when its page was saved; and where the cells have lost something else, it is not the same history."""
    before, behind = Eviction(3, ((0, 1),)), Eviction(4, ((0, 1),))
    cases = [((before,), (before,), True), ((before,), (), False), ((behind,), (behind,), False)]
    for evictions, others, pending in cases:
        check = ResumeCheck()
        check.restored(Past(IDS, evictions), label(LOGITS))
        assert (check.pending(Past(IDS, others)) is not None) == pending


def test_the_same_passes_and_is_asked_once():
    check = check_after()
    assert check.passes(LOGITS)
    assert check.pending(Past(IDS)) is None


def test_noise_passes_and_ten_times_the_noise_does_not():
    turned = LOGITS[::-1].copy()  # what was likeliest is now the least likely
    assert not check_after().passes(turned)
    check = check_after()
    check.noise = 1.0
    assert check.passes(turned)
    assert check_after().noise * FACTOR == pytest.approx(0.2)


def test_a_label_of_another_vocabulary_does_not_pass():
    assert not check_after().passes(LOGITS[:50].copy())


def test_what_cannot_be_known_is_no_fault():
    assert check_after().passes(None)
    assert ResumeCheck().passes(LOGITS)
