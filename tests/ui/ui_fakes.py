"""An engine without a model, and the app around it, for the tests of the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fake_backend import FakeBackend, make_ready
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Static

from kvchat.backend.protocol import Event, Generate, Ready
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.paths import Paths
from kvchat.ui.app import KvchatApp
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.launch import EngineLink

Script = Callable[[Generate], Sequence[Event]]


class FakeEngine(FakeBackend):
    """Becomes ready when it is started, if `at_start` says so; else the test calls `come`."""

    def __init__(self, post: Callable[[Event], None], script: Script | None = None, at_start: bool = True) -> None:
        super().__init__(None, post, script)
        self.at_start = at_start
        self.started = self.closed = False

    def start(self) -> None:
        self.started = True
        if self.at_start:
            self.come(make_ready())

    def come(self, ready: Ready) -> None:
        self.ready = ready
        self.say(ready)

    def say(self, *events: Event) -> None:
        assert self.post is not None
        for event in events:
            self.post(event)

    def close(self) -> None:
        self.closed = True


class Stage:
    """The app, its engine and its store in one test."""

    def __init__(self, home: Path, script: Script | None, at_start: bool, settings: Settings) -> None:
        self.paths = Paths.find({"KVCHAT_HOME": str(home)})
        self.inbox = Inbox()
        self.store = StoreThread(self.paths.chats_db, lambda error: self.inbox.post(StoreFailed(error)))
        self.engine = FakeEngine(self.inbox.post, script, at_start)
        self.link = EngineLink(lambda post: self.engine, self.inbox.post)
        self.desk = Desk(settings, self.store, self.link, self.inbox)

    def app(self, opening: str | None = None) -> KvchatApp:
        return KvchatApp(self.desk, opening)


@contextmanager
def stage(
    home: Path, script: Script | None = None, *, at_start: bool = True, settings: Settings | None = None
) -> Iterator[Stage]:
    """A stage that is cleared at the end."""
    made = Stage(home, script, at_start, settings or Settings())
    try:
        yield made
    finally:
        made.store.close()


def screen(pilot: Pilot[None]) -> ChatScreen:
    found = pilot.app.screen
    assert isinstance(found, ChatScreen)
    return found


def lines(pilot: Pilot[None]) -> list[str]:
    """What stands in the transcript's view."""
    transcript = screen(pilot).transcript
    size = transcript.size
    return [strip.text.rstrip() for strip in transcript.render_lines(Region(0, 0, size.width, size.height))]


def shown(pilot: Pilot[None]) -> str:
    return "\n".join(lines(pilot))


def status(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen.query_one("#status", Static).content)


async def until(pilot: Pilot[None], condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Let the app run until something holds."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(f"it never happened; transcript:\n{shown(pilot)}\nstatus: {status(pilot)}")


async def sees(pilot: Pilot[None], text: str) -> None:
    await until(pilot, partial(_holds, pilot, text))


def _holds(pilot: Pilot[None], text: str) -> bool:
    return text in shown(pilot)


async def send(pilot: Pilot[None], text: str) -> None:
    screen(pilot).prompt.put(text)
    await pilot.press("enter")
