"""An engine without a model, and the app around it, for the tests of the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fake_backend import FakeBackend, make_ready
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Static

from kvchat.backend.protocol import Event, Generate, Ready
from kvchat.backend.values import DraftInfo, EngineConfig
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Chat
from kvchat.config import Settings
from kvchat.library.find import ModelFile
from kvchat.paths import Paths
from kvchat.ui.app import KvchatApp
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.launch import EngineLink, Survey
from kvchat.ui.room import Room
from kvchat.ui.sidebar import ChatList

Script = Callable[[Generate], Sequence[Event]]
TIMES = 6000  # that something is looked for, a hundredth of a second apart at least


class FakeEngine(FakeBackend):
    """Becomes ready when it is started, if `at_start` says so; else the test calls `come`. It is ready again as soon as
    it is configured, unless `obedient` is False. `configured` records what it was asked for."""

    def __init__(
        self,
        config: EngineConfig,
        post: Callable[[Event], None],
        script: Script | None = None,
        at_start: bool = True,
    ) -> None:
        super().__init__(None, post, script)
        self.config = config
        self.at_start = at_start
        self.obedient = True
        self.started = self.closed = False
        self.configured: list[EngineConfig] = []

    def start(self) -> None:
        self.started = True
        if self.at_start:
            self.come(ready_for(self.config))

    def configure(self, config: EngineConfig) -> None:
        self.configured.append(config)
        self.config, self.ready = config, None
        if self.obedient:
            self.come(ready_for(config))

    def come(self, ready: Ready) -> None:
        self.ready = ready
        self.say(ready)

    def say(self, *events: Event) -> None:
        assert self.post is not None
        for event in events:
            self.post(event)

    def close(self, patience: float = 0.0) -> None:
        self.closed = True


def ready_for(config: EngineConfig) -> Ready:
    """What an engine with this configuration reports."""
    ready = make_ready(name=Path(config.model_path).stem, context=config.context or 4096)
    cache = replace(ready.cache, type_k=config.type_k, type_v=config.type_v, threads=config.threads or 1)
    draft = config.draft_path and DraftInfo(Path(config.draft_path).stem, config.draft_path, 3 << 20, 1 << 20)
    return replace(ready, model=replace(ready.model, path=config.model_path), cache=cache, draft=draft or None)


FAKE = ModelFile("fake-1b", Path("/models/fake-1b.gguf"), 1 << 30, "models")
OTHER = ModelFile("other-2b", Path("/models/other-2b.gguf"), 2 << 30, "models")
FOUND = Survey((FAKE, OTHER), (Path("/models"),), FAKE.path)


class Stage:
    """The app, its engine and its store in one test."""

    def __init__(self, home: Path, script: Script | None, at_start: bool, settings: Settings, found: Survey) -> None:
        self.paths = Paths.find({"KVCHAT_HOME": str(home)})
        self.inbox = Inbox()
        self.store = StoreThread(self.paths.chats_db, lambda error: self.inbox.post(StoreFailed(error)))
        self.engine = FakeEngine(EngineConfig(""), self.inbox.post, script, at_start)
        self.wanted: list[Chat | None] = []
        self.link = EngineLink(settings, self.paths, self.inbox.post, self._make, self._look)
        self.desk = Desk(settings, self.paths, self.store, self.link, self.inbox)
        self._found = found

    def _make(self, config: EngineConfig, *_: object) -> FakeEngine:
        self.engine.config = config
        return self.engine

    def _look(self, settings: Settings, _: Paths, chat: Chat | None, latest: Chat | None) -> Survey:
        self.wanted.append(chat)
        return self._found

    def app(self, opening: str | None = None) -> KvchatApp:
        return KvchatApp(self.desk, opening)


@contextmanager
def stage(
    home: Path,
    script: Script | None = None,
    *,
    at_start: bool = True,
    settings: Settings | None = None,
    found: Survey = FOUND,
) -> Iterator[Stage]:
    """A stage that is cleared at the end."""
    made = Stage(home, script, at_start, settings or Settings(), found)
    try:
        yield made
    finally:
        made.store.close()


def room(pilot: Pilot[None]) -> Room:
    """What the parts of the chat screen share."""
    found = pilot.app.screen_stack[0]
    assert isinstance(found, ChatScreen)
    return found.room


def lines(pilot: Pilot[None]) -> list[str]:
    """What stands in the transcript's view."""
    transcript = room(pilot).transcript
    size = transcript.size
    return [strip.text.rstrip() for strip in transcript.render_lines(Region(0, 0, size.width, size.height))]


def shown(pilot: Pilot[None]) -> str:
    return "\n".join(lines(pilot))


def listed(pilot: Pilot[None]) -> list[str]:
    """The rows of the chats, once there is a list."""
    lists = room(pilot).screen.query(ChatList)
    return [str(each.prompt) for listing in lists for each in listing.options if not each.disabled]


def status(pilot: Pilot[None]) -> str:
    return str(room(pilot).screen.query_one("#status", Static).content)


def hint(pilot: Pilot[None]) -> str:
    """The line below the prompt."""
    return str(room(pilot).screen.query_one("#hint", Static).content)


def chip(pilot: Pilot[None]) -> str:
    """The line above the prompt; "" when it is hidden."""
    found = room(pilot).screen.query_one("#chip", Static)
    return str(found.content) if found.display else ""


def toasts(pilot: Pilot[None]) -> str:
    """What is said for a moment."""
    return "\n".join(notification.message for notification in pilot.app._notifications)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app run until something holds."""
    for _ in range(TIMES):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(
        f"it never happened; transcript:\n{shown(pilot)}\nstatus: {status(pilot)}\ntoasts: {toasts(pilot)}"
    )


async def sees(pilot: Pilot[None], text: str) -> None:
    await until(pilot, partial(_holds, pilot, text))


def _holds(pilot: Pilot[None], text: str) -> bool:
    return text in shown(pilot)


async def send(pilot: Pilot[None], text: str) -> None:
    room(pilot).prompt.put(text)
    await pilot.press("enter")
