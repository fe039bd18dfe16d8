"""Reasoning of earlier replies: which tokens leave, template by template and however text is cut into tokens."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny

from kvchat.backend.values import PromptMessage
from kvchat.engine.past_thoughts import PastThoughts
from kvchat.engine.template import ChatTemplate

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"
PROBE = Path(__file__).with_name("reasoning_probe.py")
QWEN3, LLAMA_R1, QWEN_R1 = (
    "Qwen-Qwen3-0.6B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
)
# Templates without a rule for what was thought show a reply as it is; that of gpt-oss refuses one with its tags.
KEEPING = ["HuggingFaceTB-SmolLM3-3B", "meta-llama-Llama-3.2-3B-Instruct", "openai-gpt-oss-120b", "MiniMax-M1"]
ANSWER = "Yes: <b> is 键."


def thoughts(name: str, pieces: list[bytes]) -> PastThoughts:
    source = (TEMPLATES / f"{name}.jinja").read_text()
    return PastThoughts(ChatTemplate(source, bos="<s>", eos="</s>"), lambda token: pieces[token])


def cut(raw: bytes, seed: int) -> list[bytes]:
    """Tokens of one to five bytes."""
    rng, tokens = random.Random(seed), []
    while raw:
        size = rng.randint(1, 5)
        tokens.append(raw[:size])
        raw = raw[size:]
    return tokens


def left(name: str, prompt: list[bytes], reply: list[bytes], follows: bool = True) -> tuple[bytes, bytes, bytes]:
    """What stays in front of the reasoning, what leaves, and what stays behind it, for one turn and a question."""
    pieces = [*prompt, *reply, b"And then?"]
    ends = len(prompt), len(prompt) + len(reply)
    segments = [(), tuple(range(ends[0])), tuple(range(*ends)), (ends[1],)][: 4 if follows else 3]
    roles = ["system", "user", "assistant", "user"][: len(segments)]
    text = b"".join(reply).decode("utf-8", "replace")
    messages = [PromptMessage(role, text if role == "assistant" else "x") for role in roles]  # type: ignore[arg-type]
    found = thoughts(name, pieces).ranges(messages, segments)
    if not found:
        return b"".join(pieces[: ends[1]]), b"", b""
    ((start, end),) = found
    return b"".join(pieces[:start]), b"".join(pieces[start:end]), b"".join(pieces[end : ends[1]])


def test_a_reply_is_spelled_once_however_long_the_chat_becomes():
    pieces = [b"Q", *cut(b"<think>\nHm.\n</think>\n\n" + ANSWER.encode(), 1)]
    spelled: list[int] = []
    template = ChatTemplate((TEMPLATES / f"{QWEN3}.jinja").read_text(), bos="<s>", eos="</s>")

    def piece(token: int) -> bytes:
        spelled.append(token)
        return pieces[token]

    thoughts, reply = PastThoughts(template, piece), tuple(range(1, len(pieces)))
    messages = [PromptMessage(role, "x") for role in ("user", "assistant", "user", "assistant", "user")]
    first = thoughts.ranges(messages[:3], [(0,), reply, (0,)])
    assert len(first) == 1
    spelled.clear()
    assert thoughts.ranges(messages, [(0,), reply, (0,), (0, *reply), (0,)])[:1] == first
    assert spelled.count(reply[0]) == 1  # that of the second reply


@pytest.mark.parametrize("name", [QWEN3, LLAMA_R1, QWEN_R1])
@pytest.mark.parametrize("space", ["", "\n", "\n\n"])
def test_the_block_leaves_with_its_tags_and_the_white_space_behind_it(name: str, space: str) -> None:
    reply = ["<think>", "\nhmm", " 🚀\n", "</think>", *([space] if space else []), ANSWER]
    found = left(name, [b"<user>", b"Hi"], [each.encode() for each in reply])
    assert found == (b"<user>Hi", f"<think>\nhmm 🚀\n</think>{space}".encode(), ANSWER.encode())


@pytest.mark.parametrize("name", [LLAMA_R1, QWEN_R1])
def test_a_tag_that_the_prompt_ends_with_leaves_too(name: str) -> None:
    found = left(name, [b"<user>Hi", b"<think>", b"\n"], [b"hmm", b"\n", b"</think>", b"\n\n", b"Yes"])
    assert found == (b"<user>Hi", b"<think>\nhmm\n</think>\n\n", b"Yes")


@pytest.mark.parametrize("seed", range(60))
def test_however_it_is_cut_into_tokens(seed: int) -> None:
    """No token of the answer leaves, and nothing of the reasoning stays; or, where one token has the end of a tag and
    the beginning of the answer, all stays."""
    space = ["", "\n\n", " "][seed % 3]
    block, before = f"<think>\nhmm, 键值 🚀\n</think>{space}".encode(), [b"", b"\n"][seed % 2]
    reply = cut(before + block + ANSWER.encode(), seed)
    kept, gone, behind = left(QWEN3, [b"Hi"], reply)
    ends = {len(b"".join(reply[:number])) for number in range(len(reply))}
    tag_end = len(before + block) - len(space)
    if not any(tag_end <= end <= tag_end + len(space) for end in ends):
        assert not gone
        return
    assert gone.strip() == block.strip()
    assert kept.strip() == b"Hi"
    assert behind.lstrip() == ANSWER.encode()


@pytest.mark.parametrize("name", KEEPING)
def test_what_the_template_keeps_stays(name: str) -> None:
    assert left(name, [b"Hi"], [b"<think>", b"hmm", b"</think>", b"\n\n", b"Yes"])[1] == b""


def test_gpt_oss_keeps_its_channels() -> None:
    reply = b"<|channel|>analysis<|message|>|hmm|<|end|>|<|start|>assistant|<|channel|>final<|message|>|Yes"
    assert left("openai-gpt-oss-120b", [b"Hi"], reply.split(b"|hmm|"))[1] == b""


@pytest.mark.parametrize(
    "reply",
    [
        [b"<think>", b"hmm", b" and on"],  # it never ended
        [b"<think>", b"hmm", b"</think>"],  # no answer came
        [b"<think>", b"hmm", b"</think>", b"\n\n"],
        [b"</think>", b"Yes"],
        [b"The tag <think>", b" opens", b"</think> closes"],
        [b"Yes"],
        [b"\n"],
        [],
    ],
)
def test_what_is_no_whole_block_in_front_of_an_answer_stays(reply: list[bytes]) -> None:
    assert left(QWEN3, [b"Hi"], reply)[1] == b""


def test_the_last_reply_keeps_its_reasoning() -> None:
    assert left(QWEN3, [b"Hi"], [b"<think>", b"hmm", b"</think>", b"Yes"], follows=False)[1] == b""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> dict[str, Any]:
    models = tmp_path_factory.mktemp("models")
    files = [tiny.build("qwen3", models), smollm2]
    command = [sys.executable, PROBE, tmp_path_factory.mktemp("kv"), TEMPLATES / f"{QWEN3}.jinja", *files]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, timeout=250, capture_output=True).stdout)
    return found


def test_ten_turns_in_which_reasoning_leaves(told: dict[str, Any]) -> None:
    for turns in (case["turns"] for case in told.values()):
        assert len(turns) == 10
        for number, turn in enumerate(turns):
            assert turn["computed"] == turn["new"] + (number > 0)  # and the last token of the reply before
            assert (turn["gone"] > 0) == (number > 0)
            assert turn["blocks"] == 1, "the cells hold more than the reasoning of this turn"
            assert turn["cells"] == turn["length"] - sum(each["gone"] for each in turns[: number + 1])


def test_after_that_a_chat_is_reopened_and_a_reply_made_anew(told: dict[str, Any]) -> None:
    for case in told.values():
        again = case["reopened"]
        assert again["same"]
        assert again["apart"] == 0.0
        assert again["computed"][0] == again["computed"][1]
        assert case["anew"] == 1  # all but the last token of the prompt was there
