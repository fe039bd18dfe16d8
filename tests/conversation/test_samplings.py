"""What several answers differ in: how a person says it, and what is drawn."""

from __future__ import annotations

import pytest

from kvchat.backend.choices import MOST_PARALLEL
from kvchat.backend.values import Sampling
from kvchat.config_options import LARGEST_SEED
from kvchat.conversation.samplings import DRAWN_SEEDS, USUAL, all_alike, differing, wished
from kvchat.errors import KvchatError

FIXED = Sampling(seed=7, temperature=0.5)


def test_a_fixed_seed_goes_on_from_itself() -> None:
    assert [each.seed for each in differing(FIXED, 3)] == [7, 8, 9]
    last = differing(Sampling(seed=LARGEST_SEED), 2)
    assert [each.seed for each in last] == [LARGEST_SEED, 0]
    assert {each.temperature for each in differing(FIXED, 3)} == {0.5}


def test_drawn_seeds_differ_and_can_be_told() -> None:
    seeds = [each.seed for each in differing(Sampling(), MOST_PARALLEL)]
    assert len(set(seeds)) == MOST_PARALLEL
    assert all(seed is not None and 0 <= seed < DRAWN_SEEDS for seed in seeds)


@pytest.mark.parametrize("count", [-1, 0, 1, MOST_PARALLEL + 1])
def test_a_number_that_cannot_be(count: int) -> None:
    with pytest.raises(KvchatError, match="side by side"):
        differing(FIXED, count)


@pytest.mark.parametrize(
    ("words", "seeds", "temperatures"),
    [
        ("", [7 + number for number in range(USUAL)], [0.5] * USUAL),
        ("2", [7, 8], [0.5, 0.5]),
        ("3 0.2 0.8 1.4", [7, 7, 7], [0.2, 0.8, 1.4]),
        ("temp 0 1", [7, 7], [0.0, 1.0]),
        ("2 TEMP 0 1", [7, 7], [0.0, 1.0]),
        ("2 0 1.0", [7, 7], [0.0, 1.0]),
        ("2 11 12", [11, 12], [0.5, 0.5]),
        ("seed 11 12 13", [11, 12, 13], [0.5, 0.5, 0.5]),
        ("seed 11 -1", [11, 8], [0.5, 0.5]),
    ],
)
def test_what_a_person_asks_for(words: str, seeds: list[int], temperatures: list[float]) -> None:
    found = wished(words, FIXED)
    assert [each.seed for each in found] == seeds
    assert [each.temperature for each in found] == temperatures


def test_temperatures_without_a_fixed_seed_have_drawn_ones() -> None:
    low, high = wished("temp 0.1 0.9", Sampling())
    assert None not in (low.seed, high.seed)
    assert low.seed != high.seed


@pytest.mark.parametrize(
    "words",
    ["x", "1", "99", "1000", "3 0.2 0.8", "temp", "2 temp", "temp 0.5", "seed x 2", "temp 0.5 -3", "2.5", "²", "-3"],
)
def test_what_is_none_of_these(words: str) -> None:
    with pytest.raises(KvchatError):
        wished(words, FIXED)


def test_nothing_makes_greedy_answers_differ() -> None:
    assert all_alike(differing(Sampling(temperature=0.0), 2))
    assert not all_alike(wished("temp 0 1", FIXED))
