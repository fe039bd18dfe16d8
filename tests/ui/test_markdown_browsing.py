"""Browsing block by block: the mark, copies of a block and of a message, reasoning that unfolds."""

from __future__ import annotations

from pathlib import Path

from fake_backend import delta, finished, prompt_events, turn_events
from textual.pilot import Pilot
from ui_fakes import lines, room, send, shown, stage, toasts, until

REPLY = "<think>\nhmm\n</think>\n\n# Title\n\nSome **words**.\n\n```py\nx = 1\n```\n\n- a\n- b"


def marked(pilot: Pilot[None]) -> str:
    """What a copy of the marked block would take."""
    found = room(pilot).transcript.marked
    return found[0].block_text(found[1]) if found else ""


async def asked(pilot: Pilot[None], text: str = "question") -> None:
    await send(pilot, text)
    await until(pilot, lambda: "first 0.60 s" in shown(pilot) and not room(pilot).is_busy)


async def test_the_mark_goes_from_block_to_block(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, [REPLY])) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await asked(pilot)
            await pilot.press("ctrl+o")
            blocks = ["question", "hmm", "# Title", "Some **words**.", "x = 1", "- a\n- b"]
            assert marked(pilot) == blocks[-1]
            for key, block in zip("kkkkkk", [*blocks[-2::-1], blocks[0]], strict=True):
                await pilot.press(key)
                assert marked(pilot) == block
            for key, block in (("J", "hmm"), ("K", "question"), ("j", "hmm"), ("j", "# Title"), ("G", "- a\n- b")):
                await pilot.press(key)
                assert marked(pilot) == block
            await pilot.press("j", "g")
            assert marked(pilot) == "question"


async def test_copies_of_a_block_and_of_the_message(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, [REPLY])) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await asked(pilot)
            await pilot.press("ctrl+o", "k", "y")
            assert pilot.app.clipboard == "x = 1"
            await pilot.press("Y")
            assert pilot.app.clipboard == REPLY.partition("</think>\n\n")[2]
            await pilot.press("K", "y")
            assert pilot.app.clipboard == "question"


async def test_enter_unfolds_and_control_t_does_for_all(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, [REPLY])) as on:
        async with on.app().run_test(size=(120, 50)) as pilot:
            await asked(pilot)
            await asked(pilot, "again")
            await pilot.press("ctrl+o", "enter")
            assert shown(pilot).count("▾ thought · 1 word") == 1
            assert "  ▌   hmm" in lines(pilot)
            assert marked(pilot) == "hmm"
            await pilot.press("space")
            assert "▾ thought" not in shown(pilot)
            await pilot.press("ctrl+t")
            assert shown(pilot).count("▾ thought") == 2
            assert marked(pilot) == "hmm"
            await pilot.press("g", "enter")
            await until(pilot, lambda: "no reasoning" in toasts(pilot))


async def test_an_answer_that_grows_keeps_the_mark(home: Path) -> None:
    with stage(home) as on:
        async with on.app().run_test(size=(120, 40)) as pilot:
            await send(pilot, "question")
            await until(pilot, lambda: len(on.engine.requests) == 1)
            request = on.engine.requests[0]
            on.engine.say(*prompt_events(request), delta(request, "one\n\ntwo\n\n"))
            await until(pilot, lambda: "two" in shown(pilot))
            await pilot.press("ctrl+o", "k")
            assert marked(pilot) == "one"
            on.engine.say(delta(request, "three\n\nfour"), finished(request))
            await until(pilot, lambda: "four" in shown(pilot) and not room(pilot).is_busy)
            assert marked(pilot) == "one"
            await pilot.press("j", "j")
            assert marked(pilot) == "three"
