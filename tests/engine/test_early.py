"""The record of what was read while the person typed."""

from __future__ import annotations

from kvchat.engine.early import Early


def test_what_is_read_is_used_by_the_turn():
    early = Early()
    early.hold(100)
    early.read(90, 120)
    early.read(120, 150)
    assert (early.used(150), early.used(130), early.used(50)) == (60, 40, 0)
    assert early.committed(150) == 100
    assert early.committed(95) == 95
    assert early.settle(150) == (60, 0)
    assert early.committed(150) == 150
    assert early.settle(150) == (0, 0)


def test_what_goes_is_wasted_once():
    early = Early()
    early.read(10, 40)
    assert early.wasted(25) == 15
    early.cut(25)
    assert (early.wasted(25), early.used(25)) == (15, 15)
    early.cut(25)
    early.read(25, 30)
    assert early.wasted(30) == 15
    assert early.settle(30) == (20, 15)


def test_what_comes_after_a_cut_to_what_is_committed_is_not_held_back():
    """It is of another chat, which has read nothing early."""
    early = Early()
    early.hold(100)
    early.read(100, 150)
    early.cut(120)
    assert early.committed(150) == 100
    early.cut(100)
    assert early.committed(150) == 150


def test_a_turn_that_has_fewer_of_them_resident_wasted_the_others():
    early = Early()
    early.read(0, 40)
    assert early.settle(30) == (30, 10)


def test_what_was_broken_off_is_wasted():
    early = Early()
    early.read(0, 16)
    early.lost(64)
    assert early.settle(16) == (16, 64)


def test_only_a_run_from_the_first_token_counts_from_the_start():
    early = Early()
    early.read(5, 20)
    assert early.from_the_start == 0
    early.cut(0)
    early.read(0, 20)
    early.read(30, 40)
    assert early.from_the_start == 20


def test_the_waste_of_another_chat_is_told_once():
    one, other = Early(), Early()
    other.read(0, 20)
    other.cut(0)
    one.adopt(other)
    assert (one.settle(0), other.settle(0)) == ((0, 20), (0, 0))
