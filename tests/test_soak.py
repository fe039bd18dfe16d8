"""A short soak, of which `benchmarks/soak.py` makes a long one, and whether it would see what it looks for.

Memory needs thousands of turns to be judged: here it is what must hold after any number of them.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from soak_campaign import Campaign, Leg
from soak_checks import Ledger, check_end
from soak_growth import FEWEST, Series, growth, per_turn, second_half, series_of, too_much, unsteady
from soak_measuring import POSSIBLE, Use, own_use

TURNS = 40  # of a leg
BUDGET = 1 << 20
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="it looks into /proc, and asks glibc")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    home = tmp_path_factory.mktemp("soak")
    legs = [
        Leg("exact", tiny.build("llama", home, weights="q4_1", name="exact"), exact=True, every=10),
        Leg("window and states", tiny.build("lfm2swa", home), ("f16", "q8_0"), every=20),
    ]
    campaign = Campaign(home, random.Random(3), legs, BUDGET)
    campaign.run(lambda _, turns: turns < TURNS)
    return campaign


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_left(campaign: Campaign) -> None:
    assert campaign.problems == []
    assert unsteady(series_of(campaign.samples)) == []
    assert campaign.turns >= 2 * TURNS
    assert campaign.compared["compared"] > 0
    assert campaign.compared["reused tokens"] > 0
    assert sum(not what.startswith("refused") for what in campaign.done) > 15


def test_the_store_had_to_evict(campaign: Campaign) -> None:
    """Else its budget says nothing."""
    assert BUDGET * 0.7 < campaign.most_stored <= BUDGET


def test_what_is_lost_would_be_seen(campaign: Campaign, tmp_path: Path) -> None:
    home = campaign.home / "kvchat"
    ledger = Ledger(campaign.home / "said.jsonl")
    said, gone = ledger.read()
    message = next(name for name, (chat, _) in reversed(said.items()) if chat not in gone)
    with closing(sqlite3.connect(home / "chats.db")) as raw, raw:
        raw.execute("UPDATE messages SET text = text || 'x' WHERE id = ?", (message,))
    page = next(home.glob("kv/pages/*/??/*"))
    page.unlink()
    stray = home / "kv" / "stray.tmp"
    stray.touch(mode=0o600)
    found = check_end(home, ledger)
    assert f"message {message} is another one" in found
    assert "a file is too many: kv/stray.tmp" in found
    assert any("stale=1" in each for each in found), found
    assert len(found) == 3


# ------------------------------------------------------------------ what is growth


def series(*heaps: float) -> Series:
    """So many MiB in use after each ten turns."""
    use = Use(50 * MIB, 50 * MIB, 10 * MIB, 0, 1000, 9, 5)
    return [(10 * number, replace(use, heap=int(heap * MIB))) for number, heap in enumerate(heaps)]


def test_a_rise_is_seen_and_its_size_told() -> None:
    rising = series(*(10 + 0.25 * number for number in range(20)))
    found = growth({"engine": rising})
    assert [(each.what, each.each, each.total) for each in found if each.each] == [("in use", MIB / 40, MIB / 40 * 90)]
    assert len(too_much(found)) == 1


@pytest.mark.parametrize(
    "heaps",
    [
        [*range(10), *[10] * 11],  # a cache that fills
        [10, 11] * 10,  # up and down
        [*[10] * 12, 30, *[10] * 7],  # once
        [10 + number / 4 for number in range(2 * FEWEST - 2)],  # too short to be judged
    ],
)
def test_what_is_no_growth(heaps: list[float]) -> None:
    assert too_much(growth({"engine": series(*heaps)})) == []


def test_the_median_of_slopes() -> None:
    assert per_turn([(0, 0), (1, 2), (2, 100), (3, 6)]) == 2  # the middle of -94, 2, 2, 2, 50, 98
    assert per_turn([(0, 5)]) == 0
    assert [turns for turns, _ in second_half(series(1, 1, 1, 1, 1))] == [20, 30, 40]


def test_a_thread_more_is_seen() -> None:
    steady = series(*[10] * 8)
    late = steady[-1][0], replace(steady[-1][1], threads=6)
    assert unsteady({"engine": steady}) == []
    assert unsteady({"engine": [*steady[:-1], late]}) == ["engine: 6 threads, in the first half at most 5"]


def test_what_this_process_has() -> None:
    before = own_use()
    held = bytearray(64 * MIB)
    with Path("/dev/null").open() as _:
        after = own_use()
    assert after.heap - before.heap >= len(held)
    assert after.descriptors - before.descriptors == 1
