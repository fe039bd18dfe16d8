"""The model picker: filter, highlight, what fits, and files that cannot be run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from modal_host import EVIL, Host, broken, model, settled, text, type_at_once

from kvchat.backend.values import EngineConfig
from kvchat.formats.gguf import GgufHeader
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile, check
from kvchat.ui import model_facts
from kvchat.ui.model_facts import ModelFacts, read_facts
from kvchat.ui.model_list import ModelList
from kvchat.ui.model_picker import ModelPicker

GIB = 1 << 30


@pytest.fixture
def models(tmp_path: Path) -> list[ModelFile]:
    """Some that fit, one that is broken, one that is too large."""
    return [
        model("llama", tmp_path, name="Alpha-1B"),
        broken(tmp_path, name="Broken-3B"),
        model("mamba", tmp_path, name="Gamma-1B"),
        model("gemma3", tmp_path, name="Huge-70B", size=40 * GIB),
    ]


def picker(models: Sequence[ModelFile], current: str = "", free: int | None = 4 * GIB) -> Host:
    def configured(facts: ModelFacts) -> EngineConfig:
        return replace(EngineConfig(""), model_path=str(facts.model.path))

    return Host(lambda: ModelPicker(models, current, configured, Memory(free)))


def highlighted(app: Host) -> str | None:
    chosen = app.screen.query_one(ModelList).chosen
    return chosen.name if chosen else None


def read(app: Host) -> bool:
    return "…" not in text(app)


async def test_what_is_said_of_each(models: list[ModelFile]) -> None:
    app = picker(models)
    async with app.run_test(size=(100, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        lines = {
            name: line
            for name in ("Alpha", "Broken", "Gamma", "Huge")
            for line in text(app).splitlines()
            if name in line
        }
    assert "fits" in lines["Alpha"]
    assert "GQA · 4,096" in lines["Alpha"]
    assert "is truncated" in lines["Broken"]
    assert "recurrent" in lines["Gamma"]
    assert "40.0 GiB  does not fit" in lines["Huge"]
    assert "SWA" in lines["Huge"]


async def test_the_current_model_is_marked_and_highlighted(models: list[ModelFile]) -> None:
    app = picker(models, current=str(models[2].path))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        assert highlighted(app) == "Gamma-1B"
        assert next(line for line in text(app).splitlines() if "●" in line).count("Gamma") == 1


async def test_arrows_pass_over_what_is_broken(models: list[ModelFile]) -> None:
    app = picker(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        seen = [highlighted(app)]
        for key in ("down", "down", "down", "up", "pageup", "pagedown"):
            await pilot.press(key)
            seen.append(highlighted(app))
    assert seen == ["Alpha-1B", "Gamma-1B", "Huge-70B", "Huge-70B", "Gamma-1B", "Alpha-1B", "Huge-70B"]


async def test_the_filter(models: list[ModelFile]) -> None:
    app = picker(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await pilot.press(*"1b")
        assert ("Alpha-1B" in text(app), "Gamma-1B" in text(app), "Huge-70B" in text(app)) == (True, True, False)
        await pilot.press("space", "g")  # all words must be there
        assert highlighted(app) == "Gamma-1B"
        await pilot.press("x")
        assert "no model has such a name" in text(app)
        await pilot.press("enter")
        assert app.results == []
        await pilot.press("backspace", "enter")
        await settled(pilot, lambda: app.results)
    assert [facts.model.name for facts in app.results] == ["Gamma-1B"]


async def test_keys_in_one_write_keep_their_order(models: list[ModelFile]) -> None:
    app = picker(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        # "1bx" without the x, then the second of the two that are left
        await type_at_once(pilot, "1", "b", "x", "backspace", "down", "enter", "enter", "escape")
        await settled(pilot, lambda: app.results)
        await pilot.pause(0.1)
    assert [facts.model.name for facts in app.results] == ["Gamma-1B"]


async def test_a_broken_model_is_not_chosen(models: list[ModelFile]) -> None:
    app = picker(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await pilot.press(*"broken", "enter")
        assert highlighted(app) is None
        await pilot.click("#models", offset=(5, 0))
        assert app.results == []
        await pilot.press("escape")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]


async def test_a_click_chooses(models: list[ModelFile]) -> None:
    app = picker(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await pilot.click("#models", offset=(5, 2))
        await settled(pilot, lambda: app.results)
    assert [facts.model.name for facts in app.results] == ["Gamma-1B"]


async def test_enter_waits_for_the_header(models: list[ModelFile], monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def slow(file: ModelFile) -> GgufHeader:
        assert gate.wait(60)
        return check(file)

    monkeypatch.setattr(model_facts, "check", slow)
    app = picker(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down", "enter")
        assert app.results == []
        gate.set()
        await settled(pilot, lambda: app.results)
    assert [facts.model.name for facts in app.results] == ["Gamma-1B"]


async def test_foreign_names_are_text(tmp_path: Path) -> None:
    app = picker([model("llama", tmp_path, name=EVIL), broken(tmp_path, name=EVIL)])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: text(app).count("⚠evil␛]0;title␇[bold red]键") == 2)
        assert "\x1b" not in text(app)


@pytest.mark.parametrize("size", [(60, 20), (20, 6), (5, 3)])
async def test_small_screens(models: list[ModelFile], size: tuple[int, int]) -> None:
    app = picker([*models] * 10)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        await pilot.press("down", "a")
        assert size[0] < 60 or "⏎ choose" in text(app)
        await pilot.press("escape")
        await settled(pilot, lambda: app.results)


# ------------------------------------------------------------------ facts


def test_facts_of_a_file_that_is_gone(tmp_path: Path) -> None:
    facts = read_facts(ModelFile("gone", tmp_path / "gone.gguf", 5, "models"))
    assert isinstance(facts, ModelFacts)
    assert facts.geometry is None
    assert facts.problem
    assert facts.model.size == 5
