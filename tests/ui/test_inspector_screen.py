"""The inspector on the screen, with a fake engine: what stands where at which size, and what its keys do."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from fake_backend import delta, segments
from modal_host import settled, text
from rich.cells import cell_len
from textual.content import Content
from textual.pilot import Pilot
from ui_fakes import Stage, room, send, stage, toasts, until

from kvchat.backend.protocol import Event, Generate, PromptReady, Restored, TurnFinished
from kvchat.backend.values import Usage
from kvchat.config import Settings
from kvchat.library.find import ModelFile
from kvchat.ui import inspector
from kvchat.ui.inspector import Inspector
from kvchat.ui.inspector_layout import box
from kvchat.ui.launch import Survey
from kvchat.ui.settings_screen import SettingsScreen

SYSTEM = "Be brief."  # 9 ids in front of those of the first message
REPLY = "Twelve bytes"
PANELS = ("Context", "Kept on disk", "Memory", "Turns", "First token, s", "Answer, tokens/s", "Prompt")


def beginning(request: Generate) -> list[Event]:
    """All that was there before is resident, but for the end of the last answer; the rest is computed."""
    ids = segments(request)
    tokens = sum(map(len, ids))
    reused = sum(map(len, ids[:-1]))
    return [
        PromptReady(request.turn, ids, tokens),
        Restored(request.turn, reused, reused, 0, 0, tokens - reused, 0.0, None),
    ]


def script(request: Generate) -> list[Event]:
    """A turn whose first token took a second, whose reused tokens took one second for each ten."""
    first = beginning(request)
    told = first[1]
    assert isinstance(told, Restored)
    usage = Usage(
        prompt_tokens=told.reused + told.computed,
        reused=told.reused,
        resident=told.reused,
        computed=told.computed,
        saved_seconds=told.reused / 10,
        decode_tokens=len(REPLY),
        decode_seconds=2.0,
        ttft_seconds=1.0,
        cells=told.reused + told.computed + len(REPLY),
    )
    return [*first, delta(request, REPLY), TurnFinished(request.turn, "stop", usage)]


@contextmanager
def staged(home: Path, play: bool = True, **settings: object) -> Iterator[Stage]:
    """The app with a tiny model whose header can be read."""
    path = tiny.build("llama", home)
    found = Survey((ModelFile("tiny", path, path.stat().st_size, "models"),), (), path)
    with stage(home, script if play else None, found=found, settings=Settings(system=SYSTEM, **settings)) as on:  # type: ignore[arg-type]
        yield on


async def talk(pilot: Pilot[None], on: Stage, *messages: str) -> None:
    await until(pilot, lambda: on.engine.ready is not None)
    for message in messages:
        done = len(on.engine.requests) + 1
        await send(pilot, message)
        await until(pilot, lambda done=done: len(on.engine.requests) == done and not room(pilot).is_busy)


async def open_inspector(pilot: Pilot[None], shown: str = "Memory") -> None:
    await pilot.press("f3")
    await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector) and shown in text(pilot.app))
    await settled(pilot, lambda: "reading" not in text(pilot.app))


def lines(pilot: Pilot[None]) -> list[str]:
    return [line.rstrip() for line in text(pilot.app).splitlines()]


async def test_one_page_at_120_by_36(home: Path) -> None:
    """Two turns. The first message has 9 ids of the system prompt, 5 of its text and 2 of its frame: 16; the answers
    have 12 each; the second message 6 and 2. So the second prompt has 36, of which 28 were resident: computing these
    took 2.8 s, and the first token would have come after 3.8 s."""
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on, "first", "second")
            await open_inspector(pilot)
            shown = text(pilot.app)
            for panel in PANELS:
                assert f"╭─ {panel}" in shown
            assert "KV inspector · llama · llama, GQA · 4,096 cells · f16 · flash attention off" in shown
            assert "48 of 4,096 · 1%" in shown
            assert "▀ you ×2 24, system prompt among them   ▄ answers ×2 24" in shown
            assert "█ resident 28   ▒ computed 8   ░ answer 12   · free 4,048" in shown
            assert "48 KiB held of 4 MiB reserved" in shown  # 1 KiB a token
            rows = [line.split() for line in lines(pilot) if line.startswith(("│ 2 ", "│ 1 "))]
            assert rows[0][1:11] == ["2", "36", "28", "memory", "8", "1.00", "s", "6.0", "2.8", "s"]
            assert rows[1][1:10] == ["1", "16", "0", "-", "16", "1.00", "s", "6.0", "-"]
            assert len(lines(pilot)) == 36
            assert max(map(cell_len, lines(pilot))) == 120
            assert "tab" not in lines(pilot)[-1]


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
async def test_pages_by_tab(home: Path, size: tuple[int, int]) -> None:
    """Every panel is on one page, and whole: it has its lower edge. Tab comes round to the first page."""
    with staged(home) as on:
        async with on.app().run_test(size=size) as pilot:
            await talk(pilot, on, "first", "second")
            await open_inspector(pilot, "Context")
            pages = []
            while (shown := text(pilot.app)) not in pages:
                pages.append(shown)
                assert f"tab {len(pages)}/" in shown
                assert shown.count("╭") == shown.count("╰")
                assert max(cell_len(line) for line in shown.splitlines()) == size[0]
                assert "esc back" in shown
                await pilot.press("tab")
            assert shown == pages[0]
            for panel in PANELS:
                assert sum(f"╭─ {panel}" in page for page in pages) == 1
            await pilot.press("shift+tab")
            assert text(pilot.app) == pages[-1]


async def test_the_command_opens_it_and_escape_leads_back(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await talk(pilot, on)
            await send(pilot, "/kv")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector))
            await pilot.press("escape")
            await settled(pilot, lambda: not isinstance(pilot.app.screen, Inspector))
            assert room(pilot).prompt.has_focus
            assert on.engine.requests == []


async def test_other_types_are_looked_at_and_nothing_is_applied(home: Path) -> None:
    """Right: from f16 to q8_0, whose cache of 4,096 tokens has 2 MiB. Left twice: past f16 to the last one, q4_0."""
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await open_inspector(pilot)
            assert "▸ f16 now" in text(pilot.app)
            await pilot.press("right")
            assert "▸ q8_0" in text(pilot.app)
            assert "what if q8_0: nothing is applied" in text(pilot.app)
            assert "KV q8_0                  2 MiB" in text(pilot.app)
            assert " · f16 · flash" in text(pilot.app)  # what runs stays in the heading
            await pilot.press("left", "left")
            assert "▸ q4_0" in text(pilot.app)
            assert on.engine.configured == []


async def test_enter_opens_the_settings_above_it(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await open_inspector(pilot)
            await pilot.press("enter")
            await settled(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await pilot.press("escape")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector))


async def test_enter_takes_the_types_that_are_looked_at_into_the_settings(home: Path) -> None:
    """What if q4_0? Enter says so before, opens the settings with it, and only Enter there applies it. The types of
    now are no what-if: the settings open as they are."""
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await open_inspector(pilot)
            assert "⏎ settings  e export" in lines(pilot)[-1]
            await pilot.press("left")
            assert "⏎ settings with q4_0  e export" in lines(pilot)[-1]
            await pilot.press("enter")
            await settled(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            await settled(pilot, lambda: "K cache          ‹ q4_0" in text(pilot.app))
            assert "V cache            q4_0" in text(pilot.app)
            assert on.engine.configured == []
            await pilot.press("escape")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector))
            assert on.engine.configured == []
            await pilot.press("enter")
            await settled(pilot, lambda: "K cache          ‹ q4_0" in text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: bool(on.engine.configured))
            assert (on.engine.configured[0].type_k, on.engine.configured[0].type_v) == ("q4_0", "q4_0")
            await settled(pilot, lambda: "▸ q4_0 now" in text(pilot.app))
            assert "⏎ settings  e export" in lines(pilot)[-1]
            await pilot.press("enter")
            await settled(pilot, lambda: "K cache          ‹ q4_0" in text(pilot.app))
            assert "Enter" not in text(pilot.app)


@pytest.mark.parametrize(
    ("head_size", "flash_attention", "value", "said"),
    [
        # a quantized V needs it
        (64, "off", "q8_0", "changed for these types: Flash attention auto"),
        # rows of quantized types are blocks of 32 values
        (48, "auto", "f16", "not q8_0: "),
    ],
)
async def test_types_that_need_more_and_types_that_cannot_be_had(
    home: Path, head_size: int, flash_attention: str, value: str, said: str
) -> None:
    path = tiny.build("llama", home, head_size=head_size)
    found = Survey((ModelFile("tiny", path, path.stat().st_size, "models"),), (), path)
    with stage(home, script, found=found, settings=Settings(flash_attention=flash_attention)) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await open_inspector(pilot)
            await pilot.press("right")
            await settled(pilot, lambda: "what if q8_0" in text(pilot.app))
            await pilot.press("enter")
            await settled(pilot, lambda: f"K cache          ‹ {value}" in text(pilot.app))
            assert said in text(pilot.app)


async def test_another_cache_type_is_seen_when_the_engine_has_it(home: Path) -> None:
    """The context is built anew below the inspector: heading and ledger follow."""
    with staged(home, flash_attention="on") as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await open_inspector(pilot)
            room(pilot).desk.engine.configure(replace(on.engine.config, type_k="q8_0"))
            await settled(pilot, lambda: "▸ q8_0/f16 now" in text(pilot.app))
            assert "K q8_0 V f16" in text(pilot.app)


async def test_it_follows_a_turn(home: Path) -> None:
    """While the prompt is read, its tokens are missing; then the answer grows."""
    with staged(home, play=False) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await send(pilot, "question")
            await until(pilot, lambda: bool(on.engine.requests))
            request = on.engine.requests[0]
            await open_inspector(pilot)
            assert "nothing is read yet" in text(pilot.app)
            on.engine.say(*beginning(request))
            await settled(pilot, lambda: "╌ to compute 19" in text(pilot.app))  # 9, 8 and 2
            on.engine.say(delta(request, "12345"))
            await settled(pilot, lambda: "░ answer 5" in text(pilot.app))
            assert "▞ in progress 5" in text(pilot.app)
            assert "▒ computed 19" in text(pilot.app)
            assert "Context · now" in text(pilot.app)


async def test_it_draws_when_it_looks_and_only_on_top(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are half a second apart. Whatever comes between two of them is drawn by the next one; below the settings,
    and where nothing has changed, none draws."""
    assert inspector.PAUSE == 0.5
    monkeypatch.setattr(inspector, "PAUSE", 0.01)
    drawn = []
    real = inspector.page
    monkeypatch.setattr(inspector, "page", lambda *given: (drawn.append(given), real(*given))[1])
    with staged(home, play=False) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on)
            await send(pilot, "question")
            await until(pilot, lambda: bool(on.engine.requests))
            request = on.engine.requests[0]
            on.engine.say(*beginning(request))
            await open_inspector(pilot, "to compute")
            screen = pilot.app.screen
            assert isinstance(screen, Inspector)
            await asyncio.sleep(0.1)
            await settled(pilot, lambda: not screen._reading._reading)
            rest = len(drawn)
            await asyncio.sleep(0.3)
            assert len(drawn) == rest
            await pilot.press("enter")
            await settled(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
            below = len(drawn)
            on.engine.say(delta(request, "y"))
            await asyncio.sleep(0.3)
            assert len(drawn) == below
            await pilot.press("escape")
            await settled(pilot, lambda: "░ answer 1 " in text(pilot.app))


async def test_the_table_scrolls_as_far_as_there_are_turns(home: Path) -> None:
    """Nine turns, four of which are seen: up to the ninth, and no further."""
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await talk(pilot, on, *(f"m{number}" for number in range(9)))
            await open_inspector(pilot)
            await settled(pilot, lambda: "9 of this chat" in text(pilot.app))

            def numbers() -> list[str]:
                at = next(index for index, line in enumerate(lines(pilot)) if "prompt" in line and "saved" in line)
                return [line.split()[1] for line in lines(pilot)[at + 1 : at + 5]]

            assert numbers() == ["9", "8", "7", "6"]
            await pilot.press("down")
            assert numbers() == ["8", "7", "6", "5"]
            await pilot.press("pagedown", "pagedown")
            assert numbers() == ["4", "3", "2", "1"]
            await pilot.press("pageup", "up")
            assert numbers() == ["9", "8", "7", "6"]


async def test_the_report_is_a_private_file_and_its_place_is_said(home: Path) -> None:
    """Plain text with everything in it: all panels, all turns, the model."""
    with staged(home) as on:
        async with on.app().run_test(size=(60, 20)) as pilot:
            await talk(pilot, on, *(f"m{number}" for number in range(6)))
            await open_inspector(pilot, "Context")
            await pilot.press("e")
            await settled(pilot, lambda: "Report written to" in toasts(pilot))
            (path,) = (home / "reports").iterdir()
            assert str(path) in toasts(pilot)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    report = path.read_text()
    for panel in PANELS:
        assert f"\n{panel}" in report
    assert report.startswith("KV inspector · llama")
    assert "chat: m0" in report
    assert [line.split()[0] for line in report.splitlines()[-6:]] == ["6", "5", "4", "3", "2", "1"]
    assert "\x1b" not in report


@pytest.mark.parametrize("size", [(200, 60), (120, 36), (100, 12), (40, 12), (20, 6), (8, 3)])
async def test_no_size_breaks_it(home: Path, size: tuple[int, int]) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=size) as pilot:
            await talk(pilot, on, "first")
            await pilot.press("f3")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector))
            for _ in range(7):
                await pilot.press("tab", "right", "down")
            await pilot.resize_terminal(81, 25)
            await settled(pilot, lambda: "KV inspector" in text(pilot.app))


@pytest.mark.parametrize("height", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_box_is_as_high_as_it_is_told(count: int, height: int) -> None:
    """Else it could not stand beside another one."""
    assert len(box("title", "below", [Content("x")] * count, 20, height)) == height


async def test_without_a_model(home: Path) -> None:
    """Nothing is known of cells and memory, and that is said."""
    with stage(home, found=Survey()) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await settled(pilot, lambda: len(pilot.app.screen_stack) > 1)
            await pilot.press("escape")
            await open_inspector(pilot)
            shown = text(pilot.app)
            assert "no engine is ready" in shown
            assert "there is no context now" in shown
            assert "No model is chosen yet." in shown
            assert "⏎ settings" in shown
            assert "No turn has been measured yet." in shown
