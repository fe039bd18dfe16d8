"""Histories with evictions: which tokens are left, where pages end, what two histories share."""

from __future__ import annotations

import random

import pytest

from kvchat.formats.past import (
    READ,
    Eviction,
    Numbering,
    Past,
    count,
    dead,
    first_live,
    intact,
    joined,
    live,
    pages,
    resolve,
    shared,
    spans,
)

IDS = tuple(range(1000, 2000))
EARLY = Eviction(300, ((4, 100),))
LATE = Eviction(500, ((100, 200), (310, 350)))


def test_ranges_are_joined_where_they_touch() -> None:
    assert joined([(5, 9), (1, 3), (3, 4), (8, 12), (20, 20)]) == [(1, 4), (5, 12)]


def test_what_is_dead_and_what_is_left() -> None:
    assert dead([EARLY, LATE], 499) == [(4, 100)]
    assert dead([EARLY, LATE], 500) == [(4, 200), (310, 350)]
    assert live(0, 400, dead([EARLY, LATE], 500)) == [(0, 4), (200, 310), (350, 400)]
    assert live(50, 320, [(4, 200), (310, 350)]) == [(200, 310)]
    assert live(10, 20, [(4, 200)]) == []
    assert count(live(0, 500, dead([EARLY, LATE], 500))) == 500 - EARLY.tokens - LATE.tokens
    assert [first_live(at, [(4, 100)]) for at in (0, 3, 4, 99, 100)] == [0, 3, 100, 100, 100]


def test_an_eviction_ends_a_page_and_begins_another() -> None:
    assert pages(300, [], 128) == [(0, 128), (128, 256), (256, 300)]
    assert pages(600, [EARLY, LATE], 128) == [
        (0, 128),
        (128, 256),
        (256, 300),
        (300, 428),
        (428, 500),
        (500, 600),
    ]


def test_two_evictions_at_one_place_come_before_one_stretch() -> None:
    other = Eviction(300, ((150, 160),))
    assert [(span.start, span.end, span.before) for span in spans(400, [EARLY, other])] == [
        (0, 300, ()),
        (300, 400, (EARLY, other)),
    ]


def test_what_histories_share() -> None:
    plain = Past(IDS[:600])
    assert shared(plain, Past(IDS[:450])) == (450, 0)
    assert shared(Past((*IDS[:400], 7)), plain) == (400, 0)
    evicted = Past(IDS[:600], (EARLY, LATE))
    assert shared(evicted, Past(IDS[:700], (EARLY, LATE))) == (600, 2)
    assert shared(evicted, Past(IDS[:450], (EARLY,))) == (450, 1)
    assert shared(evicted, Past(IDS[:700], (EARLY,))) == (500, 1)  # it has what the other lacks from there on
    assert shared(evicted, plain) == (300, 0)
    assert shared(evicted, Past(IDS[:700], (Eviction(300, ((4, 99),)), LATE))) == (300, 0)
    assert shared(Past(IDS[:600], (), b"moved"), plain) == (0, 0)


def test_one_cannot_go_back_behind_an_eviction_but_to_what_it_left_alone() -> None:
    assert intact([], 0, 77) == 77
    assert intact([EARLY, LATE], 2, 550) == 550
    assert intact([EARLY, LATE], 2, 500) == 500
    assert intact([EARLY, LATE], 2, 499) == 4  # to 100 at most, and the early one lies behind that
    assert intact([EARLY, LATE], 1, 600) == 4
    late = Eviction(500, ((310, 350),))
    assert intact([EARLY, late], 1, 600) == 310
    assert intact([EARLY, late], 2, 305) == 305


def tokens_left(ids: tuple[int, ...], log: list[Eviction], length: int) -> list[int]:
    """By the meaning of a log, one token at a time."""
    gone = {at for each in log if each.at <= length for start, end in each.ranges for at in range(start, end)}
    return [token for at, token in enumerate(ids[:length]) if at not in gone]


@pytest.mark.parametrize("seed", range(40))
def test_a_log_says_the_same_however_often_positions_were_given_anew(seed: int) -> None:
    """What is live after a log with renumberings is what is live without them; and what happens to the present history
    is written into the log so that it is read as that."""
    rng, log, length = random.Random(seed), [], 200
    for _ in range(6):
        past, numbering = resolve(IDS[:length], log)
        gone = dead(past.evictions, len(past.ids))
        left = [past.ids[at] for start, end in live(0, len(past.ids), gone) for at in range(start, end)]
        assert left == tokens_left(IDS, log, length)
        free = [at for start, end in live(4, len(past.ids) - 1, gone) for at in range(start, end)]
        start = rng.choice(free)
        ranges = tuple(live(start, min(start + rng.randrange(1, 60), len(past.ids) - 1), gone))
        log.append(numbering.logged(Eviction(len(past.ids), ranges, rng.choice(["", "", READ, "ab" * 32]))))
        assert log[-1].at == length
        length += rng.randrange(1, 100)
    past, numbering = resolve(IDS[:length], log)
    for at, token in enumerate(past.ids):
        assert IDS[numbering.index(at)] == token
        assert numbering.position(numbering.index(at)) == at


def test_positions_of_tokens_that_are_gone_are_those_of_the_next_ones() -> None:
    numbering = Numbering(((0, 4), (100, 110)), 200)
    assert [numbering.position(index) for index in (3, 4, 99, 100, 109, 150, 200, 203)] == [3, 4, 4, 4, 13, 14, 14, 17]


def test_renumbered_twice_at_once() -> None:
    numbering = Numbering(((0, 4), (100, 110)), 200)
    again = numbering.renewed(20, [(0, 2), (6, 20)])
    assert again == Numbering(((0, 2), (102, 110), (200, 206)), 206)
