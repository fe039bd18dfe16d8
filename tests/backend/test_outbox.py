"""What is on its way to an engine: in its order, without anybody waiting, and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe

import pytest

from kvchat.backend.outbox import MOST, Outbox
from kvchat.backend.outlooks import Forecast, Forget, Preview, Title, Warm
from kvchat.backend.pins import Pin
from kvchat.backend.protocol import Cancel, Command, Configure, Generate
from kvchat.backend.typing_ahead import ReadAhead
from kvchat.backend.values import EngineConfig, PromptMessage

LARGE = PromptMessage("user", "x" * (4 << 20))  # a pipe holds some hundred KB


@pytest.fixture
def ends() -> Iterator[tuple[Outbox, Connection]]:
    ours, theirs = Pipe(duplex=True)
    outbox = Outbox(ours)
    yield outbox, theirs
    theirs.close()
    outbox.end()
    ours.close()


def received(theirs: Connection) -> list[Command]:
    """All that comes up to the end of the pipe."""
    found = []
    try:
        while True:
            found.append(theirs.recv())
    except EOFError:
        return found


def blocked(outbox: Outbox, theirs: Connection) -> Command:
    """Keep the thread at a command that does not fit into the pipe, so that all that comes after it waits."""
    command = Generate("large", (LARGE,))
    outbox.put(command)
    assert theirs.poll(30)  # its beginning is there
    return command


def test_nobody_waits_for_one_who_does_not_read_and_the_order_stays(ends: tuple[Outbox, Connection]) -> None:
    outbox, theirs = ends
    sent = [Generate(str(number), (LARGE,)) for number in range(6)]
    for command in sent:
        assert outbox.put(command)
    outbox.hang_up()
    assert received(theirs) == sent  # hung up behind the last one


def test_of_what_only_looks_ahead_the_newest_is_sent(ends: tuple[Outbox, Connection]) -> None:
    outbox, theirs = ends
    first = blocked(outbox, theirs)
    config = EngineConfig("m")
    for number in "12":
        for command in (Warm(number, ()), Forecast(number, ()), ReadAhead(number, ()), Preview(number, (), config)):
            outbox.put(command)
    outbox.put(Generate("turn", ()))
    outbox.put(Forecast("3", ()))
    outbox.hang_up()
    assert received(theirs) == [
        *(first, Warm("2", ()), ReadAhead("2", ()), Preview("2", (), config)),
        *(Generate("turn", ()), Forecast("3", ())),
    ]


def test_too_much_is_not_taken_but_for_what_the_rest_stands_on(ends: tuple[Outbox, Connection]) -> None:
    outbox, theirs = ends
    first = blocked(outbox, theirs)
    many = [Title(str(number), ()) for number in range(MOST)]
    assert all(map(outbox.put, many))
    assert not outbox.put(Generate("one more", ()))
    assert not outbox.put(Pin("another", "prefix", ""))
    small = [Cancel("turn"), Configure(EngineConfig("m")), Forget("f"), Cancel("other")]
    assert all(map(outbox.put, small))
    assert outbox.put(Cancel("turn"))  # once is enough
    outbox.hang_up()
    assert received(theirs) == [first, *many, *small]


@pytest.mark.parametrize("is_full", [False, True])
def test_one_who_is_gone_holds_nobody_up(is_full: bool) -> None:
    """Neither a thread that waits for a command nor one in the middle of writing it stays."""
    ours, theirs = Pipe(duplex=True)
    outbox = Outbox(ours)
    if is_full:
        blocked(outbox, theirs)
        outbox.put(Generate("behind it", (LARGE,)))
    theirs.close()
    outbox.end()
    assert not outbox._thread.is_alive()
    assert outbox.put(Generate("late", ()))
    ours.close()
