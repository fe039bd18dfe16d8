"""What the words of the command line mean, and which sizes suit a machine."""

from __future__ import annotations

import pytest

from kvchat.bench.pool import Pool
from kvchat.bench.wanted import (
    USUAL,
    Wanted,
    pair_name,
    read_depths,
    read_parts,
    read_rounds,
    read_threads,
)
from kvchat.errors import UsageError


def test_parts_come_in_their_order_and_once() -> None:
    assert read_parts([]) == USUAL
    assert "fidelity" not in USUAL  # it takes longer than all others together
    assert read_parts(["fidelity", "speed", "memory", "speed"]) == ("memory", "speed", "fidelity")
    with pytest.raises(UsageError, match="'sped'") as error:
        read_parts(["sped"])
    assert "speed" in error.value.hint


def test_numbers() -> None:
    assert read_threads("2, 1,2") == (2, 1)
    assert read_threads("0") == ()  # automatic, as everywhere
    assert read_depths("1024,0") == (0, 1024)
    assert read_rounds("5") == 5


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_threads, "0,1"),
        (read_threads, "x"),
        (read_threads, "1025"),
        (read_depths, ""),
        (read_depths, "-1"),
        (read_depths, "99999999999"),
        (read_depths, "²"),
        (read_rounds, "0"),
        (read_rounds, "1,2"),
        (read_rounds, "101"),
    ],
)
def test_numbers_that_are_none(read, text: str) -> None:
    with pytest.raises(UsageError) as error:
        read(text)
    assert "for example" in error.value.hint


def test_depths_end_where_the_context_does() -> None:
    """8,192 tokens hold 7,888 and the 304 that are measured behind them: 61 whole pages of 128."""
    depths, notes = Wanted().depths_within(8192, 304, rate=1000.0)
    assert depths == (0, 1024, 4096, 7808)
    assert notes == ("depth 7,808 in place of 8,192: the context ends at 8,192 tokens",)
    small, notes = Wanted().depths_within(2048, 304, rate=1000.0)
    assert small == (0, 1024, 1664)
    assert len(notes) == 2  # 4,096 is cut, and 8,192 would be the same


def test_depths_that_take_too_long_are_left_out_unless_somebody_names_them() -> None:
    depths, notes = Wanted().depths_within(9000, 304, rate=20.0)  # 4,096 tokens would take 205 seconds
    assert depths == (0, 1024)
    assert "205 seconds" in notes[0] and "--depths 4096" in notes[0]
    assert Wanted(depths=(4096,)).depths_within(9000, 304, rate=20.0) == ((4096,), ())


def test_a_context_that_is_large_enough() -> None:
    assert Wanted().context(0) == 8704  # 8,192 and 512
    assert Wanted().context(4096) == 4096
    assert Wanted(quick=True).context(131072) == 2560


def test_chats_are_as_long_as_the_machine_is_fast() -> None:
    assert Wanted().chat_tokens(100.0, 8192) == 384  # five seconds, in whole pages
    assert Wanted().chat_tokens(1.0, 8192) == 256
    assert Wanted().chat_tokens(1e6, 8192) == 2048
    assert Wanted().chat_tokens(1e6, 512) == 384
    assert Wanted().turn_tokens(200.0, 8192, 10) == 160  # 55 are read in all: in 45 seconds 163 tokens each
    assert Wanted().turn_tokens(1e6, 8192, 10) == 256
    assert Wanted().turn_tokens(1e6, 1024, 10) == 87  # eleven of them fit


def test_names_of_types() -> None:
    assert pair_name(("q8_0", "q8_0")) == "q8_0"
    assert pair_name(("q8_0", "q4_0")) == "q8_0/q4_0"


def test_prompts_begin_each_elsewhere() -> None:
    pool = Pool(range(1000))
    drawn = [pool.fresh(5) for _ in range(1000)]
    assert len({prompt[0] for prompt in drawn}) == 1000
    assert Pool(range(3)).fresh(7) == (0, 1, 2, 0, 1, 2, 0)
