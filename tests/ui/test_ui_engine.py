"""Model and cache from the chat screen, with a fake engine: F2 and the commands, what is told, warm and forecast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from fake_backend import delta, finished, prompt_events, turn_events
from textual.pilot import Pilot
from ui_fakes import FAKE, FOUND, OTHER, hint, ready_for, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.journal import EXTRA_BUFFERS
from kvchat.backend.protocol import ConfigureFailed, EngineDied, Forecasted, Loading, Previewed, Warmed
from kvchat.backend.values import EngineConfig, Failure
from kvchat.config import Settings
from kvchat.library.find import ModelFile
from kvchat.ui.background_question import AnswersRunning
from kvchat.ui.first_run import FirstChoice, FirstRun
from kvchat.ui.launch import Survey
from kvchat.ui.settings_screen import EngineWish, SettingsScreen


async def ready(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: status(pilot).startswith("○"))


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("/cache q8_0", {"type_k": "q8_0", "type_v": "q8_0"}),
        ("/cache q8_0 q4_0", {"type_k": "q8_0", "type_v": "q4_0"}),
        ("/context 2048", {"context": 2048}),
        ("/threads 3", {"threads": 3}),
    ],
)
async def test_a_command_goes_over_to_another_configuration(
    home: Path, command: str, change: dict[str, object]
) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            before = on.engine.config
            await send(pilot, command)
            await until(pilot, lambda: bool(on.engine.configured))
            assert on.engine.configured == [replace(before, **change)]  # type: ignore[arg-type]
            await ready(pilot)
            await send(pilot, command)
            await until(pilot, lambda: "It runs so already." in toasts(pilot))
            assert len(on.engine.configured) == 1


async def test_a_model_is_chosen_by_a_part_of_its_name(home: Path) -> None:
    file = tiny.build("llama", home)
    found = replace(FOUND, models=(FAKE, ModelFile(file.stem, file, 1, "models")))
    with stage(home, turn_events, found=found) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, f"/model {file.stem[:-1]}")
            await until(pilot, lambda: [config.model_path for config in on.engine.configured] == [str(file)])
            await until(pilot, lambda: file.stem in status(pilot))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/cache q5", "/cache takes one or two of f16, bf16, q8_0, q4_0"),
        ("/cache f16 f16 f16", "/cache takes one or two"),
        ("/context many", "'many' is not a whole number"),
        ("/threads -7", "-7 is not between"),
        ("/model nothing-like-it", "There is no model 'nothing-like-it'"),
        ("/model embed", "'embed' is a model for embeddings"),
    ],
)
async def test_what_cannot_be_applied_is_refused_with_a_reason(home: Path, command: str, said: str) -> None:
    unfit = ModelFile("embed", Path("/models/embed.gguf"), 1, "models", "a model for embeddings")
    with stage(home, found=replace(FOUND, unfit=(unfit,))) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, command)
            await until(pilot, lambda: said in toasts(pilot))
            assert on.engine.configured == []


async def test_a_quantized_v_cache_needs_flash_attention(home: Path) -> None:
    with stage(home, settings=Settings(flash_attention="off")) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "/cache f16 q8_0")
            await until(pilot, lambda: "needs flash attention" in toasts(pilot))
            await send(pilot, "/cache q8_0 f16")
            await until(pilot, lambda: bool(on.engine.configured))


async def test_applying_during_an_answer_asks_first(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: bool(on.engine.requests))
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "half"))
            await sees(pilot, "half")
            await send(pilot, "/cache q8_0")
            await until(pilot, lambda: isinstance(pilot.app.screen, AnswersRunning))
            await pilot.press("escape")
            assert on.engine.cancelled == []
            await send(pilot, "/cache q8_0")
            await until(pilot, lambda: isinstance(pilot.app.screen, AnswersRunning))
            await pilot.press("s")
            await until(pilot, lambda: on.engine.cancelled == [request.turn])
            assert on.engine.configured == []  # not before it has ended
            on.engine.say(finished(request, "cancelled"))
            await until(pilot, lambda: len(on.engine.configured) == 1)
            await sees(pilot, "half")


async def test_rebuilding_is_shown_and_a_failure_is_said(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            before = on.engine.config
            on.engine.obedient = False
            await send(pilot, "/context 999999")
            await until(pilot, lambda: "rebuilding the cache" in status(pilot))
            on.engine.config = before
            on.engine.say(ConfigureFailed(Failure("the cache does not fit", "take a smaller context")))
            on.engine.come(ready_for(before))
            await sees(pilot, "! not applied: The cache does not fit")
            await sees(pilot, "take a smaller context")
            await ready(pilot)
            await send(pilot, "/model")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            pilot.app.screen.dismiss(EngineWish(replace(before, model_path=str(OTHER.path)), False))
            await until(pilot, lambda: len(on.engine.configured) == 2)
            on.engine.say(Loading(0.4))
            await until(pilot, lambda: "loading 40%" in status(pilot))


async def test_settings_are_chosen_previewed_applied_and_saved(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await send(pilot, "a question")
            await sees(pilot, "first 0.60 s")
            await pilot.press("f2")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            settings = pilot.app.screen
            assert isinstance(settings, SettingsScreen)
            wanted = replace(on.engine.config, type_k="q8_0", type_v="q8_0")
            settings._preview(wanted)
            await until(pilot, lambda: bool(on.engine.previews))
            assert on.engine.previews[0].config == wanted
            seen: list[Previewed] = []
            settings.show_preview = seen.append  # type: ignore[method-assign]
            answer = Previewed(on.engine.previews[0].turn, 20, 12, 0.5)
            on.engine.say(answer)
            await until(pilot, lambda: seen == [answer])
            settings.dismiss(EngineWish(wanted, save_as_default=True))
            await until(pilot, lambda: on.engine.configured == [wanted])
            file = on.paths.config_file
            await until(pilot, lambda: file.exists() and 'cache_type_k = "q8_0"' in file.read_text())
            await pilot.press("f2")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, SettingsScreen))
            assert len(on.engine.configured) == 1
            await pilot.press("x")
            assert room(pilot).prompt.text == "x"


async def test_the_chat_is_warmed_when_it_is_opened_and_after_a_change(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await send(pilot, "a question")
            await sees(pilot, "first 0.60 s")
            chat = room(pilot).conversation.chat.id
    with stage(home, turn_events) as on:
        async with on.app(chat).run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: len(on.engine.warms) == 1)
            ids = on.engine.warms[0].ids
            assert len(ids) > 10
            on.engine.say(Warmed(on.engine.warms[0].turn, 1234, 1234, 1234, 0.05, None))
            await until(pilot, lambda: "1,234 tokens back from pages in 0.05 s" in status(pilot))
            await send(pilot, "/cache q8_0")
            await until(pilot, lambda: len(on.engine.warms) == 2)
            assert on.engine.warms[1].ids == ids
            on.engine.say(Warmed(on.engine.warms[1].turn, 1234, 0, 0, 0.0, None))
            await until(pilot, lambda: "nothing kept: 1,234 tokens to compute" in status(pilot))
            await send(pilot, "next")
            await sees(pilot, "▌ next")
            await until(pilot, lambda: "nothing kept" not in status(pilot))


async def test_the_line_below_the_prompt_tells_what_a_send_would_cost(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            height = room(pilot).transcript.size.height
            await pilot.press("h", "i")
            await until(pilot, lambda: len(on.engine.forecasts) == 1)
            assert on.engine.forecasts[0].messages[-1].text == "hi"
            on.engine.say(Forecasted(on.engine.forecasts[0].turn, 3530, 412, 3000, 118, 0.6, None))
            await until(pilot, lambda: hint(pilot) == "reuses 3,412, computes 118, first token in about 0.6 s")
            await pilot.press("!")
            await until(pilot, lambda: len(on.engine.forecasts) == 2)
            on.engine.say(Forecasted(on.engine.forecasts[1].turn, 3530, 0, 0, 3530, None, "system"))
            await until(pilot, lambda: hint(pilot) == "reuses 0, computes 3,530 · cut: system")
            await pilot.press("?")
            await until(pilot, lambda: len(on.engine.forecasts) == 3)
            on.engine.say(Forecasted(on.engine.forecasts[2].turn, 4096, 412, 3000, 684, 0.6, None))
            too_long = "1 token too long for the context of 4,096: it cannot be answered"
            await until(pilot, lambda: hint(pilot) == too_long)
            assert room(pilot).transcript.size.height == height  # nothing moved
            await pilot.press("ctrl+c")
            await until(pilot, lambda: hint(pilot).startswith("⏎ send"))
            assert room(pilot).transcript.size.height == height
            await pilot.press("/", "m", "o", "d", "e", "l")
            await until(pilot, lambda: hint(pilot).startswith("/model [name]: choose the model"))
            await pilot.pause(0.4)
            assert len(on.engine.forecasts) == 3
            await pilot.resize_terminal(120, 11)
            await until(pilot, lambda: not room(pilot).hint.display)


async def test_a_chat_that_was_run_otherwise_says_so(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            await send(pilot, "/cache q8_0")
            await ready(pilot)
            await send(pilot, "a question")
            await sees(pilot, "first 0.60 s")
            chat = room(pilot).conversation.chat.id
            await until(pilot, lambda: room(pilot).conversation.engine_settings is not None)
            await send(pilot, "/cache f16")
            await until(pilot, lambda: "/cache q8_0 q8_0 goes back to what is kept of it" in hint(pilot))
            await send(pilot, "/cache q8_0 q8_0")
            await until(pilot, lambda: hint(pilot).startswith("⏎ send"))
    with stage(home) as on:  # started with this chat, it is run as before
        before = on.desk.open_conversation(chat).result().chat
        on.link.want(before, before)
        async with on.app(chat).run_test(size=(120, 30)) as pilot:
            await ready(pilot)
            assert on.wanted == [before]
            assert on.engine.config.type_k == "q8_0"


async def test_first_run_asks_for_a_model(home: Path) -> None:
    with stage(home, turn_events, found=replace(FOUND, chosen=None)) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            await until(pilot, lambda: "no model yet" in status(pilot))
            pilot.app.screen.dismiss(None)
            await sees(pilot, "There is no model yet. /model chooses one.")
            await send(pilot, "written before there is a model")
            await until(pilot, lambda: "waiting" in status(pilot))
            await pilot.press("f2")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            pilot.app.screen.dismiss(EngineWish(replace(on.link.config, model_path=str(FAKE.path)), False))
            await sees(pilot, "Hello there.")
    assert not on.paths.config_file.exists()


async def test_the_choice_of_the_first_run_is_kept(home: Path) -> None:
    with stage(home, turn_events, found=replace(FOUND, chosen=None)) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, FirstRun))
            pilot.app.screen.dismiss(FirstChoice(OTHER.path, "q8_0", "q8_0"))
            await until(pilot, lambda: "other-2b" in status(pilot))
            assert (on.engine.config.type_k, on.engine.config.type_v) == ("q8_0", "q8_0")
            file = on.paths.config_file
            await until(pilot, lambda: file.exists() and str(OTHER.path) in file.read_text())


async def test_a_model_that_is_not_found_leaves_a_way_on(home: Path) -> None:
    found = Survey((OTHER,), (), None, failure=Failure("there is no model 'x'", "did you mean other-2b?"))
    with stage(home, found=found, settings=Settings(model="x")) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await sees(pilot, "There is no model 'x'")
            await sees(pilot, "/model chooses another one")
            await until(pilot, lambda: "no engine" in status(pilot))
            await pilot.press("f2")
            await until(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            pilot.app.screen.dismiss(EngineWish(EngineConfig(str(OTHER.path)), False))
            await ready(pilot)


NOTE = f"{EXTRA_BUFFERS}: off, because the engine was killed by SIGILL with it on this machine"


async def test_a_death_at_the_first_start_is_one_quiet_note(home: Path) -> None:
    with stage(home, at_start=False) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            on.engine.say(EngineDied("the engine was killed by SIGILL", (), True, NOTE))
            on.engine.come(replace(ready_for(on.engine.config), notes=(NOTE,)))
            await sees(pilot, "· The engine was killed by SIGILL while it started. It goes on without llama.cpp's")
            await ready(pilot)
            assert shown(pilot).count("SIGILL") == 1
            on.engine.say(EngineDied("the engine was killed by SIGKILL", (), True, NOTE))
            await sees(pilot, "! The engine was killed by SIGKILL. It is being started again")
            on.engine.come(replace(ready_for(on.engine.config), notes=(NOTE, "a new note")))
            await sees(pilot, "· a new note")
            assert shown(pilot).count("SIGILL") == 1


async def test_what_was_found_out_at_earlier_starts_is_not_told_again(home: Path) -> None:
    known = (f"{EXTRA_BUFFERS}: off for every model, because the engine was killed by SIGILL with it on this machine",)
    with stage(home, at_start=False, found=replace(FOUND, known=known)) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: bool(on.wanted))
            on.engine.come(replace(ready_for(on.engine.config), notes=(NOTE, "another")))
            await sees(pilot, "· another")
            assert "SIGILL" not in shown(pilot)
