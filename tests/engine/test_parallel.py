"""Several turns in one context: each is what it would be alone, and the cells of a common beginning are there once.

Bit for bit where that is promised: Q4_1 weights, a q8_0 cache, flash attention on. Elsewhere the shape of the batch and
the place in the cache change what rounding does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from kvchat.engine.check import NOISE
from kvchat.formats.past import READ

PROBE = Path(__file__).with_name("parallel_probe.py")
EXACT = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"}
KINDS = ("llama", "deepseek2", "gemma3", "gpt-oss", "mamba", "rwkv7", "jamba", "lfm2", "qwen35")


def play(folder, model, scene, config, **more):
    file = folder / f"{scene}.json"
    file.write_text(json.dumps({"model": str(model), "config": config, "scenes": [scene], **more}))
    done = subprocess.run([sys.executable, PROBE, file], check=True, timeout=280, capture_output=True, text=True)
    return json.loads(done.stdout)[scene]


@pytest.fixture
def exact(tmp_path):
    """As the built-in model a token of it is computed alike in any batch, and in no time."""
    return tiny.build("llama", tmp_path, weights="q4_1")


@pytest.mark.parametrize(("name", "keep"), [("smollm2", True), ("exact", False)])
def test_alternatives_read_their_prompt_once(request, tmp_path, name, keep):
    """With the same logits as alone, also where nothing is kept on disk."""
    found = play(tmp_path, request.getfixturevalue(name), "alternatives", EXACT, keep=keep)
    for seed in "1234":
        beside, alone = found[seed]["beside"], found[seed]["alone"]
        assert found[seed]["difference"] == 0
        assert beside["ids"] == alone["ids"]
        tokens = alone["usage"]["prompt_tokens"]
        computed, shared = (tokens, 0) if seed == "1" else (1, tokens - 1)
        assert (beside["usage"]["computed"], beside["usage"]["shared"]) == (computed, shared)
        assert beside["usage"]["reused"] == shared
        assert beside["usage"]["beside"] == 3
    tails = sum(found[seed]["beside"]["usage"]["cells"] - (tokens - 1) for seed in "1234")
    assert found["occupied"] == tokens - 1 + tails


def test_alternatives_that_keep_nothing_wait_for_no_room_for_what_they_share(tmp_path):
    found = play(tmp_path, tiny.build("llama", tmp_path), "alternatives", {"context": 512}, keep=False)
    assert found["1"]["beside"]["usage"]["prompt_tokens"] > 256
    assert [found[seed]["beside"]["usage"]["beside"] for seed in "1234"] == [3] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_alternatives_of_every_kind_of_memory(tmp_path, kind):
    """What these compute differs by rounding: logits of these models are about 1."""
    found = play(tmp_path, tiny.build(kind, tmp_path), "alternatives", {"parallel": 4})
    for seed in "1234":
        usage = found[seed]["beside"]["usage"]
        assert found[seed]["difference"] < 0.01
        tokens = usage["prompt_tokens"]
        assert (usage["computed"], usage["shared"]) == ((tokens, 0) if seed == "1" else (1, tokens - 1))


@pytest.mark.parametrize("kind", ["gemma3", "jamba"])
def test_alternatives_that_wait_for_a_place_read_nothing_again(tmp_path, kind):
    """Two places, as where each takes memory: who comes later finds the prompt where it was read."""
    found = play(tmp_path, tiny.build(kind, tmp_path), "alternatives", {})
    usages = [found[seed]["beside"]["usage"] for seed in "1234"]
    assert len(found["places"]) == 2
    assert [usage["computed"] for usage in usages[1:]] == [1, 1, 1]
    assert usages[1]["shared"] > 0
    assert all(found[seed]["difference"] < 0.01 for seed in "1234")


def test_two_chats_with_secrets_do_not_hear_each_other(tmp_path, smollm2):
    """Turn by turn at the same time: every logit is that of the chat alone, and only what is new is computed."""
    found = play(tmp_path, smollm2, "interleaved", EXACT, turns=3, predict=12)
    for chat in found.values():
        assert chat["difference"] == 0
        assert all(chat["same"])
        assert chat["beside"] == [1] * 3
        assert chat["computed"] == chat["alone_computed"]


def test_answers_that_outgrow_the_context_together_come_to_their_ends(tmp_path, exact):
    """Whoever gives its cells up has them again, and nothing is read anew."""
    found = play(tmp_path, exact, "crowded", EXACT | {"context": 512})
    turns = [found[name] for name in "abc"]
    assert sum(turn["beside"]["usage"]["cells"] for turn in turns) > found["cells"]
    assert any(turn["beside"]["waits"] for turn in turns)
    for turn in turns:
        beside, alone = turn["beside"], turn["alone"]
        assert beside["failure"] is None
        assert beside["reason"] in ("stop", "length")
        assert beside["usage"]["computed"] + beside["usage"]["reused"] == alone["usage"]["computed"]
        assert beside["evicted"] == 0
        assert max(turn["divergences"]) < NOISE  # cells lie in another order


@pytest.mark.parametrize(("kind", "overflow"), [("llama", "prune"), ("gemma3", "sinks")])
def test_an_answer_lets_tokens_go_that_it_shares_with_another_one(tmp_path, kind, overflow):
    """There is no room for a copy of what stays; the other answer has it still."""
    found = play(tmp_path, tiny.build(kind, tmp_path), "outgrown", {"context": 512}, overflow=overflow)
    short, told, then = found["short"], found["long"], found["next"]
    assert (told["failure"], told["reason"], len(told["ids"])) == (None, "length", 400)
    assert told["evicted"] > 0
    assert told["usage"]["shared"] == short["usage"]["prompt_tokens"] - 1
    assert then["failure"] is then["usage"]["cut"] is None
    assert then["usage"]["resident"] + then["usage"]["pages"] >= told["usage"]["cells"] - 1


@pytest.mark.parametrize(
    ("overflow", "first", "trained"),
    [("sinks", 2000, 512), ("sinks", 2000, 256), ("shift", 2000, 512), ("stop", 250, 512)],
)
def test_a_chat_goes_on_when_its_positions_have_run_out_in_a_reply(tmp_path, overflow, first, trained):
    """Also in a context that is larger than what the model was trained for. Nothing else would help it."""
    model, config = tiny.build("llama", tmp_path, context=trained), {"context": 512}
    found = play(tmp_path, model, "exhausted", config, overflow=overflow, first=first, harbours=0)
    assert [found[turn]["failure"] for turn in "123"] == [None] * 3
    assert found["2" if overflow == "stop" else "1"]["reason"] == "context"
    assert min(len(found[turn]["ids"]) for turn in "123") > 0


def test_positions_that_run_out_within_a_long_message_are_given_anew(tmp_path):
    model = tiny.build("llama", tmp_path, context=512)
    found = play(tmp_path, model, "exhausted", {"context": 512}, overflow="prune", first=200, harbours=7)
    assert [found[turn]["failure"] for turn in "123"] == [None] * 3
    for turn in "23":
        usage = found[turn]["usage"]
        assert usage["evicted"] > 0
        assert usage["prompt_tokens"] == usage["reused"] + usage["computed"]


def test_keys_that_have_no_room_to_be_turned_are_computed_again(tmp_path):
    found = play(tmp_path, tiny.build("llama", tmp_path, context=512), "unmoved", {"context": 512})
    told = found["next"]
    assert told["failure"] is None
    assert found["roots"][0] == READ
    assert (told["usage"]["reused"], told["usage"]["computed"]) == (0, told["usage"]["prompt_tokens"])


def test_what_a_full_disk_did_not_take_is_saved_in_front_of_another_cache_type(tmp_path):
    """Also when a title is being made, in the sequence that state passes through."""
    found = play(tmp_path, tiny.build("llama", tmp_path), "unsaved", {"kv_folder": str(tmp_path / "kv")})
    assert found["full"]["usage"]["save_problem"] == "the disk is full"
    assert found["transcoded"] == found["tokens"] > 256


def test_a_cancelled_turn_ends_and_the_others_go_on(tmp_path, exact):
    found = play(tmp_path, exact, "cancelled", EXACT)
    assert [found[name]["reason"] for name in ("a", "b", "c")] == ["length", "cancelled", "cancelled"]
    assert found["a"]["ids"] == found["alone"]["ids"]
    assert len(found["b"]["ids"]) == 0


def test_a_turn_that_cannot_be_computed_ends_alone(tmp_path, exact):
    found = play(tmp_path, exact, "broken", EXACT)
    assert [found[name]["reason"] for name in "abc"] == ["length", "error", "length"]
    assert "code -3" in found["b"]["failure"]
    assert found["c"]["ids"] == found["a"]["ids"]


def test_a_long_prompt_is_read_beside_an_answer(tmp_path, exact):
    """In small parts where the answer goes first, in whole batches where the prompt does."""
    found = play(tmp_path, exact, "reading", EXACT)
    for favour, told in found.items():
        assert told["a"]["failure"] is told["b"]["failure"] is None
        assert len(told["a"]["ids"]) <= 120
        together = [batch for batch in told["batches"] if len(batch) == 2]
        assert all(batch[0] == 1 for batch in together)  # a token of the answer is in every one of them
        most = max(sum(batch) for batch in together)
        assert most == 256 if favour == "prompts" else most < 256
    assert len({told["b"]["text"] for told in found.values()}) == 1


def test_more_turns_than_places_begin_in_their_order(tmp_path, exact):
    found = play(tmp_path, exact, "waiting", EXACT)
    assert found["order"] == list("abcd")
    assert found["a"]["waits"] == found["b"]["waits"] == []
    assert found["c"]["waits"][0].startswith("2 answers are being written")
    assert found["d"]["waits"][0] == "another one waits before it"
    assert all(found[name]["failure"] is None for name in "abcd")
