"""The list of draft models: what is proposed, what could be had, what cannot draft and why."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from modal_host import EVIL, Host, broken, model, settled, text, type_at_once

from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.ui import draft_picker
from kvchat.ui.draft_choices import NO_DRAFT, DraftChoice, chosen_draft, draft_choices
from kvchat.ui.draft_picker import DraftPicker


def stranger(folder: Path, name: str = "stranger") -> ModelFile:
    """A small model with another kind of vocabulary."""
    path = folder / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelFile(name, path, path.stat().st_size, "models")


def built(folder: Path, name: str, **spec: int) -> ModelFile:
    """A model with the vocabulary of all tiny ones."""
    found = model("llama", folder, **spec)
    path = found.path.rename(folder / f"{name}.gguf")
    return replace(found, name=name, path=path)


@pytest.fixture
def models(tmp_path: Path) -> list[ModelFile]:
    """The first one is drafted for. The last is an eighth of it, the one before has half of its layers."""
    large, middle = built(tmp_path, "large", layers=12), built(tmp_path, "middle", layers=6)
    small = built(tmp_path, "small", layers=1, width=64)
    return [large, broken(tmp_path), stranger(tmp_path), middle, small]


def names(choices: tuple[DraftChoice, ...]) -> list[str]:
    return [choice.name for choice in choices]


def test_proposals_first_then_none_then_others_then_what_cannot(models: list[ModelFile]) -> None:
    large, damaged, _, middle, small = models
    found = draft_choices(large.path, models)
    assert names(found) == ["small", NO_DRAFT, "middle", "broken", "stranger"]
    share = small.size / large.size
    assert share < 0.25 < middle.size / large.size
    by_name = {choice.name: choice for choice in found}
    assert by_name["small"] == DraftChoice(small, f"same vocabulary, {share:.0%} of the size", proposed=True)
    assert by_name["stranger"].problem == "the vocabularies differ: it is SPM, not BPE"
    assert by_name["broken"].problem
    assert str(damaged.path) not in by_name["broken"].problem
    assert large.name not in by_name


def test_a_model_that_cannot_be_read(models: list[ModelFile]) -> None:
    with pytest.raises(KvchatError):
        draft_choices(models[1].path, models)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("large", "large cannot draft for itself"),
        ("stranger", "stranger cannot draft for large: the vocabularies differ: it is SPM, not BPE"),
        ("nothing", "there is no model 'nothing'"),
        ("broken", "truncated"),
    ],
)
def test_names_that_cannot_draft(models: list[ModelFile], name: str, message: str) -> None:
    with pytest.raises(KvchatError, match=message):
        chosen_draft(models[0].path, name, models)
    assert chosen_draft(models[0].path, "sma", models).path == models[4].path


def picker(models: list[ModelFile], current: str | None = None) -> Host:
    return Host(lambda: DraftPicker(models[0].path, models, current))


async def test_what_cannot_draft_is_seen_and_passed_over(models: list[ModelFile]) -> None:
    """Dimmed, with the reason behind the name; the keys go round it, and Enter takes the proposal."""
    app = picker(models)
    async with app.run_test(size=(84, 20)) as pilot:
        await settled(pilot, lambda: "stranger" in text(app))
        lines = {line.split()[1]: line for line in text(app).splitlines() if "│" in line and len(line.split()) > 2}
        assert "vocabulary: it is SPM, not BPE" in lines["stranger"]
        assert "same vocabulary" in lines["small"]
        assert "● no draft model" in text(app)
        seen = set()
        for _ in models:
            seen.add(app.screen.marked.name)  # type: ignore[attr-defined]
            await pilot.press("down")
        assert seen == {"small", "middle", NO_DRAFT}
        await pilot.press("ctrl+home", "s", "m", "a", "enter")
    (choice,) = app.results
    assert choice.model == models[4]


async def test_the_present_one_is_marked_and_highlighted(models: list[ModelFile]) -> None:
    app = picker(models, str(models[4].path))
    async with app.run_test(size=(84, 20)) as pilot:
        await settled(pilot, lambda: "● small" in text(app))
        assert app.screen.marked.name == "small"  # type: ignore[attr-defined]
        await pilot.press("escape")
    assert app.results == [None]


async def test_enter_before_the_files_are_read_waits_for_them(
    models: list[ModelFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes what would be highlighted, and never nothing by chance."""
    gate = threading.Event()

    def slow(path: Path, found: list[ModelFile]) -> tuple[DraftChoice, ...]:
        gate.wait(60)
        return draft_choices(path, found)

    monkeypatch.setattr(draft_picker, "draft_choices", slow)
    app = picker(models)
    async with app.run_test(size=(84, 20)) as pilot:
        await settled(pilot, lambda: "reading the model files" in text(app))
        await type_at_once(pilot, "enter", "enter")
        assert app.results == []
        gate.set()
        await settled(pilot, lambda: app.results)
    assert app.results[0].proposed


async def test_names_from_files_are_only_text(tmp_path: Path) -> None:
    large = model("llama", tmp_path, "large", layers=2)
    app = picker([large, replace(stranger(tmp_path), name=EVIL)])
    async with app.run_test(size=(84, 20)) as pilot:
        await settled(pilot, lambda: "evil" in text(app))
        assert "[bold red]" in text(app)
        assert not {"\x1b", "\x07", "\u202e"} & set(text(app))


@pytest.mark.parametrize("size", [(20, 6), (40, 12), (60, 20), (5, 3)])
async def test_small_screens_do_not_break(models: list[ModelFile], size: tuple[int, int]) -> None:
    app = picker(models)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        await pilot.press("down", "s", "backspace", "up")
        await pilot.resize_terminal(84, 20)
        await settled(pilot, lambda: "stranger" in text(app))
