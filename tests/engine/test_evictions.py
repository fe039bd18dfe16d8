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
    """There is at most one eviction for 64 new tokens, wherever one begins to count: `number` evictions after another
    one take as many blocks, the last of which a long question may cut short."""
    assert len(case["log"]) > 3
    assert all(tokens >= 64 for _, tokens, _ in case["log"])
    assert len(case["log"]) <= sum(case["new"]) / 64
    assert sum(turn["evicted"] for turn in case["turns"]) == sum(tokens for _, tokens, _ in case["log"])
    places = [at for at, _, _ in case["log"]]
    for number in range(1, len(places)):
        apart = [later - at for at, later in zip(places, places[number:], strict=False)]
        assert min(apart) >= 64 * (number - 1), number


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
    assert undone["cuts"] == [None, None]


def test_without_its_evictions_a_chat_has_what_came_before_the_first_one(case):
    """And it is told why the rest is computed again."""
    back = case["taken back"]
    assert back["reused"] == back["wanted"]
    assert back["cut"] == "eviction taken back"


def test_what_is_computed_in_place_of_moved_rows_does_not_bear_their_name(told):
    """It is what the plain history of the same text has, and is found again as such."""
    moved = told["sinks short-llama"]["moved"]
    first, second = moved["turns"]
    assert moved["pages"] == [1, 0]
    assert first["root"] == second["root"] == ""
    assert first["computed"] > first["tokens"] - 128  # a page, at most, is that of what came before the move
    assert second["computed"] == second["new"] + 1
    assert told["shift short-gemma3"]["moved"] is None


def test_chats_that_differ_only_in_what_is_gone_share_nothing_behind_it(case):
    """What is computed behind a token saw it, though it has left since."""
    stranger = case["stranger"]
    assert stranger["reused"] <= stranger["same"]
    assert stranger["computed"] == stranger["tokens"] - stranger["reused"] > 300


def test_positions_that_run_out_are_given_anew(short):
    """No position is larger than what the model was trained for, though more was said."""
    assert sum(short["new"]) > TRAINED
    assert any(moved for _, _, moved in short["log"])
    assert {turn["reason"] for turn in short["turns"]} == {"length"}
    assert all(turn["cut"] is None for turn in short["turns"])
