"""Reasoning at the beginning of a reply: where it ends, how it is folded, and what is not reasoning."""

from __future__ import annotations

import pytest
from markdown_cases import pieces

from kvchat.reasoning import WITHOUT, left_open, split, split_late, undecided
from kvchat.ui import reasoning_rows
from kvchat.ui.entry import ThoughtCost
from kvchat.ui.markdown_body import MarkdownBody
from kvchat.ui.reasoning_rows import amount

# Each row: a reply as llama.cpp writes it out, its reasoning, its answer.
REPLIES = [
    ("<think>\nhmm\n</think>\n\nYes.", "\nhmm\n", "\n\nYes."),  # Qwen 3, DeepSeek R1
    ("\n<think>a</think>b", "a", "b"),
    ("<thinking>a</thinking>b", "a", "b"),
    ("<seed:think>a</seed:think>b", "a", "b"),  # Seed-OSS
    ("[THINK]a[/THINK]b", "a", "b"),  # Magistral, Ministral
    ("<|START_THINKING|>a<|END_THINKING|>b", "a", "b"),  # Command A
    ("<|channel>thought\na<channel|>b", "\na", "b"),  # Gemma 4
    # gpt-oss: its <|channel|>, <|message|>, <|start|> and <|end|> are written out
    ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "a", "b"),
    ("<|channel|>final<|message|>b", "", "b"),
    ("<think></think>b", "", "b"),
]


@pytest.mark.parametrize(("reply", "thought", "answer"), REPLIES)
def test_where_reasoning_ends(reply: str, thought: str, answer: str) -> None:
    found = split(reply)
    assert (reply[found.start : found.end], reply[found.answer :], found.ended) == (thought, answer, True)


@pytest.mark.parametrize("reply", ["<think>a", "<think>a</thi", "<|channel|>analysis<|message|>a<|end|><|start|>"])
def test_reasoning_that_goes_on(reply: str) -> None:
    found = split(reply)
    assert not found.ended
    assert found.answer == len(reply)


@pytest.mark.parametrize("reply", ["", "Yes.", "The tag <think>a</think> is", "```\n<think>\n```", "think>"])
def test_what_is_no_reasoning(reply: str) -> None:
    assert split(reply) == WITHOUT
    assert split_late(reply) == WITHOUT


@pytest.mark.parametrize(
    ("reply", "thought", "answer"),
    [
        ("hmm\n</think>\n\nYes.", "hmm", "\n\nYes."),
        ("hmm</think>\nYes.", "hmm", "Yes."),
        ("hmm\n</think>Yes.", "hmm", "Yes."),
        ("hmm</thinking>\nYes.", "hmm", "Yes."),
        ("hmm[/THINK]\nYes.", "hmm", "Yes."),
    ],
)
def test_a_block_that_the_template_opened(reply: str, thought: str, answer: str) -> None:
    found = split_late(reply)
    assert (reply[: found.end], reply[found.answer :]) == (thought, answer)


@pytest.mark.parametrize("reply", ["Close it with `</think>` and go on.\n", "```\n<think>\na\n</think>\n```"])
def test_an_answer_about_the_tags_stays_an_answer(reply: str) -> None:
    assert split_late(reply) == WITHOUT


def test_the_beginning_of_a_tag_is_not_shown_yet() -> None:
    assert undecided("<thi")
    assert undecided("\n<|chan")
    assert not undecided("<b>")
    assert not undecided("<think>")
    assert not undecided("Yes")


def test_amount() -> None:
    assert amount("one") == "1 word"
    assert amount(" one two\nthree " * 1_000) == "3,000 words"
    assert amount("键值缓存的误差量化" * 10) == "90 characters"


def rows(body: MarkdownBody) -> list[str]:
    return ["".join(run.text for run in body.row(number)).rstrip() for number in range(len(body))]


def test_folded_and_unfolded() -> None:
    body = MarkdownBody("<think>\none two\nthree\n</think>\n\n**Yes**.", 40, live=False)
    assert rows(body) == ["▸ thought · 3 words", "", "Yes."]
    assert [block.kind for block in body.blocks] == ["reasoning", "paragraph"]
    assert body.answer == "**Yes**."
    body.fold(True)
    assert rows(body) == ["▾ thought · 3 words", "  one two", "  three", "", "Yes."]
    assert body.copied(body.blocks[0]) == "one two\nthree"
    assert [block.first for block in body.blocks] == [0, 4]


def test_while_it_is_written_the_last_rows_are_shown_and_then_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(reasoning_rows, "monotonic", lambda: now[0])
    body = MarkdownBody("", 40, live=True)
    text = ""
    for piece in ("<thi", "nk>\na\nb\nc\nd", "\ne"):
        text += piece
        body.grow(text)
    assert rows(body) == ["▾ thinking…", "  c", "  d", "  e"]
    now[0] = 16.1
    body.grow(text + "</think>\n\n")
    assert rows(body) == ["▸ thought for 6.1 s · 5 words"]
    body.grow(text + "</think>\n\nYes")
    assert rows(body) == ["▸ thought for 6.1 s · 5 words", "", "Yes"]
    body.finish(text + "</think>\n\nYes.")
    assert rows(body) == ["▸ thought for 6.1 s · 5 words", "", "Yes."]
    wider = MarkdownBody(text + "</think>\n\nYes.", 60, live=False, earlier=body)
    assert rows(wider) == ["▸ thought for 6.1 s · 5 words", "", "Yes."]


def test_tokens_and_seconds_are_those_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is written, and in a chat that is opened again."""
    now = [10.0]
    monkeypatch.setattr(reasoning_rows, "monotonic", lambda: now[0])
    body = MarkdownBody("", 60, live=True)
    body.told(ThoughtCost(1))
    body.grow("<think>\n")
    assert rows(body) == ["▾ thinking… 1 token"]
    now[0] = 13.25
    body.told(ThoughtCost(1_204))
    body.grow("<think>\nhmm")
    assert rows(body) == ["▾ thinking… 3.2 s · 1,204 tokens", "  hmm"]
    text = "<think>\nhmm\n</think>\n\nYes."
    body.grow(text)
    assert rows(body)[0] == "▸ thought for 3.2 s · 1,204 tokens"
    body.told(ThoughtCost(1_205, 6.1))
    body.finish(text)
    assert rows(body) == ["▸ thought for 6.1 s · 1,205 tokens", "", "Yes."]
    assert rows(MarkdownBody(text, 60, live=False, cost=ThoughtCost(1_205, 6.1))) == rows(body)
    assert rows(MarkdownBody(text, 40, live=False, cost=ThoughtCost(1_205))) == ["▸ thought · 1,205 tokens", "", "Yes."]


def test_a_thought_that_was_stopped_says_so() -> None:
    """It is not "thinking" any more, neither after the stop nor later."""
    body = MarkdownBody("", 60, live=True)
    for text in ("<think>\none", "<think>\none two"):
        body.told(ThoughtCost(len(text)))
        body.grow(text)
    body.told(ThoughtCost(14, 2.0))
    body.finish("<think>\none two")
    assert rows(body) == ["▾ thought for 2.0 s · 14 tokens · not to its end", "  one two"]
    assert rows(MarkdownBody("<think>\none two", 60, live=False))[0] == "▾ thought · 2 words · not to its end"


def test_a_reply_that_begins_inside_a_block_is_thought_from_its_first_token_on() -> None:
    """The template opened the block, so the text has no opening tag; the engine counts all the same."""
    body = MarkdownBody("", 60, live=True)
    body.told(ThoughtCost(2))
    body.grow("Let me")
    assert rows(body) == ["▾ thinking… 2 tokens", "  Let me"]
    body.told(ThoughtCost(3))
    body.grow("Let me see</think>Yes")
    assert rows(body)[1:] == ["", "Yes"]
    assert rows(body)[0].endswith("· 3 tokens")
    assert rows(MarkdownBody("Let me", 60, live=False, cost=ThoughtCost(2)))[1:] == ["  Let me"]


@pytest.mark.parametrize(
    ("prompt", "closing"),
    [
        ("<|im_start|>assistant\n<think>\n", "</think>"),
        ("<|Assistant|><think>", "</think>"),
        ("[THINK]", "[/THINK]"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None),  # thinking is switched off
        ("<|im_start|>assistant\n", None),
        ("", None),
    ],
)
def test_whether_the_prompt_opens_a_block(prompt: str, closing: str | None) -> None:
    found = left_open(prompt)
    assert (found is not None) == (closing is not None)
    assert found is None or (closing is not None and found.fullmatch(closing))


def test_what_looked_like_an_answer_is_folded_when_its_closing_tag_comes() -> None:
    body = MarkdownBody("", 40, live=True)
    body.grow("Let me *see*.\n")
    assert rows(body) == ["Let me see."]
    body.grow("Let me *see*.\n</think>\n\n# Yes")
    shown = rows(body)
    assert shown[0].startswith("▸ thought · 3 words")
    assert shown[1:] == ["", "Yes"]


@pytest.mark.parametrize("reply", [reply for reply, _, _ in REPLIES] + ["a\n</think>\nb", "plain *text*"])
def test_in_any_pieces_it_ends_as_the_whole(reply: str) -> None:
    whole = MarkdownBody(reply, 40, live=False)
    for seed in range(8):
        body = MarkdownBody("", 40, live=True)
        shown = ""
        for piece in pieces(reply, seed):
            shown += piece
            body.grow(shown)
            assert "think>" not in "".join(rows(body)) or "\n</think>" in reply
        body.finish(reply)
        assert rows(body) == rows(whole)
