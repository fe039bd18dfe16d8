"""The numbers of a turn, as a line for a person. The JSON object is tested with `ask`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_backend import make_ready

from kvchat.backend.values import EngineConfig, Usage
from kvchat.commands.report import Answer, report, summary, tokens_per_second
from kvchat.commands.turn import as_asked


def test_speed_of_nothing_is_zero() -> None:
    assert tokens_per_second(Usage(decode_tokens=1)) == 0.0
    assert tokens_per_second(Usage(decode_tokens=30, decode_seconds=0.5)) == 60.0


@pytest.mark.parametrize("cut", ["cache type", "version", "refused", None])
def test_the_report_has_the_cut(cut: str | None) -> None:
    made = report(Answer("c", "m", "t", "stop"), make_ready(), Usage(10, 5, 5, cut=cut))
    assert made["prompt"]["cut"] == cut  # type: ignore[index]


def test_seconds_are_rounded_to_microseconds() -> None:
    made = report(Answer("c", "m", "t", "stop"), make_ready(), Usage(restore_seconds=0.01026792600009685))
    assert made["prompt"]["restore_seconds"] == 0.010268  # type: ignore[index]


@pytest.mark.parametrize(
    ("usage", "overflow"),
    [
        (Usage(), None),
        (Usage(overflow="stop"), {"policy": "stop", "evicted": 0, "evictions": 0, "reasoning": 0}),
        (
            Usage(overflow="shift", evicted=256, evictions=2),
            {"policy": "shift", "evicted": 256, "evictions": 2, "reasoning": 0},
        ),
        (Usage(reasoning_evicted=214), {"policy": None, "evicted": 0, "evictions": 0, "reasoning": 214}),
    ],
)
def test_the_report_tells_what_left(usage: Usage, overflow: dict[str, object] | None) -> None:
    assert report(Answer("c", "m", "t", "stop"), make_ready(), usage)["overflow"] == overflow


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (
            Usage(80, 76, 4, 0, 76, 0, None, 0.01, 0.12, 0.0, 6, 0.1),
            "prompt 80 tokens: 76 reused (76 from pages), 4 computed in 0.13 s · answer 6 tokens, 60.0/s",
        ),
        (
            Usage(80, 76, 4, 0, 76, transcoded="f16", transcoded_tokens=70),
            "prompt 80 tokens: 76 reused (76 from pages, 70 transcoded from f16), 4 computed",
        ),
        (
            Usage(10, 8, 2, resident=5, pages=3, decode_tokens=1, decode_seconds=1.0),
            "prompt 10 tokens: 8 reused (5 from memory, 3 from pages), 2 computed in 0.00 s · answer 1 token, 1.0/s",
        ),
        (
            Usage(8, 0, 8, decode_tokens=40, decode_seconds=0.5, draft_kind="ngram", draft_proposed=30),
            "answer 40 tokens, 80.0/s · drafts 0 of 30 (n-gram)",
        ),
        (
            Usage(decode_tokens=40, decode_seconds=0.5),
            "answer 40 tokens, 80.0/s",
        ),
        (
            Usage(draft_kind="model", draft_proposed=1300, draft_accepted=1200, draft_speedup=1.25),
            " · drafts 1,200 of 1,300 (draft model), 1.25 times plain",
        ),
        (Usage(overflow="stop"), "answer 0 tokens, 0.0/s"),
        (Usage(overflow="shift", evicted=1280, evictions=2), " · let 1,280 tokens go (shift)"),
        (Usage(reasoning_evicted=214), " · reasoning of earlier answers left: 214 tokens"),
        # a restore that did not help says why, in the engine's words
        *(
            (Usage(10, 0, 10, cut=cut), f"10 computed (cut: {cut})")
            for cut in ("corrupt page", "cache type", "version", "refused", "what a later engine says")
        ),
    ],
)
def test_summary(usage: Usage, words: str) -> None:
    assert words in summary(usage)


# Each row: what was asked for, what is changed of an f16 context of 4096 tokens without flash attention, as asked?
@pytest.mark.parametrize(
    ("asked", "changes", "expected"),
    [
        ({}, {"extra_buffers": False}, True),  # nobody asks for these
        ({"flash_attention": "auto"}, {"flash_attention": True}, True),
        ({"flash_attention": "on"}, {}, False),
        ({"flash_attention": "off"}, {"flash_attention": True}, False),
        ({"type_k": "q8_0"}, {}, False),
        ({"type_v": "q8_0"}, {"type_v": "q8_0"}, True),
        ({"context": 4000}, {}, True),  # rounded up
        ({"context": 8192}, {}, False),
        ({"threads": 2}, {"threads": 1}, False),
    ],
)
def test_as_asked(asked: dict[str, object], changes: dict[str, object], expected: bool) -> None:
    cache = replace(make_ready().cache, **changes)  # type: ignore[arg-type]
    assert as_asked(EngineConfig("m.gguf", **asked), cache) is expected  # type: ignore[arg-type]
