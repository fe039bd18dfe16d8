"""ULIDs: order, form, and what the specification gives as an example."""

from __future__ import annotations

from kvchat.chats.ids import UlidSource, new_ulid


def test_known_value() -> None:
    # The specification's example time: 1469918176385 ms is 01ARYZ6S41; 80 one bits are sixteen Z.
    source = UlidSource(clock=lambda: 1469918176.3855, entropy=lambda count: b"\xff" * count)
    assert source() == "01ARYZ6S41" + "Z" * 16


def test_ascending_within_a_millisecond_and_when_the_clock_goes_back() -> None:
    times = iter([100.0, 100.0, 100.0, 50.0, 100.0005, 100.001])
    source = UlidSource(clock=lambda: next(times), entropy=lambda count: b"\xff" * count)
    made = [source() for _ in range(6)]
    assert made == sorted(set(made))


def test_form() -> None:
    made = [new_ulid() for _ in range(1000)]
    assert made == sorted(set(made))
    assert all(len(each) == 26 and set(each) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for each in made)
