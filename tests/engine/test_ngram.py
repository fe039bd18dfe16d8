"""The lookup against a search through everything, for random chats that grow and are cut."""

from __future__ import annotations

import random

import pytest

from kvchat.engine.drafting import Draft
from kvchat.engine.ngram import BOUNDS, GRAMS, LONGEST, NgramDrafter, NgramIndex


def reference(ids: list[int]) -> tuple[int, int]:
    """The longest match of the end, of several the most recent, by comparing with every place."""
    best, at = 0, 0
    for position in range(1, len(ids)):
        most = min(position, LONGEST)
        length = next((n for n in range(most) if ids[position - 1 - n] != ids[-1 - n]), most)
        if length >= max(best, GRAMS[0]):
            best, at = length, position
    return best, at


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_and_most_recent_match_is_found(seed):
    """Few letters make many matches, but fewer than are compared for a length."""
    rng = random.Random(seed)
    index, ids = NgramIndex(), []
    for _ in range(120):
        if rng.random() < 0.1:
            length = rng.randrange(len(ids) + 1)
            ids = ids[:length]
            index.cut(length)
        elif ids and rng.random() < 0.3:
            start = rng.randrange(len(ids))
            ids = ids + ids[start : start + rng.randrange(40)]
        else:
            ids = [*ids, rng.randrange(12)]
        index.grow(ids)
        assert index.ids == ids
        assert index.longest() == reference(ids)


def test_following_another_chat_is_as_good_as_beginning_with_it():
    rng = random.Random(1)
    index = NgramIndex()
    for _ in range(50):
        shared = index.ids[: rng.randrange(len(index.ids) + 1)]
        ids = [*shared, *(rng.randrange(6) for _ in range(rng.randrange(60)))]
        index.follow(ids)
        fresh = NgramIndex()
        fresh.follow(ids)
        assert index.longest() == fresh.longest()
        assert index._last == fresh._last
        assert index._before == fresh._before


def test_many_places_are_not_all_compared():
    """Of very many matches of the same short kind the most recent ones are; a longer n-gram leads to an older one."""
    ids = [*range(100, 130), *([7, 8] * 500), *range(100, 115)]
    index = NgramIndex()
    index.follow(ids)
    assert index.longest() == (15, 15)


def test_what_followed_is_drafted():
    drafter = NgramDrafter()
    ids = [1, 2, 3, 4, 5, 6, 9, 2, 3]
    drafter.begin(ids[:4])
    assert drafter.draft(ids, 3) == Draft((4, 5, 6), 0)
    assert drafter.draft([*ids, 4, 5], 10) == Draft((6, 9, 2, 3, 4, 5, 6, 9, 2, 3), 2)  # goes round at the end
    assert drafter.draft([*ids, 4, 5, 77], 3) == Draft()
    assert drafter.behind(ids) == 0


def test_a_repetition_goes_on():
    drafter = NgramDrafter()
    assert drafter.draft([5, 5, 5, 5], 4).tokens == (5, 5, 5, 5)
    drafter = NgramDrafter()
    assert drafter.draft([1, 2, 3, 1, 2, 3, 1, 2], 7).tokens == (3, 1, 2, 3, 1, 2, 3)


def test_trust_grows_with_the_length_of_the_match():
    trusts = []
    for length in (2, *BOUNDS, LONGEST):
        drafter = NgramDrafter()
        text = list(range(100, 100 + length))
        trusts.append(drafter.draft([*text, 1, *text], 1).trust)
    assert trusts == [0, 1, 2, 3, 4, 5, 5]


def test_short_chats():
    drafter = NgramDrafter()
    drafter.begin([])
    assert drafter.draft([1], 3) == Draft()
    assert drafter.draft([1, 1], 3) == Draft()
    assert drafter.draft([1, 1, 1], 3) == Draft((1, 1, 1), 0)
    drafter.finish([])
    assert drafter.draft([1, 1], 3) == Draft()


def test_it_follows_a_long_chat_in_little_time_a_token():
    """Counted in steps, not seconds: a lookup compares at most so many places for each length."""
    index = NgramIndex()
    index.follow([3] * 5000)
    compared = []
    length = index._length
    index._length = lambda position: compared.append(position) or length(position)
    assert index.longest()[0] == LONGEST
    assert len(compared) <= 16 * len(GRAMS)
