"""A model that does not fit is asked about before it is loaded, in the real app with a fake engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import tiny
from fake_backend import turn_events
from textual.pilot import Pilot
from ui_fakes import FAKE, FOUND, room, sees, send, stage, status, until

from kvchat.backend.values import EngineConfig
from kvchat.config import Settings
from kvchat.formats.gguf import GgufHeader
from kvchat.kv.needs import Memory
from kvchat.library.find import ModelFile, check
from kvchat.ui import memory, model_facts
from kvchat.ui.first_run import FirstRun
from kvchat.ui.fit_question import FitQuestion
from kvchat.ui.launch import Survey
from kvchat.ui.model_list import ModelList
from kvchat.ui.planning import Planned, PlanReader

MIB = 1 << 20
NAMED = frozenset({"cache_type_k"})  # f16 on purpose: else the plan would take q8_0, which fits
# 16 MiB of f16 for the tiny llama, and several times that for computations.
LARGE = Settings(context=16384, named=NAMED)


@dataclass
class Machine:
    """How much memory is free; None: the machine does not tell."""

    free: int | None = 110 * MIB


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(memory, "free_memory", lambda: made.free)
    return made


@pytest.fixture
def llama(tmp_path: Path) -> ModelFile:
    path = tiny.build("llama", tmp_path, context=65536)
    return ModelFile("llama", path, path.stat().st_size, "models")


def begun_with(model: ModelFile, *others: ModelFile) -> Survey:
    return Survey((model, *others), (model.path.parent,), model.path)


async def question(pilot: Pilot[None]) -> FitQuestion:
    await until(pilot, lambda: isinstance(pilot.app.screen, FitQuestion) and "Smaller con" in on_screen(pilot))
    assert isinstance(pilot.app.screen, FitQuestion)
    return pilot.app.screen


async def ready(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: status(pilot).startswith("○"))


def on_screen(pilot: Pilot[None]) -> str:
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


# ------------------------------------------------------------------ at the start


async def test_the_start_asks_and_a_smaller_context_is_kept_with_the_chat(
    home: Path, machine: Machine, llama: ModelFile
) -> None:
    with stage(home, turn_events, found=begun_with(llama), settings=LARGE) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            asked = await question(pilot)
            await until(pilot, lambda: "KV cache        16 MiB   f16, 16,384 tokens" in on_screen(pilot))
            assert "estimate" in on_screen(pilot)
            assert not on.engine.started
            await until(pilot, lambda: "no model yet" in status(pilot))
            smaller = asked._problem.offers[0].config
            assert smaller is not None
            assert smaller.context < 16384
            await pilot.press("enter")
            await ready(pilot)
            assert on.engine.started
            assert on.engine.config == smaller
            await send(pilot, "a question")
            await sees(pilot, "first 0.60 s")
            await until(pilot, lambda: room(pilot).conversation.engine_settings is not None)
            kept = room(pilot).conversation.engine_settings
            assert kept is not None
            assert (kept.context, kept.type_k) == (smaller.context, "f16")
    assert not on.paths.config_file.exists()  # for this chat, not from now on


async def test_escape_loads_nothing_and_leaves_a_way_on(home: Path, machine: Machine, llama: ModelFile) -> None:
    with stage(home, turn_events, found=begun_with(llama), settings=LARGE) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await question(pilot)
            await pilot.press("escape")
            await sees(pilot, "Nothing was loaded. /settings chooses a model, its cache and its context size.")
            assert not on.engine.started
            await pilot.press("f2")
            await until(pilot, lambda: "KV memory" in on_screen(pilot))
            assert "16,384" in on_screen(pilot)  # what was meant is what is being changed
            assert "110 MiB free" in on_screen(pilot)
            await pilot.press("c", "left", "left", "left", "enter")
            await ready(pilot)
            assert on.engine.config.context == 2048


async def test_loading_anyway_loads(home: Path, machine: Machine, llama: ModelFile) -> None:
    with stage(home, turn_events, found=begun_with(llama), settings=LARGE) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await question(pilot)
            await pilot.press("l", "enter")
            await ready(pilot)
            assert (on.engine.config.context, on.engine.config.type_k) == (16384, "f16")


@pytest.mark.parametrize("free", [None, 1 << 40])
async def test_nothing_is_asked_where_it_fits_or_is_not_known(
    home: Path, machine: Machine, llama: ModelFile, free: int | None
) -> None:
    machine.free = free
    with stage(home, turn_events, found=begun_with(llama), settings=LARGE) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            assert not isinstance(pilot.app.screen, FitQuestion)
            assert on.engine.config.context == 16384


# ------------------------------------------------------------------ later


async def test_a_command_asks_before_it_changes_anything(home: Path, machine: Machine, llama: ModelFile) -> None:
    with stage(home, turn_events, found=replace(FOUND, models=(FAKE, llama)), settings=LARGE) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await send(pilot, "/model llama")
            await question(pilot)
            await pilot.press("q")
            assert "q8_0 cache" in on_screen(pilot)
            await pilot.press("enter")
            await until(pilot, lambda: len(on.engine.configured) == 1)
            (config,) = on.engine.configured
            assert (config.model_path, config.type_k, config.type_v) == (str(llama.path), "q8_0", "q8_0")
            await ready(pilot)
            await send(pilot, "/cache f16")
            await question(pilot)
            await pilot.press("escape")
            await pilot.pause(0.1)
            assert len(on.engine.configured) == 1
            assert room(pilot).prompt.has_focus
            await send(pilot, "/context 512")
            await until(pilot, lambda: len(on.engine.configured) == 2)  # it fits
            assert on.engine.config == replace(config, context=512)


async def test_a_default_is_what_was_taken(home: Path, machine: Machine, llama: ModelFile) -> None:
    with stage(home, turn_events, found=begun_with(llama), settings=Settings(context=512)) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            file = on.paths.config_file
            for key, saved in (("escape", False), ("enter", True)):
                await pilot.press("f2")
                await until(pilot, lambda: "KV memory" in on_screen(pilot))
                await pilot.press("c", "left", "left", "ctrl+s")  # auto, then all that the model was trained for
                asked = await question(pilot)
                taken = asked._problem.offers[0].config
                await pilot.press(key)
                await until(pilot, lambda: not isinstance(pilot.app.screen, FitQuestion))
                await until(pilot, lambda saved=saved: file.exists() == saved)  # type: ignore[misc]
            assert taken is not None
            await until(pilot, lambda: f"ctx_size = {taken.context}" in file.read_text())
            assert on.engine.config == taken


async def test_the_first_run_comes_back(home: Path, machine: Machine, llama: ModelFile) -> None:
    found = replace(begun_with(llama), chosen=None)
    with stage(home, turn_events, found=found, settings=LARGE) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun) and "reused from" in on_screen(pilot))
            assert "does not fit" in on_screen(pilot)
            await pilot.press("enter")
            await question(pilot)
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun) and "reused from" in on_screen(pilot))
            assert not on.engine.started
            assert not on.paths.config_file.exists()
            await pilot.press("tab", "down")
            await until(pilot, lambda: "q8_0, 16,384 tokens" in on_screen(pilot))
            assert "fits" in next(line for line in on_screen(pilot).splitlines() if "KiB" in line)
            await pilot.press("enter")
            await ready(pilot)
            assert on.engine.config.type_k == "q8_0"
            await until(pilot, on.paths.config_file.exists)


async def test_two_changes_in_a_row_are_both_made(
    home: Path, llama: ModelFile, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command comes while the header is read for the first."""
    machine.free = 1 << 40
    gate = threading.Event()

    def slow(file: ModelFile) -> GgufHeader:
        assert gate.wait(60)
        return check(file)

    with stage(home, turn_events, found=replace(FOUND, models=(FAKE, llama))) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await send(pilot, "/model llama")
            await until(pilot, lambda: on.engine.config.model_path == str(llama.path))
            monkeypatch.setattr(model_facts, "check", slow)
            engines = room(pilot).screen._engines  # type: ignore[attr-defined]
            engines._fitting._facts = None
            await send(pilot, "/cache q8_0")
            await send(pilot, "/context 2048")
            assert len(on.engine.configured) == 1
            gate.set()
            await until(pilot, lambda: len(on.engine.configured) == 2)
            await pilot.pause(0.1)
    assert [(config.type_k, config.context) for config in on.engine.configured[1:]] == [("q8_0", 2048)]


# ------------------------------------------------------------------ on small screens


@pytest.mark.parametrize("size", [(60, 14), (40, 10), (20, 6)])
async def test_small_screens(home: Path, machine: Machine, llama: ModelFile, size: tuple[int, int]) -> None:
    with stage(home, found=begun_with(llama), settings=LARGE) as on:
        async with on.app().run_test(size=size) as pilot:
            await question(pilot)
            await pilot.pause(0.1)
            assert "q8_0" in on_screen(pilot)
            assert size[1] < 14 or "esc cancel" in on_screen(pilot)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, FitQuestion))
            assert not on.engine.started


async def test_a_click_takes_an_offer(home: Path, machine: Machine, llama: ModelFile) -> None:
    with stage(home, found=begun_with(llama), settings=LARGE) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            asked = await question(pilot)
            await pilot.click("#offers", offset=(5, 1))
            await ready(pilot)
            assert on.engine.config == asked._problem.offers[1].config


# ------------------------------------------------------------------ plans on a thread


def test_the_preferred_model_is_planned_first_and_only_the_newest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [ModelFile(kind, tiny.build(kind, tmp_path), 0, "models") for kind in ("llama", "mqa", "mha")]
    reading, gate, done = threading.Event(), threading.Event(), threading.Event()

    def slow(file: ModelFile) -> GgufHeader:
        reading.set()
        assert gate.wait(60)
        return check(file)

    def with_context(context: int) -> Callable[[model_facts.ModelFacts], EngineConfig]:
        return lambda facts: EngineConfig(str(facts.model.path), context=context)

    got: list[Planned] = []

    def post(planned: Planned) -> None:
        got.append(planned)
        if len(got) == len(models):
            done.set()

    monkeypatch.setattr(model_facts, "check", slow)
    reader = PlanReader(models, with_context(1024), Memory(), post)
    reader.start()
    assert reading.wait(60)
    reader.again(with_context(2048), first=models[0])  # what is being made now is of no use any more
    reader.prefer(models[2])
    gate.set()
    assert done.wait(60)
    reader.stop()
    assert [planned.facts.model.name for planned in got] == ["mha", "llama", "mqa"]
    assert {planned.plan.context for planned in got if planned.plan is not None} == {2048}


async def test_keys_are_not_held_up_by_a_slow_disk(
    home: Path, machine: Machine, llama: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def slow(file: ModelFile) -> GgufHeader:
        assert gate.wait(60)
        return check(file)

    monkeypatch.setattr(model_facts, "check", slow)
    found = Survey((llama, replace(llama, name="other")), (), None)
    with stage(home, found=found) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await until(pilot, lambda: "reading the model file" in on_screen(pilot))
            await pilot.press("down")
            assert pilot.app.screen.query_one(ModelList).highlighted == 1
            gate.set()
            await until(pilot, lambda: "reused from" in on_screen(pilot))
