"""Every kind of memory: turns with a new session for each, an answer again, an edited question."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import tiny

from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import geometry

PROBE = Path(__file__).with_name("zoo_probe.py")


REAL = {"SmolLM2-135M": "smollm2", "Gemma-3-270M": "gemma3"}  # name, fixture


class Case:
    """What the probe told about one model: scene -> turns; what the model keeps, and where."""

    def __init__(self, told, model, folder):
        self.told = told
        self.shape = geometry(read_header(model))
        self.folder = folder
        self.checkpointed = "state" in self.shape.parts


def probe(folder, turns, models):
    done = subprocess.run(
        [sys.executable, PROBE, folder, str(turns), *models], check=True, timeout=280, capture_output=True, text=True
    )
    told = json.loads(done.stdout)
    return {model.stem: Case(told[model.stem], model, folder / model.stem) for model in models}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    return probe(tmp_path_factory.mktemp("kv"), 5, [tiny.build(kind, models) for kind in tiny.KINDS])


@pytest.fixture(scope="module", params=[*tiny.KINDS, *REAL])
def case(request, zoo, tmp_path_factory):
    if request.param in zoo:
        return zoo[request.param]
    model = request.getfixturevalue(REAL[request.param])
    return probe(tmp_path_factory.mktemp(request.param), 3, [model])[model.stem]


def test_a_turn_computes_only_what_is_new(case):
    """And the last token of the answer before, where that was cut off: it was chosen and not computed."""
    for scene in ("stay", "reopen"):
        turns = case.told[scene]
        assert [turn["reused"] for turn in turns[1:]] == [turn["cells"] for turn in turns[:-1]]
        wanted = [turn["new"] + before["left"] for before, turn in pairwise(turns)]
        assert [turn["computed"] for turn in turns[1:]] == wanted
        assert {turn["cut"] for turn in turns} == {None}
        assert {turn["save_problem"] for turn in turns} == {None}


def test_it_says_from_where(case):
    source = "checkpoint" if case.checkpointed else "pages"
    assert all(turn[source] == turn["reused"] > 0 for turn in case.told["reopen"][1:])
    assert all(turn["resident"] == turn["reused"] > 0 for turn in case.told["stay"][1:])


def test_a_chat_that_was_closed_says_the_same(case):
    assert [turn["ids"] for turn in case.told["reopen"]] == [turn["ids"] for turn in case.told["stay"]]
    assert all(turn["ids"] for turn in case.told["stay"])  # silence would be the same whatever was restored


@pytest.mark.parametrize("scene", ["again", "again2"])
def test_an_answer_once_more_computes_one_token(case, scene):
    first, again = case.told["stay"][-1], case.told[scene][0]
    assert again["computed"] == 1
    assert again["ids"] == first["ids"]
    assert again["cut"] is None


@pytest.mark.parametrize("scene", ["edit", "edit2"])
def test_an_edited_question_is_answered_as_if_it_had_been_the_first(case, scene):
    edited, instead, before = case.told[scene][0], case.told["instead"][-1], case.told["stay"][-2]
    assert edited["ids"] == instead["ids"]
    assert edited["cut"] is None
    if case.checkpointed:
        assert edited["reused"] == before["cells"]
        assert edited["computed"] <= edited["new"] + 8
    else:
        assert edited["reused"] >= before["cells"]


def test_bytes_in_memory(case):
    """Rows of all tokens, of a window at most the window, and the state once."""
    last = case.told["stay"][-1]
    rows = sum(
        (layer.key + layer.value) * (min(last["cells"], case.shape.window) if layer.window else last["cells"])
        for layer in case.shape.cache
    )
    assert last["cache_bytes"] == 2 * rows + case.shape.state_bytes


def test_bytes_on_disk(case):
    """Every row once, whatever the number of turns; checkpoints are as many as one chat may keep."""
    last = case.told["reopen"][-1]
    files = [path for path in (case.folder / "reopen").rglob("*") if len(path.name) == 64]
    row = 2 * sum(layer.key + layer.value for layer in case.shape.cache)
    rows, branch = last["cells"] * row, 2 * 128 * row  # the edit has pages of its own
    states = (8 + 2 + 2) * case.shape.state_bytes  # kept when a turn begins, added by it, added by the edit
    headers = 4096 * (2 * -(-last["cells"] // 128) + 12)
    assert rows <= sum(path.stat().st_size for path in files) <= rows + branch + states + headers
