"""The panel with all that is known of a model, and the way to it from the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from modal_host import Host, broken, model, settled, text

from kvchat.backend.inspection import Build, Example, Look, Looked, SpecialToken, Vocabulary
from kvchat.backend.values import EngineConfig
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.ui import model_words
from kvchat.ui.model_details import ModelDetails
from kvchat.ui.model_picker import ModelPicker

BUILD = Build((), "", False, 16, True, True)
VOCABULARY = Vocabulary(
    "BPE",
    512,
    (SpecialToken("BOS", 1, "<s>\x1b[2J"), SpecialToken("end of turn", 2, "[bold]<end>")),
    ((2, "[bold]<end>"),),
    True,
    False,
)
EXAMPLE = Example("GGUF", "[red]\x1b[31mWhat is a cache?\n" + "line\n" * 90, 77, False, None)


def host(found: ModelFile, models: list[ModelFile], folder: Path) -> Host:
    return Host(lambda: ModelDetails(found, models, folder / "engine.log"))


async def test_a_real_file(tmp_path: Path) -> None:
    """Two layers, K and V of two heads of 64 in f16: 2 * 2 * 2 * 64 * 2 bytes a token. The real llama.cpp answers."""
    large = model("llama", tmp_path, name="Large", layers=2)
    app = host(large, [large], tmp_path)
    async with app.run_test(size=(100, 60)) as pilot:
        await settled(pilot, lambda: "asking llama.cpp" in text(app) or "Vocabulary" in text(app))
        shown = text(app)
        assert "Large" in shown
        assert "llama, GQA, 2 layers" in shown
        assert "f16 1,024, bf16 1,024, q8_0 544, q4_0 288" in shown
        assert "the file names none" in shown
        assert "no model here" in shown
        await settled(pilot, lambda: "A conversation as this model reads it" in text(app))
        shown = text(app)
        assert "Vocabulary: BPE, 512 tokens; no BOS is added" in shown
        assert "'<|im_end|>'" in shown
        assert "<|im_start|>user" in shown
        assert "What is a cache?<|im_end|>" in shown
        assert "tensor" in shown and "f16" in shown
        await pilot.press("escape")
        await settled(pilot, lambda: app.results == [None])


async def test_texts_of_a_file_are_neither_markup_nor_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Look] = []

    def look(question: Look, log_file: Path) -> Looked:
        asked.append(question)
        return Looked(BUILD, VOCABULARY, EXAMPLE)

    monkeypatch.setattr(model_words, "look", look)
    found = model("llama", tmp_path, name="a\x1b]0;t\x07[red]b")
    app = host(found, [found], tmp_path)
    async with app.run_test(size=(90, 110)) as pilot:
        await settled(pilot, lambda: "What is a cache?" in text(app))
        shown = text(app)
        assert asked == [Look(str(found.path))]
        assert "\x1b" not in shown and "\x07" not in shown
        assert "[bold]<end>" in shown and "[red]" in shown
        assert "each prompt begins with BOS" in shown
        assert "no place for a system prompt" in shown
        assert shown.count("line") == 59 and "…" in shown  # the example is cut after 60 lines


async def test_a_small_screen_scrolls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_words, "look", lambda *_: Looked(BUILD, VOCABULARY, EXAMPLE))
    found = model("llama", tmp_path)
    app = host(found, [found], tmp_path)
    async with app.run_test(size=(40, 12)) as pilot:
        await settled(pilot, lambda: "architecture" in text(app))
        await settled(pilot, lambda: app.screen.query_one("#words").size.height > 60)
        await pilot.press(*["pagedown"] * 20)
        await settled(pilot, lambda: "line" in text(app))
        await pilot.press(*["pageup"] * 20)
        await settled(pilot, lambda: "architecture" in text(app))


async def test_what_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(question: Look, log_file: Path) -> Looked:
        raise KvchatError("the helper process was killed by SIGILL", "its log")

    monkeypatch.setattr(model_words, "look", look)
    found = model("mamba", tmp_path)
    app = host(found, [found], tmp_path)
    async with app.run_test(size=(100, 40)) as pilot:
        await settled(pilot, lambda: "cannot be told: the helper process was killed by SIGILL" in text(app))
        assert "recurrent" in text(app)
    bad = broken(tmp_path)
    app = host(bad, [found, bad], tmp_path)
    async with app.run_test(size=(100, 40)) as pilot:
        await settled(pilot, lambda: "truncated" in text(app))


class Asked(Host):
    """The list, and what it asks for."""

    def __init__(self, models: list[ModelFile]) -> None:
        configured = EngineConfig("").of_model
        super().__init__(lambda: ModelPicker(models, "", lambda facts: configured(str(facts.model.path)), Memory()))
        self.asked: list[ModelPicker.Asked] = []

    def on_model_picker_asked(self, event: ModelPicker.Asked) -> None:
        self.asked.append(event)


async def test_from_the_list(tmp_path: Path) -> None:
    models = [model("llama", tmp_path, name="Alpha"), model("mamba", tmp_path, name="Beta")]
    app = Asked(models)
    async with app.run_test(size=(100, 24)) as pilot:
        await settled(pilot, lambda: "…" not in text(app))
        assert "f3 all about it" in text(app).lower()
        await pilot.press("down", "f3")
        await settled(pilot, lambda: app.asked)
    asked = app.asked
    assert asked[0].model.name == "Beta"
    assert asked[0].models == tuple(models)
