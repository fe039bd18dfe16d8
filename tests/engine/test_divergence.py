"""The arithmetic of the fidelity lab, against the definitions in numpy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kvchat.engine.divergence import coarse_divergence, differences, joined, likeliest, log_softmax

P, Q = np.log([[0.75, 0.25]]), np.log([[0.5, 0.5]])


def some(rows: int, vocabulary: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, vocabulary)) * 4).astype(np.float32)


def test_by_hand():
    """Three quarters against one half: 0.75 ln 1.5 + 0.25 ln 0.5. What does not matter is a constant in all logits."""
    found = differences((P + 7).astype(np.float32), (Q - 3).astype(np.float32), [1])
    assert found.kl[0] == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-6)
    assert found.reference_nll[0] == pytest.approx(math.log(4), abs=1e-6)
    assert found.nll[0] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 50])
def test_against_the_definition(rows):
    a, b = some(rows, 300, 1), some(rows, 300, 2)
    following = np.random.default_rng(3).integers(0, 300, rows).tolist()
    p = np.exp(a.astype(np.float64)) / np.exp(a.astype(np.float64)).sum(1, keepdims=True)
    q = np.exp(b.astype(np.float64)) / np.exp(b.astype(np.float64)).sum(1, keepdims=True)
    found = differences(a, b, following)
    assert len(found) == rows
    np.testing.assert_allclose(found.kl, (p * np.log(p / q)).sum(1), rtol=1e-9)
    np.testing.assert_array_equal(found.same, a.argmax(1) == b.argmax(1))
    np.testing.assert_allclose(found.reference_nll, -np.log(p[range(rows), following]), rtol=1e-9)
    np.testing.assert_allclose(found.nll, -np.log(q[range(rows), following]), rtol=1e-9)


def test_the_same_logits_are_no_distance_apart():
    a = some(40, 1000, 4)
    found = differences(a, a.copy(), [0] * 40)
    assert found.kl.max() == 0 and found.same.min() == 1
    np.testing.assert_array_equal(found.nll, found.reference_nll)


def test_logits_far_from_zero_do_not_overflow():
    a = some(3, 50, 5)
    np.testing.assert_allclose(differences(a + 5000, a - 5000, [0, 0, 0]).kl, 0, atol=1e-5)


def test_where_the_text_ends_there_is_no_next_token():
    found = differences(some(20, 50, 6), some(20, 50, 7), [1] * 19)
    assert np.isnan(found.nll[-1]) and np.isnan(found.reference_nll[-1])
    assert not np.isnan(found.nll[:-1]).any() and not np.isnan(found.kl).any()


def test_parts_joined_are_the_whole():
    a, b = some(30, 60, 8), some(30, 60, 9)
    whole = differences(a, b, [2] * 30)
    parts = joined([differences(a[:11], b[:11], [2] * 11), differences(a[11:], b[11:], [2] * 19)])
    np.testing.assert_array_equal(whole.kl, parts.kl)
    np.testing.assert_array_equal(whole.nll, parts.nll)


# ------------------------------------------------------------------ the likeliest tokens


def test_the_likeliest_in_order():
    logits = np.array([0.0, 3.0, 1.0, 3.5], np.float32)
    found = likeliest(logits, 3)
    assert list(found) == [3, 1, 2]
    assert found[3] == pytest.approx(log_softmax(logits)[3])
    assert len(likeliest(logits, 100)) == 4


@pytest.mark.parametrize("kept", [1, 5, 32])
def test_lumping_the_others_together_never_adds_distance(kept):
    """The inequality of data processing: what is told apart less is never farther apart."""
    for seed in range(20):
        a, b = some(1, 200, seed), some(1, 200, seed + 100)
        whole = differences(a, b, [0]).kl[0]
        assert 0 <= coarse_divergence(likeliest(a[0], kept), b[0]) <= whole + 1e-9


def test_with_all_tokens_kept_nothing_is_lost():
    a, b = some(1, 30, 10), some(1, 30, 11)
    assert coarse_divergence(likeliest(a[0], 30), b[0]) == pytest.approx(differences(a, b, [0]).kl[0], rel=1e-9)
    assert coarse_divergence(likeliest(a[0], 5), a[0]) == pytest.approx(0, abs=1e-12)


def test_a_token_that_cannot_be_any_more_is_far_but_finite():
    a = np.array([0.0, 0.0], np.float32)
    b = np.array([0.0, -80.0], np.float32)
    assert 10 < coarse_divergence(likeliest(a, 1), b) < 100
