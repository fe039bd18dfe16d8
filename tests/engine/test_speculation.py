"""Replies with drafts are those without, whatever the drafts are, and leave no trace but time.

"Without" is plain decoding in the same process. Where a token alone and one in a batch are computed alike (Q4_1
weights, q8_0 cache, flash attention), the ids must be the same; elsewhere the first other one must be a near-tie.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

PROBE = Path(__file__).with_name("speculation_probe.py")
NEAR_TIE = 0.05  # the noise of batch shapes in a logit of these models, after as many tokens

# Plain, windows, MLA, chunked; recurrent and hybrid, with and without rows to roll back to.
KINDS = ("llama", "gemma3", "gpt-oss", "llama4", "deepseek2")
KINDS += (
    "mamba",
    "rwkv7",
    "jamba",
    "granitehybrid",
    "falcon-h1",
    "lfm2",
    "lfm2swa",
    "nemotron_h",
    "qwen35",
    "qwen3next",
)
ROLLING_BACK = ("lfm2", "nemotron_h", "qwen35")


def probe(scene, folder, models):
    done = subprocess.run(
        [sys.executable, PROBE, scene, folder, *models], check=True, timeout=280, capture_output=True, text=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    return probe("kinds", tmp_path_factory.mktemp("kv"), [tiny.build(kind, models) for kind in KINDS])


@pytest.fixture(scope="module")
def invariant(tmp_path_factory):
    """Models whose tokens are computed alike in any batch."""
    models = tmp_path_factory.mktemp("models")
    return {kind: tiny.build(kind, models, weights="q4_1") for kind in ("llama", "gemma3", "jamba", "qwen35")}


def same(plain, drafted, *keys):
    return {key: (plain[key], drafted[key]) for key in keys if plain[key] != drafted[key]}


# ---------------------------------------------------------------- every kind of memory


@pytest.mark.parametrize("kind", KINDS)
def test_every_memory_says_the_same(zoo, kind):
    told = zoo[kind]
    plain, drafted = told["plain"], told["drafted"]
    assert told["gap"] < NEAR_TIE
    if told["gap"] == 0:
        assert drafted["ids"] == plain["ids"]
    assert same(plain, drafted, "reason", "failure", "cells", "cache_bytes", "decode_tokens", "save_problem") == {}
    assert 0 < drafted["draft_accepted"] < drafted["draft_proposed"]
    assert drafted["draft_steps"] >= 8
    longest = 8 if kind in ROLLING_BACK else 15
    assert drafted["draft_proposed"] > 0.75 * longest * drafted["draft_steps"]
    assert drafted["draft_note"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_drafted_is_neither_in_the_cells_nor_on_disk(zoo, kind):
    """The next turn goes on from the same tokens, and its last logits are the same bit for bit."""
    stayed, resumed = zoo[kind]["stayed"], zoo[kind]["resumed"]
    assert resumed["reused"] == stayed["reused"] == zoo[kind]["drafted"]["cells"]
    assert resumed["ids"] == stayed["ids"]
    assert resumed["logits"] == stayed["logits"]
    assert (resumed["cut"], stayed["cut"]) == (None, None)


# ---------------------------------------------------------------- equality


def test_smollm2_says_the_same_with_every_drafter(smollm2, tmp_path):
    for plain, *drafted in probe("equal", tmp_path, [smollm2])[smollm2.stem]:
        assert all(each["ids"] == plain["ids"] for each in drafted)
        oracle, guesser, lookup = drafted
        assert oracle["draft_accepted"] > guesser["draft_accepted"]
        assert oracle["decode_tokens"] == guesser["decode_tokens"] == plain["decode_tokens"]
        assert lookup["draft_kind"] == "ngram"


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_the_same_seed_draws_the_same_tokens(invariant, tmp_path, kind):
    """Random numbers and penalties move on once for each token of the text, so the distribution is the target's."""
    pairs = probe("sampled", tmp_path, [invariant[kind]])[kind]
    assert len({tuple(plain["ids"]) for plain, _ in pairs}) == len(pairs)
    for plain, drafted in pairs:
        assert drafted["ids"] == plain["ids"]
        assert drafted["draft_accepted"] > 0


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("kind", ["llama", "gemma3", "jamba", "qwen35"])
def test_every_end_inside_a_draft(invariant, tmp_path, kind):
    """The limit of tokens, a stop string, the end of generation, the end of the context."""
    told = probe("endings", tmp_path, [invariant[kind]])[kind]
    assert {plain["reason"] for plain, _ in told.values()} == {"length", "stop", "context"}
    for name, (plain, drafted) in told.items():
        keys = ("ids", "text", "reason", "failure", "cells", "decode_tokens", "overflow")
        assert same(plain, drafted, *keys) == {}, name
    assert sum(drafted["draft_steps"] for _, drafted in told.values()) > 50


@pytest.mark.parametrize("kind", ["llama", "gemma3", "jamba"])
def test_a_cancel_inside_a_draft(tmp_path, kind):
    """What was told stands, nothing else is kept, and the chat goes on."""
    told = probe("cancels", tmp_path, [tiny.build(kind, tmp_path)])[kind]
    for half, after, finished in told["cancelled"]:
        count = len(half["ids"])
        assert half["reason"] == "cancelled"
        assert half["ids"] == told["plain"]["ids"][:count]
        assert half["cells"] <= half["prompt_tokens"] + count
        assert half["failure"] == after["failure"] == "None"
        assert after["reused"] + after["computed"] == after["prompt_tokens"]
        assert finished == half["prompt"] + half["ids"]
    assert len({len(half["ids"]) for half, *_ in told["cancelled"]}) > 4
    assert told["resumed"]["ids"] == told["cancelled"][-1][1]["ids"]


def test_a_drafter_that_fails_is_left_alone(invariant, tmp_path):
    plain, begins, drafts = probe("failures", tmp_path, [invariant["llama"]])["llama"]
    for each in (begins, drafts):
        assert each["ids"] == plain["ids"]
        assert each["reason"] == "length"
        assert "it broke" in each["draft_note"]
    assert (begins["draft_steps"], drafts["draft_steps"]) == (0, 2)
