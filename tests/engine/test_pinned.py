"""Which tokens of a prompt are those of a pinned message."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kvchat.backend.protocol import Generate
from kvchat.backend.values import PromptMessage
from kvchat.engine.evicting import Room
from kvchat.engine.overflow import SINKS
from kvchat.formats.past import Numbering, Past

NONE = cast("Any", None)


@pytest.mark.parametrize(
    ("pinned", "segments", "kept"),
    [
        ((1,), (0, 10, 5, 10), [(0, 10)]),
        ((2, 3), (0, 10, 5, 10), [(10, 15), (15, 25)]),
        ((1,), (0, 0, 12, 5), [(0, 12)]),  # two messages of a person in a row: the tokens of both are in the second
        ((), (0, 10, 5, 10), []),
    ],
)
def test_what_is_kept(pinned: tuple[int, ...], segments: tuple[int, ...], kept: list[tuple[int, int]]) -> None:
    messages = tuple(PromptMessage("user", str(number)) for number in range(len(segments)))
    request = Generate("t", messages, overflow="sinks", pinned=pinned)
    room = Room(request, NONE, 512, 0, 64, NONE, NONE, lambda event: None)
    ids = [tuple(range(count)) for count in segments]
    room.begin(Past([0] * sum(segments)), Numbering(), ids, 0)
    assert room._kept == [(0, SINKS), *kept]
