"""A message that does not fit into the context: what is said, and that it can be made shorter or given more room."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import turn_events
from test_tmux import Terminal, is_ready
from ui_fakes import room, sees, send, shown, stage, status, until

from kvchat.backend.protocol import Event, Generate, TurnFinished
from kvchat.backend.values import Failure, Usage
from kvchat.conversation.too_long import larger_context


@pytest.mark.parametrize(
    ("prompt", "trained", "size"),
    [
        (300, 8192, 1024),  # a power of two
        (600, 8192, 2048),  # with room for an answer
        (1_600, 2_048, 2_048),  # at most what the model was trained for, with less room if need be
        (2_047, 2_048, 2_048),
        (2_048, 2_048, None),  # no room for a single token of an answer
        (9_000, 0, 16_384),  # nobody knows for how much it was trained
    ],
)
def test_the_context_that_would_do(prompt: int, trained: int, size: int | None) -> None:
    assert larger_context(prompt, trained) == size


def script(request: Generate) -> list[Event]:
    """An engine whose context holds messages of twenty letters."""
    if len(request.messages[-1].text) <= 20:
        return turn_events(request)
    usage = Usage(prompt_tokens=4_200, cells=900, excess=105)
    failure = Failure("the conversation is 105 tokens too long: it takes 4,200, the context holds 4,096")
    return [TurnFinished(request.turn, "context", usage, failure)]


async def test_what_helps_is_said_and_the_message_is_edited(home: Path) -> None:
    long = "a message that is far too long"
    with stage(home, script) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: status(pilot).startswith("○"))
            await send(pilot, long)
            await sees(pilot, "The conversation is 105 tokens too long")
            await sees(pilot, "not answered: 105 tokens too long for the context")
            for way in ("/edit takes your message back", "/new starts another chat", "/overflow says what may leave"):
                assert way in shown(pilot)
            assert "/continue" not in shown(pilot)
            assert "/context" not in shown(pilot)  # the model was trained for 4,096
            assert "reused" not in status(pilot)  # nothing was read
            assert "failed" not in shown(pilot)
            await send(pilot, "/edit")
            await until(pilot, lambda: room(pilot).prompt.text == long)
            await pilot.press(*["backspace"] * 20, "enter")
            await sees(pilot, "Hello there.")
            assert [message.text for message in room(pilot).conversation.messages] == ["a message ", "Hello there."]


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Terminal(home)
    yield terminal
    terminal.close()


def test_the_real_model_in_a_small_context(terminal: Terminal, home: Path) -> None:
    """The frame shows the message, how much it is too long in a line below, and the ways out; after /context and
    /retry, the answer. Opened again, the chat still has both versions of it."""
    terminal.open("--ctx-size", "512", "-n", "8", "--temp", "0")
    terminal.until(is_ready)
    (home / "long.txt").write_text(" ".join(f"Item {number} is red." for number in range(110)))
    terminal.run("load-buffer", str(home / "long.txt"))
    terminal.run("paste-buffer", "-p")
    terminal.until_text("too long for the context of 512")  # told before it is sent
    terminal.keys("Enter")
    screen = terminal.until_text("not answered:")
    excess = re.search(r"not answered: (\d+) tokens too long for the context", screen)
    assert excess, screen
    assert f"The conversation is {excess[1]} tokens too long" in terminal.until_text("/retry asks again")
    assert "/continue" not in terminal.screen()
    terminal.keys("/context 1024", "Enter")
    terminal.until(lambda screen: "/1k" in screen and is_ready(screen))
    terminal.keys("/retry", "Enter")
    terminal.until(lambda screen: re.search(r"\d tokens ·", screen) is not None and "‹2/2›" in screen)
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
