"""Pinned prefixes in the app: made from a chat, listed, begun, computed again, let go, told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fake_backend import make_ready, turn_events
from kv_pages import Disk, put_chat
from modal_host import text
from textual.pilot import Pilot
from ui_fakes import Stage, room, sees, send, shown, stage, status, toasts, until

from kvchat.backend.protocol import Pin, Pinned, Pinning, Ready
from kvchat.backend.values import Failure
from kvchat.chats.prefixes import Prefix
from kvchat.config import Settings
from kvchat.conversation.prefixes import new_prefix
from kvchat.kv.pinned import held
from kvchat.ui.dialogs import Confirm
from kvchat.ui.inspector_context import ContextView, Part, context_lines
from kvchat.ui.palette import Palette
from kvchat.ui.prefixes_picker import PrefixPicker

SYSTEM = "Be brief."


def ready_on(on: Stage) -> Ready:
    """As an engine reports that keeps its pages in the namespace of these tests."""
    ready = make_ready(name="fake-1b")
    namespace = Disk(on.paths.kv_folder).store().namespace.id
    return replace(ready, cache=replace(ready.cache, namespace=namespace))


def pinned(on: Stage, command: Pin) -> Pinned:
    """The end of a pin, with its pages on disk."""
    store = Disk(on.paths.kv_folder).store()
    with closing(store):
        keys = put_chat(store, [sum(command.prefix.encode()), *range(299)])
        size = store.pin(command.prefix, keys, 300)
        space = store.namespace.id
    return Pinned(
        command.turn, command.prefix, 300, 300, size, 3.0, space, keys[-1], "fake-1b", "m", "0" * 32, "f16", "f16"
    )


def prefixes(on: Stage) -> Sequence[Prefix]:
    return on.store.run(lambda chats: chats.prefixes.all()).result(10)


def keep(on: Stage, name: str = "brief", system: str = SYSTEM, *, computed: bool = True) -> Prefix:
    """One that is there before the app starts."""
    made = new_prefix(name, system)
    on.store.run(lambda chats: chats.prefixes.put(made)).result(10)
    if computed:
        from kvchat.conversation.prefixes import computation

        end = pinned(on, Pin("before", made.id, made.text))
        on.store.run(lambda chats: chats.prefixes.computed(made.id, computation(end, 1.0))).result(10)
    return made


async def idle(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: status(pilot).startswith("○"))


def is_shown(pilot: Pilot[None], kind: type) -> bool:
    return isinstance(pilot.app.screen, kind)


async def listing(pilot: Pilot[None]) -> PrefixPicker:
    await send(pilot, "/prefix")
    await until(pilot, partial(is_shown, pilot, PrefixPicker))
    await pilot.pause(0.1)
    found = pilot.app.screen
    assert isinstance(found, PrefixPicker)
    return found


async def test_the_beginning_of_a_chat_becomes_one(home: Path) -> None:
    """It is on disk before it is computed; how far that is stands in the status line."""
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, f"/system {SYSTEM}")
            await until(pilot, lambda: room(pilot).conversation.chat.system == SYSTEM)
            await send(pilot, "/prefix pin brief")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            (command,) = on.engine.pins
            (kept,) = prefixes(on)
            assert (command.system, command.prefix, command.clock) == (SYSTEM, kept.id, kept.clock)
            assert (kept.name, kept.computations) == ("brief", ())
            on.engine.say(Pinning(command.turn, 75, 300))
            await until(pilot, lambda: "pinning brief 25%" in status(pilot))
            on.engine.say(pinned(on, command))
            await sees(pilot, "Prefix brief is pinned: 300 tokens")
            assert prefixes(on)[0].computations[0].tokens == 300
            await until(pilot, lambda: "pinning" not in status(pilot))


async def test_files_stand_behind_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.md").write_text("one\ntwo\nthree\n")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix pin two words @rules.md#2-3")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            (kept,) = prefixes(on)
            assert kept.name == "two words"
            assert kept.text == "```markdown rules.md lines 2-3\ntwo\nthree\n```"
            await send(pilot, "/prefix pin other @gone.md")
            await sees(pilot, "not pinned: @gone.md is not there")
            assert len(prefixes(on)) == 1


async def test_a_chip_is_a_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my rules.md").write_text("one\n")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            room(pilot).prompt.put("/prefix pin brief ")
            await pilot.press("@", *"rul")
            await until(pilot, lambda: "my rules.md" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: "my rules.md ·" in room(pilot).prompt.text)
            await pilot.press("enter")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            (kept,) = prefixes(on)
            assert (kept.name, kept.text) == ("brief", "```markdown my rules.md\none\n```")


async def test_a_name_that_is_taken_is_asked_about(home: Path) -> None:
    with stage(home, turn_events) as on:
        old = keep(on)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/system Be long.")
            await send(pilot, "/prefix pin BRIEF")
            await until(pilot, partial(is_shown, pilot, Confirm))
            await pilot.press("n")
            await until(pilot, lambda: not is_shown(pilot, Confirm))
            assert prefixes(on)[0].system == SYSTEM
            await send(pilot, "/prefix pin BRIEF")
            await until(pilot, partial(is_shown, pilot, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            (kept,) = prefixes(on)
            assert (kept.name, kept.system) == ("BRIEF", "Be long.")
            await until(pilot, lambda: held(on.paths.kv_folder) == [])
            assert old.id != kept.id


async def test_the_same_again_is_only_computed(home: Path) -> None:
    with stage(home, turn_events) as on:
        keep(on)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, f"/system {SYSTEM}")
            await send(pilot, "/prefix pin brief")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            await send(pilot, "/prefix compute brief")
            await until(pilot, lambda: "brief is being computed." in toasts(pilot))
            assert len(on.engine.pins) == 1


async def test_the_list_says_how_each_one_stands_and_begins_a_chat(home: Path) -> None:
    with stage(home, turn_events, at_start=False) as on:
        first, second = keep(on), keep(on, "legal", "Know the law.", computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: on.engine.started)
            on.engine.come(ready_on(on))
            await idle(pilot)
            await listing(pilot)
            told = text(pilot.app)
            assert "brief              pinned · 300 tokens, " in told
            assert "· not used yet" in told
            assert "legal              it is not computed yet · size not known" in told
            assert second.name in told
            await pilot.press("enter")
            await until(pilot, lambda: room(pilot).conversation.chat.prefix == first.id)
            await sees(pilot, "This chat begins with the prefix brief. Its 300 tokens need not be computed.")
            await until(pilot, lambda: " on brief " in status(pilot))
            await send(pilot, "Hi")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            assert (request.messages[0].text, request.clock) == (SYSTEM, first.clock)


async def test_what_is_not_computed_for_the_model_says_so(home: Path) -> None:
    with stage(home, turn_events) as on:  # whose pages lie in no namespace
        keep(on)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix brief")
            await sees(pilot, "It was computed in another configuration:")
            await sees(pilot, "/prefix compute brief does so.")
            await listing(pilot)
            assert "it was computed in another configuration" in text(pilot.app)
            await pilot.press("ctrl+r")
            await until(pilot, lambda: len(on.engine.pins) == 1)


async def test_one_is_let_go_when_the_person_says_so(home: Path) -> None:
    with stage(home, turn_events) as on:
        keep(on)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix drop Brief")
            await until(pilot, partial(is_shown, pilot, Confirm))
            await pilot.press("escape")
            await until(pilot, lambda: not is_shown(pilot, Confirm))
            assert len(prefixes(on)) == 1
            await listing(pilot)
            await pilot.press("ctrl+g")
            await until(pilot, partial(is_shown, pilot, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: "is not pinned any more" in toasts(pilot))
            assert prefixes(on) == ()
            assert held(on.paths.kv_folder) == []


async def test_letting_go_stops_the_computation(home: Path) -> None:
    with stage(home, turn_events) as on:
        keep(on, computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix compute brief")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            await send(pilot, "/prefix drop brief")
            await until(pilot, partial(is_shown, pilot, Confirm))
            await pilot.press("y")
            await until(pilot, lambda: on.engine.cancelled == [on.engine.pins[0].turn])
            on.engine.say(Pinned(on.engine.pins[0].turn, on.engine.pins[0].prefix))
            await sees(pilot, "prefix brief not computed: it was stopped.")


async def test_a_failure_is_told_and_the_prefix_stays(home: Path) -> None:
    with stage(home, turn_events) as on:
        keep(on, computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix compute brief")
            await until(pilot, lambda: len(on.engine.pins) == 1)
            (command,) = on.engine.pins
            on.engine.say(Pinned(command.turn, command.prefix, failure=Failure("the disk is full", "free some")))
            await sees(pilot, "prefix brief not computed: The disk is full")
            assert len(prefixes(on)) == 1
            await send(pilot, "/prefix compute brief")
            await until(pilot, lambda: len(on.engine.pins) == 2)


async def test_it_waits_for_a_model(home: Path) -> None:
    with stage(home, turn_events, at_start=False) as on:
        keep(on, computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await send(pilot, "/prefix compute brief")
            await until(pilot, lambda: "when a model is there" in toasts(pilot))
            assert not on.engine.pins
            on.engine.come(make_ready(name="fake-1b"))
            await until(pilot, lambda: len(on.engine.pins) == 1)


async def test_an_empty_chat_offers_what_is_pinned(home: Path) -> None:
    with stage(home, turn_events) as on:
        keep(on, computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await sees(pilot, "/prefix begins a chat on what is pinned: brief")
            await sees(pilot, "sends")
            await send(pilot, "Hi")
            await until(pilot, lambda: len(room(pilot).conversation.messages) == 2)
            assert "pinned: brief" not in shown(pilot)
            await pilot.press("ctrl+n")
            await sees(pilot, "/prefix begins a chat on what is pinned: brief")


async def test_the_palette_begins_a_chat_on_one(home: Path) -> None:
    with stage(home, turn_events) as on:
        made = keep(on, computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await pilot.press("ctrl+p", *"prefix: brief")
            await until(pilot, partial(is_shown, pilot, Palette))
            await until(pilot, lambda: "New chat on prefix: brief" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: room(pilot).conversation.chat.prefix == made.id)


async def test_what_makes_no_sense_is_said(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix")
            await sees(pilot, "Nothing is pinned yet.")
            for words, said in (
                ("pin", "takes a name"),
                ("pin a/b", "cannot be called"),
                ("pin brief", "has no system prompt to pin"),
                ("compute", "Which one?"),
                ("nothing", "There is no prefix"),
            ):
                await send(pilot, f"/prefix {words}")
                await until(pilot, lambda said=said: said in toasts(pilot))
            assert prefixes(on) == ()


async def test_nothing_of_an_incognito_chat_is_pinned(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/incognito")
            await until(pilot, lambda: room(pilot).conversation.incognito)
            await send(pilot, f"/system {SYSTEM}")
            await send(pilot, "/prefix pin brief")
            await until(pilot, lambda: "ot from an incognito chat" in toasts(pilot))
            assert prefixes(on) == ()


async def test_without_a_store_nothing_is_computed(home: Path) -> None:
    with stage(home, turn_events, settings=Settings(kv=False)) as on:
        keep(on, computed=False)
        async with on.app().run_test(size=(120, 40)) as pilot:
            await idle(pilot)
            await send(pilot, "/prefix compute brief")
            await until(pilot, lambda: "Nothing is kept on disk now" in toasts(pilot))
            assert not on.engine.pins


async def test_it_fits_a_narrow_terminal(home: Path) -> None:
    with stage(home, turn_events) as on:
        keep(on, "a name that is longer than the column for names")
        async with on.app().run_test(size=(40, 12)) as pilot:
            await idle(pilot)
            await listing(pilot)
            assert "a name that is lo…" in text(pilot.app)
            await pilot.press("escape")
            await until(pilot, lambda: not is_shown(pilot, PrefixPicker))


def test_the_inspector_calls_it_by_its_name() -> None:
    view = ContextView("now", 12, 100, (Part("system", 10), Part("user", 2)), system=True, prefix="my\x1b brief")
    assert "prefix my␛ brief 10" in "\n".join(line.plain for line in context_lines(view, 80))
