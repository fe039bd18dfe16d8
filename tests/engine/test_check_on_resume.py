"""The check on resume, with real restores: it catches pages of another RoPE base, and nothing else."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import tiny
from kv_pages import page_files

from kvchat.engine.check import FACTOR, NEXT, NOISE, read_label
from kvchat.formats.page import decode_header

PROBE = Path(__file__).with_name("check_probe.py")
SHIPS = "The harbour master wrote down every ship that came in, where it came from and what it carried. "
QUESTIONS = [SHIPS * 5 + "What did the harbour master write down?", "Who read it?", "Why?"]
PAIRS = [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0")]
KINDS = ("llama", "qwen3vl", "deepseek2", "gemma3", "gpt-oss")


def run(folder, **spec):
    file = folder / "spec.json"
    file.write_text(json.dumps({"folder": str(folder / "kv"), "questions": QUESTIONS} | spec))
    done = subprocess.run([sys.executable, PROBE, file], check=True, timeout=280, capture_output=True, text=True)
    return json.loads(done.stdout)


def with_rope_base(model, target, base):
    """The same model but for one number in its header."""
    raw = bytearray(model.read_bytes())
    key = b"llama.rope.freq_base"
    at = raw.index(key) + len(key)
    assert struct.unpack_from("<If", raw, at) == (6, 100_000.0)  # a float32, as it is trained
    struct.pack_into("<f", raw, at + 4, base)
    target.write_bytes(raw)
    return target


@pytest.fixture(scope="module")
def poisoned(smollm2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("poisoned")
    wrong = with_rope_base(smollm2, folder / "wrong.gguf", 10_000.0)
    questions = [SHIPS * 3 + QUESTIONS[1], *QUESTIONS[1:]]
    told = run(folder, right=str(smollm2), wrong=str(wrong), types=("q8_0", "q8_0"), questions=questions)
    return told, folder


@pytest.mark.parametrize("way", ["poisoned", "warmed", "aborted"])
def test_pages_of_another_rope_base_are_caught(poisoned, way):
    """By the turn that would have gone on from them, also where an earlier Warm brought them, or where the decode that
    was to tell was broken off. All of the prompt is computed, and the answer is what it is without any KV."""
    told, _ = poisoned
    turn = told[way][1]
    assert turn["cut"] == "check"
    assert turn["checked"][0] > NOISE * FACTOR
    assert (turn["reused"], turn["computed"]) == (0, turn["prompt_tokens"])
    assert turn["ids"] == told["truth"][0]["ids"]
    assert turn["restored"][0] > 80 and turn["restored"][-1] == 0
    assert bool(turn["warmed"]) == (way == "warmed")
    assert turn["save_problem"] is None


def test_what_is_saved_in_their_place_is_right(poisoned):
    _, turn, after = poisoned[0]["poisoned"]
    assert after["cut"] is None and after["reused"] == turn["cells"]


def test_the_wrong_pages_are_moved_away_and_not_deleted(poisoned):
    told, folder = poisoned
    damaged = list((folder / "kv" / "poisoned" / "damaged").iterdir())
    assert len(damaged) == -(-told["poisoned"][0]["cells"] // 128)


def test_the_end_of_an_answer_has_its_label(poisoned):
    _, folder = poisoned
    headers = [decode_header(file.read_bytes()) for file in page_files(folder / "kv" / "truth")]
    last = max(headers, key=lambda header: header.position + len(header.ids))
    assert len(read_label(last.labels[NEXT])) == 32


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    models = [str(tiny.build(kind, folder)) for kind in KINDS]
    return run(folder, models=models, pairs=PAIRS)


def test_clean_restores_raise_no_alarm(clean):
    """Full caches, latents and windows, all cache types: every restore is checked, and computes only what is new."""
    for name, turns in clean.items():
        assert [turn["cut"] for turn in turns] == [None] * 3, name
        for before, turn in pairwise(turns):
            assert len(turn["checked"]) == name.endswith("True"), name
            assert all(value < NOISE for value in turn["checked"]), name
            assert turn["reused"] == before["cells"], name
            assert turn["computed"] == turn["new"] + before["left"], name


def test_the_check_leaves_the_cells_as_they_are(clean):
    """Bit for bit what they are without it: its token is computed beside the chat."""
    for name in {name.rpartition(" ")[0] for name in clean}:
        checked, unchecked = clean[f"{name} True"], clean[f"{name} False"]
        assert [turn["ids"] for turn in checked] == [turn["ids"] for turn in unchecked], name
        assert [turn["cells_held"] for turn in checked] == [turn["cells_held"] for turn in unchecked], name
