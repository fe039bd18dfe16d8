"""More models from within the app: the catalogue, the question, the progress, a further folder."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from modal_host import Host, settled, text
from ui_fakes import room, shown, stage, toasts, until

from kvchat.backend.values import EngineConfig
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.kv.needs import Memory
from kvchat.library import catalog, find
from kvchat.library.catalog import offers
from kvchat.library.fetch import Remote
from kvchat.library.find import ModelFile
from kvchat.library.pull import Source
from kvchat.library.transport import Wire
from kvchat.ui.catalogue import Catalogue, offered, question
from kvchat.ui.first_run import FirstRun
from kvchat.ui.launch import Survey
from kvchat.ui.model_picker import ModelPicker
from kvchat.ui.pulling import Ended, Pulling
from kvchat.ui.settings_screen import SettingsScreen

sys.path.insert(0, str(Path(__file__).parent.parent / "library"))
from pull_server import Web, serving

GIB = 1 << 30
ONE_MODEL = """
endpoint = "{endpoint}"
address = "{{repository}}/resolve/{{revision}}/{{file}}"

[[model]]
name = "tiny:1m"
title = "Tiny 1M [bold]"
about = "for tests"
repository = "owner/name"
file = "tiny-Q8_0.gguf"
size = {size}
sha256 = "{sha256}"
licence = "MIT"
[model.shape]
architecture = "llama"
vocabulary = 512
block_count = 2
context_length = 4096
embedding_length = 128
feed_forward_length = 128
attention.head_count = 4
attention.head_count_kv = 2
attention.key_length = 64
attention.value_length = 64
"""


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny.build("llama", tmp_path_factory.mktemp("model")).read_bytes()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rests between tries, no built-in model."""
    monkeypatch.setattr(Wire, "rest", lambda self, seconds: self.check())
    monkeypatch.setattr(find, "_BUILT_IN_PACKAGE", "no_such_package_anywhere")


@pytest.fixture
def one_model(web: Web, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A catalogue of one model, at the server; its address there."""
    file = tmp_path / "catalog.toml"
    filled = ONE_MODEL.format(endpoint=web.url, size=len(model), sha256=hashlib.sha256(model).hexdigest())
    file.write_text(filled)
    monkeypatch.setattr(catalog, "_file", lambda: file)
    offers.cache_clear()
    yield "/owner/name/resolve/main/tiny-Q8_0.gguf"
    offers.cache_clear()


# ------------------------------------------------------------------ the progress


def pulling(web: Web, folder: Path, size: int | None = None) -> Host:
    source = Source("m\x1b]0;x\x07[bold]", "", (("m.gguf", Remote(f"{web.url}/m.gguf", size)),))
    return Host(lambda: Pulling(source, folder))


async def test_progress_and_the_end(web: Web, tmp_path: Path, model: bytes) -> None:
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    app = pulling(web, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: f"50%  {len(model) // 2048} KiB of" in text(app))
        half = text(app)
        gate.set()
        await settled(pilot, lambda: app.results)
    assert "Fetching m␛]0;x␇[bold]" in half and "\x1b" not in half
    assert half.count("━") >= 30 and half.count("─") >= 30
    assert "try again" not in half
    (found,) = app.results
    assert found.path.read_bytes() == model


async def test_stopped(web: Web, tmp_path: Path, model: bytes) -> None:
    """At once, although the server is silent; the app never waits for it."""
    web.put("/m.gguf", model, gate=threading.Event())
    app = pulling(web, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "50%" in text(app))
        await pilot.press("escape", "escape")
        await settled(pilot, lambda: app.results)
    assert app.results == [None]
    assert (tmp_path / "m.gguf.part").stat().st_size == len(model) // 2


async def test_an_error_and_another_try(web: Web, tmp_path: Path, model: bytes) -> None:
    app = pulling(web, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "has no such file (404)" in text(app))
        assert "⏎ try again" in text(app)
        web.put("/m.gguf", model)
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    assert app.results[0].path == tmp_path / "m.gguf"


async def test_enter_while_it_runs_does_nothing(web: Web, tmp_path: Path, model: bytes) -> None:
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    app = pulling(web, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot, lambda: "50%" in text(app))
        await pilot.press("enter")
        gate.set()
        await settled(pilot, lambda: app.results)
    assert len(web.asked) == 1


@pytest.mark.parametrize("size", [(60, 20), (20, 6), (5, 3)])
async def test_small_screens(web: Web, tmp_path: Path, model: bytes, size: tuple[int, int]) -> None:
    web.put("/m.gguf", model, gate=threading.Event())
    app = pulling(web, tmp_path)
    async with app.run_test(size=size) as pilot:
        await settled(pilot, web.halfway.is_set)
        await pilot.pause(0.3)
        await pilot.press("escape")
        await settled(pilot, lambda: app.results)


# ------------------------------------------------------------------ the catalogue


async def test_the_catalogue() -> None:
    """Size, licence, and whether it fits by the plan: 8 GiB carry 4B models and not 14B ones."""
    here = ModelFile("x", Path("/models/Qwen3-0.6B-Q8_0.gguf"), 1, "models")
    models = offered(EngineConfig(""), Memory(8 * GIB), [here])
    app = Host(lambda: Catalogue(models))
    async with app.run_test(size=(84, 30)) as pilot:
        await settled(pilot, lambda: "Qwen3 14B" in text(app))
        shown_at_first = text(app)
        await pilot.press(*"llamas")
        await settled(pilot, lambda: "nothing has such a name" in text(app))
        await pilot.press("backspace", *"3.2:3b")
        await settled(pilot, lambda: "Qwen3" not in text(app))
        assert "Llama 3.2 3B Instruct" in text(app)
        await pilot.press("enter")
        await settled(pilot, lambda: app.results)
    lines = [line for line in shown_at_first.splitlines() if "Qwen3" in line or "Gemma 3 4B" in line]
    found = {line[3:26].strip(): line for line in lines}
    assert "2.3 GiB  fits         Apache-2.0" in found["Qwen3 4B"]
    assert "8.4 GiB  does not fit Apache-2.0" in found["Qwen3 14B"]
    assert "is here" in found["Qwen3 0.6B"]
    assert "Gemma Terms of Use" in found["Gemma 3 4B"]
    assert app.results[0].offer.name == "llama3.2:3b"


def test_the_question(tmp_path: Path) -> None:
    about = next(each for each in offered(EngineConfig(""), Memory(8 * GIB), []) if each.offer.name == "qwen3:14b")
    from kvchat.library import pull

    asked = question(pull.offered(about.offer), tmp_path / "models", about)
    for words in (
        "Fetch Qwen3 14B?",
        "8.4 GiB from huggingface.co: Qwen/Qwen3-14B-GGUF, Qwen3-14B-Q4_K_M.gguf",
        "licence: Apache-2.0",
        "of memory, which does not fit",
        f"into {tmp_path / 'models'}, which has ",
    ):
        assert words in asked


# ------------------------------------------------------------------ in the app


NOTHING = Survey((), (Path("/models"),), None)


async def test_from_nothing_to_a_model(home: Path, web: Web, model: bytes, one_model: str) -> None:
    """The first run offers the catalogue, comes back with the new model, and starts with it."""
    web.put(one_model, model)
    with stage(home, at_start=False, found=NOTHING) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await until(pilot, lambda: "^G fetches one from the catalogue" in text(pilot.app))
            await pilot.press("ctrl+g")
            await until(pilot, lambda: isinstance(pilot.app.screen, Catalogue))
            await until(pilot, lambda: "Tiny 1M [bold]" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: "Fetch Tiny 1M [bold]?" in text(pilot.app))
            assert "licence: MIT" in text(pilot.app)
            assert web.asked == []  # nothing before the answer
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await until(pilot, lambda: "tiny-Q8_0" in text(pilot.app) and "fits" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: made.engine.started)
    assert made.engine.config.model_path == str(made.paths.models_folder / "owner" / "name" / "tiny-Q8_0.gguf")


async def test_every_no_leads_back(home: Path, web: Web, one_model: str) -> None:
    with stage(home, at_start=False, found=NOTHING) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await pilot.press("ctrl+g")
            await until(pilot, lambda: isinstance(pilot.app.screen, Catalogue))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await pilot.press("ctrl+g")
            await until(pilot, lambda: isinstance(pilot.app.screen, Catalogue) and "Tiny" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: "Fetch Tiny" in text(pilot.app))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await pilot.press("ctrl+o")
            await until(pilot, lambda: "A folder with models" in text(pilot.app))
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
    assert web.asked == []
    assert not made.engine.started


async def test_a_further_folder(home: Path, tmp_path: Path, model: bytes) -> None:
    folder = tmp_path / "my models 키"
    folder.mkdir()
    (folder / "mine.gguf").write_bytes(model)
    with stage(home, at_start=False, found=NOTHING) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            for typed, said in (("/nope", "There is no folder /nope"), ("''", "There is no folder ''")):
                await pilot.press("ctrl+o")
                await until(pilot, lambda: "A folder with models" in text(pilot.app))
                await pilot.press(*typed, "enter")
                await until(pilot, lambda said=said: said in toasts(pilot))
            await pilot.press("ctrl+o")
            await until(pilot, lambda: "A folder with models" in text(pilot.app))
            pilot.app.screen.query_one("#line").value = f"'{folder}'"  # type: ignore[attr-defined]
            await pilot.press("enter")
            await until(pilot, lambda: "mine" in text(pilot.app) and "fits" in text(pilot.app))
            assert room(pilot).desk.settings.model_folders == (folder,)
    assert made.paths.config_file.read_text() == f'model_folders = ["{folder}"]\n'


async def test_offline(home: Path, web: Web, one_model: str) -> None:
    with stage(home, at_start=False, found=NOTHING, settings=Settings(offline=True)) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await pilot.press("ctrl+g")
            await until(pilot, lambda: "Nothing is fetched: offline is set" in toasts(pilot))
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
    assert (web.asked, made.engine.started) == ([], False)


async def test_in_the_list_of_models(home: Path, web: Web, model: bytes, one_model: str) -> None:
    """The settings' list gets longer, the new one is highlighted, and what was chosen is applied as ever."""
    web.put(one_model, model)
    file = home / "models" / "first.gguf"
    file.parent.mkdir()
    file.write_bytes(model)
    first = ModelFile("first", file, len(model), "models")
    with stage(home, found=Survey((first,), (file.parent,), file)) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: made.engine.ready is not None)
            await pilot.press("f2")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await pilot.press("up", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, ModelPicker))
            await pilot.press("ctrl+g")
            await until(pilot, lambda: isinstance(pilot.app.screen, Catalogue) and "Tiny" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: "Fetch Tiny" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, ModelPicker))
            await until(pilot, lambda: text(pilot.app).count("fits") == 2)
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await until(pilot, lambda: "tiny-Q8_0" in text(pilot.app))
            await pilot.press("escape")


async def test_the_command(home: Path, web: Web, model: bytes) -> None:
    web.put("/m.gguf", model)
    with stage(home) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: made.engine.ready is not None)
            room(pilot).prompt.put(f"/pull {web.url}/m.gguf")
            await pilot.press("enter")
            await until(pilot, lambda: "Fetch m?" in text(pilot.app))
            assert "of unknown size from 127.0.0.1" in text(pilot.app)
            await pilot.press("y")
            await until(pilot, lambda: "m.gguf is there. /model m takes it." in shown(pilot))
            room(pilot).prompt.put("/pull nonsense")
            await pilot.press("enter")
            await until(pilot, lambda: "The catalogue has no 'nonsense'" in toasts(pilot))
    assert (made.paths.models_folder / "m.gguf").read_bytes() == model


async def test_what_is_to_be_drawn_when_it_was_left_already(home: Path, web: Web, model: bytes) -> None:
    """Another size a moment before the end: its widgets are gone when the bar is to be drawn."""
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    with stage(home) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: made.engine.ready is not None)
            room(pilot).prompt.put(f"/pull {web.url}/m.gguf")
            await pilot.press("enter")
            await until(pilot, lambda: "Fetch m?" in text(pilot.app))
            await pilot.press("y")
            await until(pilot, lambda: "50%" in text(pilot.app))
            left = pilot.app.screen
            assert isinstance(left, Pulling)
            await pilot.press("escape")
            await until(pilot, lambda: not left.children)
            left._draw()
            left.on_ended(Ended(None, KvchatError("late")))
            gate.set()


async def test_help_over_it_when_it_ends(home: Path, web: Web, model: bytes) -> None:
    """What was fetched meanwhile is not lost."""
    gate = threading.Event()
    web.put("/m.gguf", model, gate=gate)
    with stage(home) as made:
        async with made.app().run_test(size=(90, 30)) as pilot:
            await until(pilot, lambda: made.engine.ready is not None)
            room(pilot).prompt.put(f"/pull {web.url}/m.gguf")
            await pilot.press("enter")
            await until(pilot, lambda: "Fetch m?" in text(pilot.app))
            await pilot.press("y")
            await until(pilot, lambda: "50%" in text(pilot.app))
            await pilot.press("f1")
            await until(pilot, lambda: not isinstance(pilot.app.screen, Pulling))
            gate.set()
            await until(pilot, (made.paths.models_folder / "m.gguf").exists)
            await pilot.pause(0.3)
            await pilot.press("escape")
            await until(pilot, lambda: "m.gguf is there. /model m takes it." in shown(pilot))
