"""The check of quality on the screen, with a fake engine: what it says first, its progress, its end, its keys."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny
from fake_backend import delta, finished, prompt_events
from modal_host import settled, text
from rich.cells import cell_len
from textual.pilot import Pilot
from ui_fakes import Stage, room, sees, send, shown, stage, until

from kvchat.backend.fidelity import DepthFidelity, FidelityReport, FidelityRow, Guarded, Measured, Measuring, Verdict
from kvchat.backend.protocol import Event, Generate, TurnFinished
from kvchat.backend.values import Failure, Usage
from kvchat.library.find import ModelFile
from kvchat.ui.inspector import Inspector
from kvchat.ui.launch import Survey
from kvchat.ui.quality import FEWEST, PASSAGE_TOKENS, Quality

LONG = "A" * FEWEST  # a byte is a token here
AT = DepthFidelity(256, 128, 0.002, 0.01, 0.99, 10.1, 10.0)
CURVE = (0.001, 0.002, 0.004, 0.003)


def report(name: str = "tiny") -> FidelityReport:
    rows = (
        FidelityRow("batch", "f16", "f16", False, (AT,)),
        FidelityRow("native", "q8_0", "q8_0", True, (AT,), CURVE),
        FidelityRow("native", "q4_0", "q4_0", True, (AT,), tuple(20 * value for value in CURVE)),
        FidelityRow("transcoded", "q4_0", "q4_0", True, (AT,)),
    )
    return FidelityReport(name, 256, 128, False, 64, rows, ("a q5_0 cache needs more",), 3.0)


def script(request: Generate) -> list[Event]:
    return [*prompt_events(request), delta(request, "Yes."), finished(request)]


@contextmanager
def staged(home: Path) -> Iterator[Stage]:
    path = tiny.build("llama", home)
    found = Survey((ModelFile("tiny", path, path.stat().st_size, "models"),), (), path)
    with stage(home, script, found=found) as on:
        yield on


async def open_check(pilot: Pilot[None], on: Stage, message: str = LONG) -> None:
    """A chat with one turn, the inspector, and from there the check."""
    await until(pilot, lambda: on.engine.ready is not None)
    await send(pilot, message)
    await until(pilot, lambda: len(on.engine.requests) == 1 and not room(pilot).is_busy)
    await pilot.press("f3")
    await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector) and "f16 now" in text(pilot.app))
    await settled(pilot, lambda: "reading" not in text(pilot.app))
    await pilot.press("c")
    await settled(pilot, lambda: isinstance(pilot.app.screen, Quality) and "needs about" in text(pilot.app))


async def test_it_says_first_what_it_needs_and_computes_nothing(home: Path) -> None:
    """The tokens of the chat, the cache types, memory, and, since a prompt was read at a known speed, the time."""
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await open_check(pilot, on)
            seen = text(pilot.app)
            assert f"{FEWEST + 6:,} tokens of this chat" in seen  # the message, two of its frame, the answer
            assert "q8_0, q4_0, K q4_0 V f16, K f16 V q4_0" in seen
            assert "The cells of the chat stay as they are." in seen
            assert "MiB of memory beside the model" in seen and "MiB are free" in seen
            assert "It takes about" in seen
            assert "⏎ start" in seen
            assert on.engine.measures == []


async def test_a_short_chat_is_measured_on_another_text(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await open_check(pilot, on, "Hi")
            assert f"{PASSAGE_TOKENS:,} tokens of a text of kvchat's own" in text(pilot.app)
            await pilot.press("enter")
            await settled(pilot, lambda: on.engine.measures)
            assert on.engine.measures[0].ids == () and len(on.engine.measures[0].text) > 10_000


async def test_progress_and_the_tables(home: Path) -> None:
    """Measured on the tokens of the chat; the tables and a plot of the course take the place of the bar. What is not
    about this measurement is not shown. The name of the model cannot clear the screen."""
    with staged(home) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await open_check(pilot, on)
            await pilot.press("enter")
            await settled(pilot, lambda: on.engine.measures)
            command = on.engine.measures[0]
            assert len(command.ids) == FEWEST + 6 and command.depths[-1] == len(command.ids) and command.transcode
            on.engine.say(Measuring("other", 1, 2), Measuring(command.turn, 30, 120))
            await settled(pilot, lambda: "25% of 120 tokens" in text(pilot.app))
            assert "esc stop" in text(pilot.app)
            on.engine.say(Measured(command.turn, report("evil\x1b[2J\x1b]0;x\x07[bold]"), None))
            await settled(pilot, lambda: "depth 256" in text(pilot.app))
            seen = text(pilot.app)
            assert "\x1b" not in seen and "[bold]" in seen
            for line in ("f16, token by token", "q8_0", "q4_0, converted", "a q5_0 cache needs more", "Mean KL over"):
                assert line in seen
            assert "⣀" in seen or "●" in seen  # the plot
            assert all(cell_len(line) == 120 for line in seen.splitlines())


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 6)])
async def test_small_screens(home: Path, size: tuple[int, int]) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(120, 36)) as pilot:
            await open_check(pilot, on)
            await pilot.press("enter")
            await settled(pilot, lambda: on.engine.measures)
            on.engine.say(Measured(on.engine.measures[0].turn, report(), None))
            await settled(pilot, lambda: "depth 256" in text(pilot.app))
            await pilot.resize_terminal(*size)
            await settled(pilot, lambda: len(text(pilot.app).splitlines()) == size[1])
            assert all(cell_len(line) == size[0] for line in text(pilot.app).splitlines())


async def test_escape_stops_it_and_leads_back(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await open_check(pilot, on)
            await pilot.press("enter")
            await settled(pilot, lambda: on.engine.measures)
            await pilot.press("escape")
            assert on.engine.cancelled == [on.engine.measures[0].turn]
            on.engine.say(Measured(on.engine.measures[0].turn, report(), None))  # it was nearly done
            await settled(pilot, lambda: "⏎ start" in text(pilot.app))
            assert "depth 256" not in text(pilot.app)
            await pilot.press("escape")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector))


async def test_a_failure_is_told_and_it_can_be_tried_again(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await open_check(pilot, on)
            await pilot.press("enter")
            await settled(pilot, lambda: on.engine.measures)
            on.engine.say(Measured(on.engine.measures[0].turn, None, Failure("no memory", "a smaller depth")))
            await settled(pilot, lambda: "No memory" in text(pilot.app) and "a smaller depth" in text(pilot.app))
            await pilot.press("enter")
            await settled(pilot, lambda: len(on.engine.measures) == 2 and "No memory" not in text(pilot.app))


async def test_the_tables_as_a_file(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await open_check(pilot, on)
            await pilot.press("enter")
            await settled(pilot, lambda: on.engine.measures)
            on.engine.say(Measured(on.engine.measures[0].turn, report(), None))
            await settled(pilot, lambda: "depth 256" in text(pilot.app))
            await pilot.press("e")
            await settled(pilot, lambda: list((home / "reports").glob("*.txt")))
            (file,) = (home / "reports").glob("*.txt")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            await settled(pilot, lambda: "q4_0, converted" in file.read_text())


# ------------------------------------------------------------------ notes in the chat


async def test_the_guard_warns_in_the_chat(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            on.engine.say(Guarded(Verdict("q8_0", "q8_0", 30.0, 30.0, 100, 0.001, 1.0, 0.01)))
            on.engine.say(Guarded(Verdict("q4_0", "q4_0", 12.0, 30.0, 100, 0.5, 0.5, 0.01)))
            await until(pilot, lambda: "/cache q8_0 goes back" in shown(pilot).replace("\n", " "))
            await sees(pilot, "12.0 tokens/s")
            assert "cache type q8_0 is" not in shown(pilot)


async def test_saved_kv_that_was_wrong_is_told(home: Path) -> None:
    with staged(home) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            on.engine.script = lambda request: [
                *prompt_events(request),
                delta(request, "Yes."),
                TurnFinished(request.turn, "stop", Usage(prompt_tokens=9, computed=9, cut="check")),
            ]
            await send(pilot, "And now?")
            await until(pilot, lambda: "was moved away" in shown(pilot))
            await sees(pilot, "cut: check")
