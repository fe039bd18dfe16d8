"""The tokens of a reply's reasoning: counted one by one, however text and tags are cut into tokens."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from driver import Driver

from kvchat.backend.protocol import TextDelta
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.engine import thought
from kvchat.engine.thought import Thought

# Each row: what stands before the reasoning, the reasoning, what stands behind it.
REPLIES = [
    ("<think>", "\nhmm, 键值 🚀\n", "</think>\n\nYes."),
    ("\n<think>", "a", "</think>b"),
    ("<|channel|>analysis<|message|>", "a b", "<|end|><|start|>assistant<|channel|>final<|message|>b"),
    ("<think>", "a" * 9_000, "</think>" + "b" * 9_000),
    ("<think>", "a <think> b", "</think>c</think>d"),
    ("<think>", "not to its end", ""),
    ("", "hmm\n", ""),  # no token of an answer is one of a thought
    ("", "The tag <think>a</think> is", ""),
    ("<|channel|>final<|message|>", "", "Yes."),
    ("", "", ""),
]
ANSWERS = {"hmm\n", "The tag <think>a</think> is"}


def cut(raw: bytes, seed: int) -> list[bytes]:
    """Tokens of one to six bytes, so that tags and characters are cut anywhere."""
    chance = random.Random(seed)
    tokens = []
    while raw:
        size = chance.randint(1, 6)
        tokens.append(raw[:size])
        raw = raw[size:]
    return tokens


def begun_within(tokens: list[bytes], start: int, end: int) -> int:
    """Tokens that begin in `[start, end)` of the text; one that begins inside a character begins where that does."""
    found, read = 0, b""
    for token in tokens:
        complete = len(read.decode("utf-8", "ignore"))
        found += start <= complete < end
        read += token
    return found


@pytest.mark.parametrize(("before", "reasoning", "behind"), REPLIES)
@pytest.mark.parametrize("seed", range(5))
def test_tokens_that_begin_between_the_tags(before: str, reasoning: str, behind: str, seed: int) -> None:
    tokens = cut((before + reasoning + behind).encode(), seed)
    counted = Thought(lambda number: tokens[number])
    for number in range(len(tokens)):
        counted.feed([number])
    reasoned = "" if reasoning in ANSWERS else reasoning
    assert counted.tokens == begun_within(tokens, len(before), len(before) + len(reasoned))
    assert (counted.seconds > 0) == (counted.tokens > 0)


@pytest.mark.parametrize("behind", ["\n</think>\n\nYes.", "</think>\nYes."])
def test_a_reply_that_closes_what_it_did_not_open(behind: str) -> None:
    """All before it was thought; the line feed before the tag is not."""
    tokens = [bytes([byte]) for byte in ("hmm " * 2_000 + behind).encode()]
    counted = Thought(lambda number: tokens[number])
    counted.feed(range(8_000))
    assert counted.tokens == 0
    counted.feed(range(8_000, len(tokens)))
    assert counted.tokens == 8_000


def test_a_tag_that_is_told_about_closes_nothing() -> None:
    text = "Write <think> first, " + "x" * 9_000 + "\n</think>\n"
    tokens = [bytes([byte]) for byte in text.encode()]
    counted = Thought(lambda number: tokens[number])
    counted.feed(range(len(tokens)))
    assert counted.tokens == 0


def test_a_block_that_the_prompt_opens() -> None:
    tokens = [b"Let", b" me", b" see", b"</", b"think>", b"Yes"]
    counted = Thought(lambda number: tokens[number])
    counted.begin("<|im_start|>assistant\n<think>\n")
    counted.feed([0, 1])
    assert counted.tokens == 2
    counted.feed([2, 3, 4, 5])
    assert counted.tokens == 3


def test_what_was_thought_in_an_earlier_turn_counts_but_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(thought.time, "perf_counter", lambda: now[0])
    tokens = [b"<think>", b"a", b" b", b" c", b"</think>", b"d", b"e"]
    counted = Thought(lambda number: tokens[number])
    counted.recall([0, 1, 2])
    assert (counted.tokens, counted.seconds) == (2, 0.0)
    for number in range(3, 7):
        counted.feed([number])
        now[0] += 2
    assert (counted.tokens, counted.seconds) == (3, 2.0)


def test_counting_costs_the_same_for_every_token() -> None:
    """Fifty thousand tokens of a thought without end, and of an answer."""
    for opening in (b"<think>", b"Yes"):
        counted = Thought(lambda number, opening=opening: b" word" if number else opening)
        counted.feed(range(50_000))
        assert counted.tokens == (49_999 if opening == b"<think>" else 0)


def test_a_real_reply(start: Callable[..., Driver]) -> None:
    """A thought that was begun elsewhere goes on: all new tokens are of it, and of the earlier ones those behind the
    tag, which has seven letters."""
    driver = start()
    driver.messages = [PromptMessage("user", "Is water wet?"), PromptMessage("assistant", "<think>\nWater is")]
    answer = driver.ask(None, continue_reply=True, sampling=Sampling(temperature=0, max_tokens=12))
    had, new = len(answer.segments[-1]), 0
    assert "</think>" not in answer.text
    for delta in answer.events:
        if isinstance(delta, TextDelta):
            new += len(delta.ids)
            assert had + new - 7 <= delta.thought < had + new
            assert answer.usage.reasoning_tokens - delta.thought == 12 - new
    assert new == 12
    assert 0 < answer.usage.reasoning_seconds <= answer.usage.decode_seconds
