"""What the guard's verdicts mean in words, and how they are remembered."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from kvchat.backend.fidelity import Verdict
from kvchat.backend.guarding import FILE, GuardBook, read_report, step_back, warning
from kvchat.backend.values import EngineConfig

GOOD = Verdict("q8_0", "q8_0", 30.0, 30.0, 128, 0.004, 0.95, 0.01)
SLOW = replace(GOOD, speed=12.0)
FAR = replace(GOOD, type_k="q4_0", type_v="q4_0", kl=0.4, agreement=0.5)
CONFIG = EngineConfig("/models/some.gguf", type_k="q8_0", type_v="q8_0")


@pytest.mark.parametrize(
    "verdict",
    [
        GOOD,
        replace(GOOD, speed=24.0),  # 0.8 of f16 is not below it
        replace(GOOD, speed=90.0),
        replace(GOOD, kl=0.1),
        replace(FAR, positions=0),  # nothing was compared
        replace(SLOW, speed=None, f16_speed=None),
        Verdict("f16", "f16", None, None, 0, 0.0, 0.0, None),
    ],
)
def test_nothing_is_said_when_all_is_well(verdict):
    assert warning(verdict) is None


def test_a_warning_has_figures_and_a_way_back():
    said = warning(SLOW)
    assert said is not None
    assert "q8_0 is slower than f16 (12.0 tokens/s at depth 1,024, with f16 30.0)" in said
    assert "/cache f16 goes back" in said
    said = warning(replace(FAR, speed=12.0))
    assert said is not None
    assert "slower than f16" in said and "0.40 nats" in said and "50%" in said
    assert "/cache q8_0 goes back" in said


@pytest.mark.parametrize(
    ("types", "back"),
    [
        (("q4_0", "q4_0"), ("q8_0",)),
        (("q8_0", "q8_0"), ("f16",)),
        (("bf16", "q8_0"), ("f16",)),
        (("q4_0", "q8_0"), ("q8_0",)),
        (("q8_0", "q4_0"), ("q8_0",)),
        (("q4_0", "f16"), ("q8_0", "f16")),
        (("f16", "q4_0"), ("f16", "q8_0")),
    ],
)
def test_one_step_back_is_for_what_is_quantized_most(types, back):
    assert step_back(replace(FAR, type_k=types[0], type_v=types[1])) == back


def test_a_verdict_is_asked_for_once(tmp_path: Path):
    asked = GuardBook(tmp_path).apply(CONFIG)
    assert asked.guard and asked.noise == 0
    GuardBook(tmp_path).remember(CONFIG, GOOD)
    known = GuardBook(tmp_path).apply(CONFIG)
    assert not known.guard and known.noise == 0.01
    assert GuardBook(tmp_path).apply(replace(CONFIG, type_v="q4_0")).guard
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_no_noise_is_none_at_all(tmp_path: Path):
    GuardBook(tmp_path).remember(CONFIG, replace(GOOD, noise=None))
    assert GuardBook(tmp_path).apply(CONFIG) == CONFIG


def test_a_verdict_about_other_types_is_not_taken(tmp_path: Path):
    """It came after another configuration was asked for."""
    book = GuardBook(tmp_path)
    book.remember(CONFIG, FAR)
    assert book.apply(CONFIG).guard


def test_a_death_is_not_tried_again(tmp_path: Path):
    GuardBook(tmp_path).fatal(CONFIG)
    assert GuardBook(tmp_path).apply(CONFIG) == CONFIG
    assert read_report(tmp_path) == ["some, cache q8_0: the engine died while it was checked"]


def test_the_report_has_the_figures(tmp_path: Path):
    GuardBook(tmp_path).remember(CONFIG, SLOW)
    (line,) = read_report(tmp_path)
    assert "decode 12.0 tokens/s at depth 1,024, 0.40 of f16" in line
    assert "divergence from f16 0.0040 nats" in line and "WARNING" in line


@pytest.mark.parametrize(
    "change", [{"type_k": "q9"}, {"kl": "x"}, {"kl": -1}, {"agreement": None}, {"positions": 1.5}, {"speed": 0}]
)
def test_a_verdict_that_cannot_be_is_asked_for_again(tmp_path: Path, change):
    damage(tmp_path, lambda entry: entry["verdict"].update(change))
    assert GuardBook(tmp_path).apply(CONFIG).guard


@pytest.mark.parametrize("verdict", [5, [], "x"])
def test_nor_is_what_is_none(tmp_path: Path, verdict):
    damage(tmp_path, lambda entry: entry.update({"verdict": verdict}))
    assert GuardBook(tmp_path).apply(CONFIG).guard


@pytest.mark.parametrize("change", [{"noise": float("nan")}, {"noise": "x"}, {"f16_speed": True}])
def test_a_figure_that_makes_no_sense_is_not_there(tmp_path: Path, change):
    damage(tmp_path, lambda entry: entry["verdict"].update(change))
    known = GuardBook(tmp_path).apply(CONFIG)
    assert not known.guard and known.noise in (0, GOOD.noise)


def damage(folder: Path, change) -> None:
    GuardBook(folder).remember(CONFIG, GOOD)
    content = json.loads((folder / FILE).read_text())
    for entry in content.values():
        change(entry)
    (folder / FILE).write_text(json.dumps(content))
