"""`kvchat ask` over an engine process that fails in every way: what happened is said, with a way on; the words that had
come are kept, and the chat goes on."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from asking import Asked, kept

from kvchat.backend import child
from kvchat.backend.client import EngineClient
from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, TextDelta
from kvchat.backend.values import EngineConfig
from kvchat.commands.ask import run_ask
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.paths import Paths

PROGRAM = Path(__file__).parents[1] / "backend" / "fake_engine.py"
QUESTION = "80"  # as bytes: what no event begins with


def ask(
    paths: Paths,
    mode: str,
    *words: str,
    asked: Asked | None = None,
    watch: Callable[[Event], None] = lambda event: None,
    **options: bool,
) -> Asked:
    """`kvchat ask` with an engine process that fails as told. `watch` sees its events first."""

    def engine(config: EngineConfig, post: Callable[[Event], None], state: Path, log: Path) -> EngineClient:
        def hand_on(event: Event) -> None:
            watch(event)
            post(event)

        return Engine(config, hand_on, state, log, (sys.executable, str(PROGRAM), mode))

    asked = asked or Asked()
    given = {"continue_last": False, "resume": False} | options
    asked.code = run_ask(
        words,
        Settings(),
        paths,
        chat=None,
        json=False,
        out=asked.out,
        err=asked.err,
        stdin=asked.stdin,
        engine_factory=engine,
        **given,
    )
    return asked


def check_goes_on(paths: Paths, asked: Asked, error: KvchatError, how: str) -> None:
    question, half = kept(paths)
    assert f"the engine {how}" in error.message
    assert f"kvchat ask --resume --chat {half.chat}" in error.hint
    assert asked.out.getvalue() == "half \n"
    assert (question.text, half.text, half.finish) == (QUESTION, "half ", "died")
    assert ask(paths, "fine", resume=True).code == 0
    question, whole = kept(paths)
    assert (question.text, whole.text, whole.finish) == (QUESTION, "half half ", "stop")


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        ("die-in-answer SIGSEGV", "was killed by SIGSEGV"),
        ("die-in-answer SIGKILL", "was killed by SIGKILL (out of memory?)"),
        ("garbage", "said what cannot be understood and was ended"),
        ("closes-its-pipe", "closed its pipe and was ended"),
    ],
)
def test_what_had_come_is_kept(paths: Paths, monkeypatch: pytest.MonkeyPatch, mode: str, how: str) -> None:
    monkeypatch.setattr(child, "GOODBYE", 0.2)
    asked = Asked()
    with pytest.raises(KvchatError) as caught:
        ask(paths, mode, QUESTION, asked=asked)
    check_goes_on(paths, asked, caught.value, how)


class Listener(io.StringIO):
    """Somebody who interrupts once nothing is heard of the engine."""

    def write(self, text: str) -> int:
        if "nothing is heard" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


def test_one_that_hangs_is_said_and_ended_by_an_interrupt(paths: Paths) -> None:
    asked = Asked()
    asked.err = Listener()
    with pytest.MonkeyPatch.context() as patch:

        def hurry(event: Event) -> None:
            if isinstance(event, TextDelta):
                for name in ("SILENCE", "STOPS", "HUNG"):
                    patch.setattr(child, name, 0.2)

        with pytest.raises(KvchatError) as caught:
            ask(paths, "hangs", QUESTION, asked=asked, watch=hurry)
    check_goes_on(paths, asked, caught.value, "did not react any more and was ended")
    assert "stopping the answer ends it" in asked.err.getvalue()
