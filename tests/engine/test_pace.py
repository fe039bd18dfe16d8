"""How much is read beside running answers, on machines whose steps take what a function of the tokens says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kvchat.engine.pace import FACTORS, SIZES, Pace

MOST = 256


def run(favour, cost, steps, pace=None):
    """Steps with one answer: (tokens read, seconds) of each. `cost(tokens)` of a batch, in steps of one token."""
    pace = pace or Pace()
    found = []
    for _ in range(steps):
        read = pace.quota(favour, 1, MOST)
        seconds = cost(1 + read) / 100
        pace.learn(favour, 1, read, seconds)
        found.append((read, seconds))
    return found


CPU = lambda tokens: 1.0 if tokens == 1 else 2.2 + 0.15 * tokens  # noqa: E731 (two cost twice as much, ten no ten times)
FAST = lambda tokens: 1.0 + tokens / 512  # noqa: E731 (a GPU: the weights are read once in any case)
SLOW = float


@pytest.mark.parametrize("cost", [CPU, FAST, SLOW], ids=["cpu", "gpu", "slow"])
@pytest.mark.parametrize("favour", ["answers", "balanced"])
def test_a_token_takes_no_longer_than_it_may_on_average(favour, cost):
    """And something is read: nothing starves."""
    told = run(favour, cost, 400)
    settled = told[100:]
    mean = sum(seconds for _, seconds in settled) / len(settled)
    assert mean * 100 <= FACTORS[favour] * 1.05
    assert sum(read for read, _ in settled) >= len(settled) * SIZES[0] // 8


def test_balanced_reads_more_and_prompts_most():
    read = {favour: sum(read for read, _ in run(favour, CPU, 300)) for favour in ("answers", "balanced", "prompts")}
    assert read["answers"] < read["balanced"] < read["prompts"] == 300 * MOST


def test_a_gpu_reads_whole_batches_beside_answers():
    assert max(read for read, _ in run("balanced", FAST, 100)) == MOST
    assert max(read for read, _ in run("answers", FAST, 100)) >= MOST // 4


def test_answers_alone_are_the_measure_and_measured_again():
    told = run("answers", FAST, 300)
    assert told[0][0] == 0
    alone = [i for i, (read, _) in enumerate(told) if not read]
    assert len(alone) > 3
    assert max(b - a for a, b in pairwise(alone)) <= 65


def test_other_numbers_of_answers_are_measured_by_themselves():
    pace = Pace()
    run("answers", CPU, 50, pace)
    assert pace.quota("answers", 2, MOST) == 0


def test_one_very_long_step_does_not_stop_reading():
    pace = Pace()
    run("answers", CPU, 60, pace)
    pace.learn("answers", 1, 4, 100.0)  # the machine slept
    told = run("answers", CPU, 40, pace)
    assert sum(read for read, _ in told) > 0
