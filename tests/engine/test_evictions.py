"""Chats that outgrow their context, policy by policy, over the kinds of memory that can let single tokens go."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

PROBE = Path(__file__).with_name("eviction_probe.py")
# Policy and cache type -> kinds; with `context` the positions that they were trained for, which run out.
CASES = {
    ("sinks", "f16"): ["llama80", "gemma3"],
    ("shift", "q8_0"): ["llama96", "deepseek2"],
    ("prune", "q4_0"): ["stablelm128", "qwen3vl"],
}
SHORT = {"short-llama": "llama", "short-gemma3": "gemma3", "short-stablelm128": "stablelm128"}
TRAINED = 800


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder, models = tmp_path_factory.mktemp("kv"), tmp_path_factory.mktemp("models")
    short = [tiny.build(kind, models, name=name, context=TRAINED) for name, kind in SHORT.items()]
    found = {}
    for number, ((policy, kind), names) in enumerate(CASES.items()):
        files = [*(tiny.build(name, models) for name in names), short[number]]
        command = [sys.executable, PROBE, folder / policy, policy, kind, *files]
        done = subprocess.run(command, check=True, timeout=280, capture_output=True, text=True)
        found |= {f"{policy} {name}": case for name, case in json.loads(done.stdout).items()}
    return found


@pytest.fixture(params=[f"{policy} {name}" for (policy, _), names in CASES.items() for name in names])
def case(request, told):
    return told[request.param]


@pytest.fixture(params=[f"{policy} {name}" for (policy, _), name in zip(CASES, SHORT, strict=True)])
def short(request, told):
    return told[request.param]


def test_every_turn_ends_as_if_there_were_room(case):
    assert {turn["reason"] for turn in case["turns"]} == {"length"}
    assert sum(case["new"]) > 3 * 512
    assert all(turn["cells"] <= 512 for turn in case["turns"])


def test_a_turn_computes_what_is_new(case):
    """And the last token of the reply before, which was chosen and not computed."""
    questions = case["new"][::2]
    for turn, question in zip(case["turns"][1:], questions[1:], strict=True):
        assert turn["computed"] == question + 1
        assert turn["cut"] is None


def test_what_is_evicted_goes_in_blocks(case):
    """So that there is at most one eviction for 64 new tokens."""
    assert len(case["log"]) > 3
    assert all(tokens >= 64 for _, tokens, _ in case["log"])
    assert len(case["log"]) <= sum(case["new"]) / 64
    assert sum(turn["evicted"] for turn in case["turns"]) == sum(tokens for _, tokens, _ in case["log"])


def test_a_reopened_chat_goes_on_as_one_that_stayed(case, short):
    """Bit for bit, logits of the last token of eight."""
    for each in (case, short):
        again = each["again"]
        assert again["same"]
        assert again["there"]["computed"] == again["here"]["computed"]
        assert again["there"]["pages"] == again["there"]["reused"]


def test_undo_brings_back_the_state_from_before(case):
    undone = case["undone"]
    assert undone["same"]
    assert undone["reused"] >= undone["wanted"]


def test_positions_that_run_out_are_given_anew(short):
    """No position is larger than what the model was trained for, though more was said."""
    assert sum(short["new"]) > TRAINED
    assert any(moved for _, _, moved in short["log"])
    assert {turn["reason"] for turn in short["turns"]} == {"length"}
    assert all(turn["cut"] is None for turn in short["turns"])
