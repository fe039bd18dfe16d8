"""Drafting in the app: /draft, its completion, the settings, what is shown of it, and what is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import delta, finished, prompt_events
from modal_host import settled, text
from test_draft_picker import built, stranger
from test_prompt_menus import menu
from textual.pilot import Pilot
from textual.widgets import Static
from ui_fakes import Stage, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import Drafted, Event, Generate, Loading, TurnFinished
from kvchat.backend.values import EngineConfig
from kvchat.config import Settings, load_settings
from kvchat.errors import UsageError
from kvchat.kv.needs import Memory
from kvchat.paths import Paths
from kvchat.ui.app import run_app
from kvchat.ui.draft_picker import DraftPicker
from kvchat.ui.fit_question import FitQuestion
from kvchat.ui.launch import Survey
from kvchat.ui.model_facts import read_facts
from kvchat.ui.planning import plan_for
from kvchat.ui.settings_engine import EngineDraft, Machine
from kvchat.ui.settings_screen import SettingsScreen

REPORT = {"draft_kind": "ngram", "draft_proposed": 40, "draft_accepted": 30, "draft_speedup": 1.5}
PAUSED = "paused: drafts did not pay in this chat"


def telling(**usage: object) -> Callable[[Generate], list[Event]]:
    """A script of turns whose reports have these figures; each of them takes a second of decoding."""

    def script(request: Generate) -> list[Event]:
        end = finished(request)
        told = replace(end.usage, decode_tokens=60, decode_seconds=1.0, **usage)  # type: ignore[arg-type]
        return [*prompt_events(request), delta(request, "Hello."), TurnFinished(request.turn, "stop", told)]

    return script


@pytest.fixture
def found(tmp_path: Path) -> Survey:
    """A large model, a small one that can draft for it, and one that cannot."""
    large, small = built(tmp_path, "large", layers=12), built(tmp_path, "small", layers=1, width=64)
    return Survey((large, small, stranger(tmp_path)), (), large.path)


def small_path(found: Survey) -> str:
    return str(found.models[1].path)


async def ready(pilot: Pilot[None], on: Stage) -> None:
    await until(pilot, lambda: on.link.ready is not None and room(pilot).prompt.companion is not None)


async def answered(pilot: Pilot[None], on: Stage, words: str = "a question") -> None:
    before = len(on.engine.requests)
    await send(pilot, words)
    await until(pilot, lambda: len(on.engine.requests) == before + 1 and not room(pilot).is_busy)


# ------------------------------------------------------------------ /draft


async def test_what_drafts_is_the_chats_own(home: Path, found: Survey) -> None:
    """It holds from the next answer on and after the chat was closed; nothing is loaded for it."""
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await answered(pilot, on)
            await send(pilot, "/draft NGRAM")
            await until(
                pilot,
                lambda: (
                    "draft ngram (n-gram, from the text of this chat), from this chat's next answer on" in toasts(pilot)
                ),
            )
            await answered(pilot, on)
            assert [request.draft for request in on.engine.requests] == ["auto", "ngram"]
            assert on.engine.configured == []
            chat = room(pilot).conversation.chat.id
        assert on.desk.open_conversation(chat).result(10).draft == "ngram"


async def test_a_model_that_drafts_is_loaded_beside_the_other(home: Path, found: Survey) -> None:
    """By its name. A chat in which nothing was to draft may from now on; `none` lets the model go."""
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await send(pilot, "/draft off")
            await until(pilot, lambda: room(pilot).conversation.draft == "off")
            before = on.link.config
            await send(pilot, "/draft sma")
            await until(pilot, lambda: len(on.engine.configured) == 1)
            assert on.engine.configured[0] == replace(before, draft_path=small_path(found))
            await until(pilot, lambda: room(pilot).conversation.draft == "auto")
            await send(pilot, "/draft off")
            await until(pilot, lambda: room(pilot).conversation.draft == "off")
            await send(pilot, "/draft small")  # it is there already
            await until(pilot, lambda: room(pilot).conversation.draft == "auto")
            await send(pilot, "/draft model")
            await until(pilot, lambda: room(pilot).conversation.draft == "model")
            await answered(pilot, on)
            assert on.engine.requests[-1].draft == "model"
            await send(pilot, "/draft none")
            await until(pilot, lambda: len(on.engine.configured) == 2)
            assert on.engine.configured[1].draft_path is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("/draft model", "There is no draft model. /draft NAME takes one."),
        ("/draft stranger", "cannot draft for large: the vocabularies differ: it is SPM, not BPE"),
        ("/draft large", "Large cannot draft for itself"),
        ("/draft nothing-like-it", "There is no model 'nothing-like-it'"),
    ],
)
async def test_what_cannot_draft_is_refused_with_the_reason(home: Path, found: Survey, words: str, said: str) -> None:
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await send(pilot, words)
            await until(pilot, lambda: said in toasts(pilot))
            assert (on.engine.configured, room(pilot).conversation.own.draft) == ([], None)


async def test_how_it_goes_is_told(home: Path, found: Survey) -> None:
    """One and a half times plain for a second: half a second was saved in each of two answers."""
    settings = Settings(model_draft="small")
    with stage(home, telling(**REPORT, draft_note=PAUSED), found=found, settings=settings) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await answered(pilot, on)
            await answered(pilot, on)
            await send(pilot, "/draft")
            await sees(pilot, "2 answers here: drafts 60 of 80, 1.0 s saved")
            await sees(pilot, "draft auto: n-gram, else the draft model")
            await sees(pilot, "draft model small: weights 3 MiB, KV 1 MiB")
            assert f"the last answer: drafts 30 of 40 (n-gram), 1.50 times plain; {PAUSED}" in " ".join(
                shown(pilot).split()
            )


async def test_proposals_come_first_in_the_menu(home: Path, found: Survey) -> None:
    """Read from the files when they are first wanted; what cannot draft is not offered."""
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await pilot.press(*"/draft", "space")
            await until(pilot, lambda: any("small" in line for line in menu(pilot)))
            rows = [line.strip("│▌ ").split()[0] for line in menu(pilot)[1:-1]]
            assert rows == ["small", "auto", "ngram", "off"]
            assert "of the size" in menu(pilot)[1]
            await pilot.press("s", "m", "tab", "enter")
            await until(pilot, lambda: len(on.engine.configured) == 1)
            await pilot.press(*"/draft", "space")
            await until(pilot, lambda: len(menu(pilot)) == 8)
            rows = [line.strip("│▌ ").split()[0] for line in menu(pilot)[1:-1]]
            assert rows == ["small", "auto", "ngram", "model", "off", "none"]


async def test_another_model_keeps_a_draft_model_that_can_draft_for_it(
    home: Path, found: Survey, tmp_path: Path
) -> None:
    larger = built(tmp_path, "xl", layers=24)
    found = replace(found, models=(*found.models, larger))
    with stage(home, telling(), found=found, settings=Settings(model_draft="small")) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await send(pilot, "/model xl")
            await until(pilot, lambda: len(on.engine.configured) == 1)
            assert on.engine.configured[0].draft_path == small_path(found)
            await send(pilot, "/model stranger")
            await until(pilot, lambda: len(on.engine.configured) == 2 or "stranger" in toasts(pilot))
            assert on.engine.configured[1].draft_path is None


# ------------------------------------------------------------------ what is shown


async def test_drafts_are_seen_while_they_are_made_and_afterwards(home: Path, found: Survey) -> None:
    """Live in the status line; then in the message's footer, and in the inspector's table and plot."""
    with stage(home, found=found) as on:
        async with on.app().run_test(size=(150, 48)) as pilot:
            await ready(pilot, on)
            await send(pilot, "a question")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "Hel"))
            await until(pilot, lambda: "generating" in status(pilot))
            assert "draft" not in status(pilot)
            on.engine.say(Drafted(request.turn, "ngram", 8, 6, 1.2))
            await until(pilot, lambda: "draft 75%" in status(pilot))
            end = telling(**(REPORT | {"draft_accepted": 20}))(request)[-1]
            on.engine.say(delta(request, "lo."), end)
            await until(pilot, lambda: "draft 50%" in status(pilot))
            await sees(pilot, "60 tokens · 60.0 tok/s · drafts 20 of 40 (n-gram), 1.50 times plain")
            await pilot.press("f3")
            await settled(pilot, lambda: "Drafts  ●─ times plain" in text(pilot.app))
            (row,) = [line.split() for line in text(pilot.app).splitlines() if line.startswith("│ 1 ")]
            assert "50%" in row


async def test_the_memory_of_the_draft_model_is_in_the_ledger(home: Path, found: Survey) -> None:
    with stage(home, telling(), found=found, settings=Settings(model_draft="small")) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await ready(pilot, on)
            assert on.engine.config.draft_path == small_path(found)
            await pilot.press("f3")
            await settled(pilot, lambda: "draft weights" in text(pilot.app))
            assert "draft KV" in text(pilot.app)


async def test_why_it_did_not_draft_is_told_once_to_who_asked_for_it(home: Path, found: Survey) -> None:
    with stage(home, telling(draft_note=PAUSED), found=found) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await answered(pilot, on)
            assert PAUSED not in shown(pilot)
            await send(pilot, "/draft ngram")
            await until(pilot, lambda: room(pilot).conversation.draft == "ngram")
            await answered(pilot, on)
            await sees(pilot, f"Draft ngram: {PAUSED}")
            await answered(pilot, on)
            assert shown(pilot).count(PAUSED) == 1


# ------------------------------------------------------------------ how it begins


async def test_a_draft_model_that_is_not_there_is_told_and_left(home: Path, found: Survey) -> None:
    """The app starts without it."""
    with stage(home, telling(), found=found, settings=Settings(model_draft="smell")) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await sees(pilot, "The draft model: there is no model 'smell'")
            await sees(pilot, "did you mean small?")
            await answered(pilot, on)
            assert on.link.config.draft_path is None


async def test_loading_says_which_model(home: Path, found: Survey) -> None:
    with stage(home, found=found, at_start=False) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.engine.started)
            on.engine.say(Loading(0.5))
            await until(pilot, lambda: "loading 50%" in status(pilot))
            on.engine.say(Loading(0.25, draft=True))
            await until(pilot, lambda: "loading the draft model 25%" in status(pilot))


async def test_a_chat_goes_on_with_its_draft_model(home: Path, found: Survey) -> None:
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await send(pilot, "/draft small")
            await until(pilot, lambda: len(on.engine.configured) == 1)
            await answered(pilot, on)
            chat = room(pilot).conversation.chat
            await until(pilot, lambda: "draft_model" in room(pilot).conversation.chat.settings)
            chat = room(pilot).conversation.chat
    assert json.loads(chat.settings)["draft_model"] == small_path(found)
    with stage(home, telling(), found=found) as on:
        on.link.want(chat, chat)
        async with on.app(chat.id).run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            assert on.engine.config.draft_path == small_path(found)


def test_a_flag_for_a_draft_model_that_nobody_names(home: Path) -> None:
    settings = Settings(draft="model", given=frozenset({"draft"}))
    with pytest.raises(UsageError, match="there is none"):
        run_app(settings, Paths.find(os.environ))


async def test_what_does_not_fit_is_offered_without_the_draft_model(
    home: Path, found: Survey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what the model takes alone and with the draft model, with room for other programs."""
    with stage(home, telling(), found=found, settings=Settings(context=4096)) as on:
        large, small = (read_facts(model) for model in found.models[:2])
        config = on.link.config_for(large.model.path)
        plans = plan_for(large, config, Memory()), plan_for(large, config, Memory(), small)
        totals = [plan.chosen.total_bytes for plan in plans if plan is not None]
        free = sum(totals) // 2 * 8 // 7
        monkeypatch.setattr("kvchat.ui.memory.free_memory", lambda: free)
        monkeypatch.setattr("kvchat.ui.memory.built_for_gpu", lambda: False)
        async with on.app().run_test(size=(100, 30)) as pilot:
            await ready(pilot, on)
            await send(pilot, "/draft off")
            await until(pilot, lambda: room(pilot).conversation.draft == "off")
            await send(pilot, "/draft small")
            await settled(pilot, lambda: isinstance(pilot.app.screen, FitQuestion))
            assert "draft model" in text(pilot.app)
            assert "No draft model" in text(pilot.app)
            await pilot.press("escape")
            await pilot.pause()
            assert (on.engine.configured, room(pilot).conversation.draft) == ([], "off")


# ------------------------------------------------------------------ the settings


async def test_both_fields_in_the_settings(home: Path, found: Survey) -> None:
    """The draft model is picked from its list, with what it takes; what drafts is walked. ^S makes both the default."""
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 34)) as pilot:
            await ready(pilot, on)
            await send(pilot, "/draft off")
            await until(pilot, lambda: room(pilot).conversation.draft == "off")
            await pilot.press("f2")
            await settled(pilot, lambda: "KV memory" in text(pilot.app))
            await pilot.press("end", "enter")
            await settled(pilot, lambda: isinstance(pilot.app.screen, DraftPicker) and "small" in text(pilot.app))
            await pilot.press("enter")
            await settled(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await settled(pilot, lambda: "It takes about" in text(pilot.app))
            effect = str(pilot.app.screen.query_one("#effect", Static).content)
            assert effect == "Loads the draft model beside the model: of this chat nothing is computed again."
            await pilot.press("up", "right", "right")  # auto, ngram, model
            assert "‹ model" in text(pilot.app)
            await pilot.press("ctrl+s")
            await until(pilot, lambda: len(on.engine.configured) == 1)
            await until(pilot, lambda: "Saved as default" in toasts(pilot))
            assert on.engine.configured[0].draft_path == small_path(found)
            assert room(pilot).conversation.draft == "model"
        saved = load_settings(on.paths, {}, {})
        assert (saved.draft, saved.model_draft) == ("model", small_path(found))


async def test_another_mode_alone_asks_nothing_of_the_engine(home: Path, found: Survey) -> None:
    with stage(home, telling(), found=found) as on:
        async with on.app().run_test(size=(100, 34)) as pilot:
            await ready(pilot, on)
            await pilot.press("f2")
            await settled(pilot, lambda: "KV memory" in text(pilot.app))
            await pilot.press("d", "right")
            assert "Nothing is computed again: it holds from this chat's next answer on." in text(pilot.app)
            await pilot.press("enter")
            await until(pilot, lambda: room(pilot).conversation.draft == "ngram")
            assert on.engine.configured == []


def test_another_model_in_the_settings_keeps_only_what_can_draft_for_it(found: Survey, tmp_path: Path) -> None:
    """One twice as large does; one half as large, or a file that cannot be read, does not."""
    large, small = (read_facts(model) for model in found.models[:2])
    config = EngineConfig(str(large.model.path), draft_path=small_path(found))
    machine = Machine(2, None, Memory())
    (tmp_path / "tiny").mkdir()
    for model, kept in (
        (built(tmp_path, "xl", layers=24), True),
        (built(tmp_path / "tiny", "tiny", layers=1, width=64), False),
    ):
        draft = EngineDraft(None, config, 0, machine, lambda: None)
        draft.know(large)
        draft.know_draft(small)
        draft.choose_model(read_facts(model))
        assert (draft.config.draft_path is not None, "no draft model" in draft.adapted) == (kept, not kept)
    unread = EngineDraft(None, config, 0, machine, lambda: None)
    unread.know(large)
    unread.choose_model(read_facts(model))
    assert unread.config.draft_path is None


async def test_a_draft_model_that_is_set_without_a_model(home: Path, found: Survey) -> None:
    """The settings read it, and do not take it for the model."""
    nothing = Survey(found.models[1:2])
    with stage(home, telling(), found=nothing, settings=Settings(model_draft="small")) as on:
        async with on.app().run_test(size=(100, 34)) as pilot:
            await until(pilot, lambda: on.link.config.draft_path == small_path(found))
            await settled(pilot, lambda: type(pilot.app.screen).__name__ == "FirstRun")
            await pilot.press("escape", "f2")
            await settled(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await settled(pilot, lambda: "no model is chosen yet" in text(pilot.app))
            await pilot.pause(0.3)
            assert "no model is chosen yet" in text(pilot.app)
