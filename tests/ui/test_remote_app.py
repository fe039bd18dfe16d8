"""A server in the app: chosen by name or from the list, marked as what it is, and left again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
import tiny
from fake_backend import turn_events
from scripted_server import Reply, ScriptedServer, failing, saying, usage
from textual.pilot import Pilot
from textual.widgets import OptionList, Static
from ui_fakes import FakeEngine, Stage, hint, room, sees, send, shown, status, toasts, until

from kvchat.backend.choices import Remote
from kvchat.backend.remote_served import Served
from kvchat.backend.switching import SwitchingEngine
from kvchat.backend.values import EngineConfig
from kvchat.config import Settings
from kvchat.library.find import ModelFile
from kvchat.ui.dialogs import Confirm
from kvchat.ui.launch import Survey
from kvchat.ui.model_picker import ModelPicker

FAR = Remote("far", "http://gpu.example.org:8000/v1", "big-one")


class Here(FakeEngine):
    """The engine of this machine."""

    pid = None

    def __init__(self, config: EngineConfig, post, *_: object, **__: object) -> None:
        super().__init__(config, post, lambda request: turn_events(request, ["From here."]))


class ServerStage(Stage):
    """The app with a client for both."""

    def _make(self, config: EngineConfig, *folders: object) -> SwitchingEngine:  # type: ignore[override]
        return SwitchingEngine(config, self.inbox.post, self.paths.state_folder, self.paths.log_file)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    """A model of this machine, and an engine that says that it runs it."""
    path = tiny.build("qwen3", tmp_path).rename(tmp_path / "small.gguf")
    monkeypatch.setattr("kvchat.backend.local.Engine", Here)
    return ModelFile("small", path, path.stat().st_size, "models")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(saying("From afar.", usage=usage(30, 3, 24))) as server:
        yield server


def staged(home: Path, here: ModelFile, server: ScriptedServer, **settings: object) -> ServerStage:
    remotes = (Remote("lab", server.url), FAR)
    chosen = Settings(remotes=remotes, auto_title=False, **settings)  # type: ignore[arg-type]
    return ServerStage(home, None, True, chosen, Survey((here,), (here.path.parent,), here.path))


@pytest.fixture
def made(home: Path, here: ModelFile, server: ScriptedServer) -> Iterator[ServerStage]:
    made = staged(home, here, server)
    yield made
    made.link.close()
    made.store.close()


async def go_to_lab(pilot: Pilot[None], server: ScriptedServer) -> None:
    """From the model that it begins with."""
    await until(pilot, lambda: "small" in status(pilot))
    await send(pilot, "/model lab")
    await until(pilot, lambda: server.host in status(pilot))


async def answered(pilot: Pilot[None], text: str, messages: int) -> None:
    await send(pilot, text)
    await until(pilot, lambda: not room(pilot).is_busy and len(room(pilot).conversation.messages) == messages)


async def test_there_and_back(made: ServerStage, server: ScriptedServer) -> None:
    """The chat's text goes along; the status line says where it is read, the footer what the server had of it."""
    async with made.app().run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "small" in status(pilot))
        await answered(pilot, "One", 2)
        await go_to_lab(pilot, server)
        assert "KV f16" not in status(pilot), "what cache the server has is not known"
        await answered(pilot, "Two", 4)
        assert server.seen[0].said == [("user", "One"), ("assistant", "From here."), ("user", "Two")]
        await sees(pilot, f"reused 24 of 30 from what {server.host} had")
        await send(pilot, "/model small")
        await until(pilot, lambda: "small" in status(pilot) and made.link.ready is not None)
        await until(pilot, lambda: "last run on lab: /model remote:lab goes back there" in hint(pilot))
        await answered(pilot, "Three", 6)
        texts = [message.text for message in room(pilot).conversation.messages]
        assert texts == ["One", "From here.", "Two", "From afar.", "Three", "From here."]
        assert len(server.seen) == 1


async def test_flags_without_effect_are_told(home: Path, here: ModelFile, server: ScriptedServer) -> None:
    flags = frozenset({"remote", "ctx_size", "threads"})
    chosen = Settings(remote=server.url, context=2048, threads=2, given=flags, auto_title=False)
    begun = Remote("lab", server.url)
    made = ServerStage(home, None, True, chosen, Survey((here,), (here.path.parent,), None, remote=begun))
    async with made.app().run_test(size=(120, 32)) as pilot:
        await sees(pilot, f"No effect on {server.host}: --ctx-size, --threads")
    made.link.close()
    made.store.close()


async def test_drafts_and_titles_are_not_sent(made: ServerStage, server: ScriptedServer) -> None:
    async with made.app().run_test(size=(120, 32)) as pilot:
        await go_to_lab(pilot, server)
        asked = server.asked
        room(pilot).prompt.put("a draft that is not finished")
        await pilot.pause(0.6)  # longer than the engine is asked after
        assert server.asked == asked


async def test_the_list_says_what_a_server_means(made: ServerStage) -> None:
    """Marked in the list before it is chosen; the settings do not offer what is chosen there."""
    async with made.app().run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "small" in status(pilot))
        await pilot.press("f2")
        await pilot.pause()
        await pilot.press("up", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ModelPicker))
        options = pilot.app.screen.query_one(OptionList)
        rows = [str(option.prompt) for option in options.options]
        assert any("lab" in row and "on this machine" in row for row in rows)
        assert any(
            "far" in row and "text leaves this machine, not encrypted: gpu.example.org:8000" in row for row in rows
        )
        await pilot.press(*"far")
        await pilot.pause()
        takes = str(pilot.app.screen.query_one("#takes", Static).content)
        assert "text leaves this machine, not encrypted" in takes
        assert "big-one; http://gpu.example.org:8000/v1" in takes
        await pilot.press("enter")
        await pilot.pause()
        frame = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        assert frame.count("on the server") >= 6
        assert "From the next message on text leaves this machine" in frame
        await pilot.press("escape")
        assert made.link.config.remote is None, "nothing was applied"


async def test_what_is_chosen_on_the_server_is_not_offered(made: ServerStage, server: ScriptedServer) -> None:
    async with made.app().run_test(size=(120, 32)) as pilot:
        await go_to_lab(pilot, server)
        for command in ("/cache q8_0", "/context 1024", "/threads 2"):
            await send(pilot, command)
            await until(pilot, lambda: "chosen where the server is started" in toasts(pilot))
            pilot.app.clear_notifications()
        assert made.link.config.remote is not None
        await pilot.press("f3")
        await pilot.pause(0.3)
        frame = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        assert f"KV inspector · served · {server.host}, on this machine" in frame
        assert "On the server." in frame


async def test_stop_closes_the_connection(home: Path, here: ModelFile) -> None:
    def endless(reply: Reply) -> None:
        reply.begin()
        reply.server.until_left(reply, repeat("word "))

    with ScriptedServer(endless) as server:
        made = staged(home, here, server)
        async with made.app().run_test(size=(120, 32)) as pilot:
            await go_to_lab(pilot, server)
            await send(pilot, "Go on.")
            await sees(pilot, "word word")
            await pilot.press("escape")
            await until(pilot, lambda: not room(pilot).is_busy)
            await sees(pilot, "stopped: /continue goes on")
            assert server.left.wait(60)
        made.link.close()
        made.store.close()


async def test_a_failure_is_a_quiet_line(home: Path, here: ModelFile) -> None:
    refusal = failing(429, {"error": {"message": "[bold]slow[/bold] \x1b[31mdown"}}, {"Retry-After": "9"})
    with ScriptedServer(refusal, saying("Now.")) as server:
        made = staged(home, here, server)
        async with made.app().run_test(size=(120, 32)) as pilot:
            await go_to_lab(pilot, server)
            await send(pilot, "Hello")
            await sees(pilot, "is asked too often (429): [bold]slow[/bold]")
            await sees(pilot, "try again in 9 s")
            assert "\x1b" not in shown(pilot)
            await send(pilot, "/retry")
            await sees(pilot, "Now.")
        made.link.close()
        made.store.close()


async def test_a_server_that_cannot_be_reached(made: ServerStage) -> None:
    """The chat goes on with a model of this machine."""
    async with made.app().run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "small" in status(pilot))
        await send(pilot, "/model remote:http://127.0.0.1:9/v1")
        await sees(pilot, "127.0.0.1:9 cannot be reached")
        await until(pilot, lambda: "no engine" in status(pilot))
        await send(pilot, "/model small")
        await until(pilot, lambda: made.link.ready is not None and "small" in status(pilot))
        await answered(pilot, "Still here?", 2)


async def test_offline_offers_none(home: Path, here: ModelFile, server: ScriptedServer) -> None:
    made = staged(home, here, server, offline=True)
    async with made.app().run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "small" in status(pilot))
        await send(pilot, "/model lab")
        await until(pilot, lambda: "nothing goes out with --offline" in toasts(pilot))
        assert server.asked == 0
    made.link.close()
    made.store.close()


async def test_a_chat_of_this_machine_says_where_a_send_would_take_it(
    made: ServerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody_is_asked(*_: object) -> Served:
        return Served("big-one", "", 0)

    monkeypatch.setattr("kvchat.backend.remote.served", nobody_is_asked)
    async with made.app().run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "small" in status(pilot))
        await answered(pilot, "One", 2)
        await send(pilot, "/model far")
        await until(pilot, lambda: "a send takes this chat to gpu.example.org:8000: /model small" in hint(pilot))


async def test_an_incognito_chat_asks_first(made: ServerStage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_is_asked(*_: object) -> Served:
        return Served("big-one", "", 0)

    monkeypatch.setattr("kvchat.backend.remote.served", nobody_is_asked)
    async with made.app().run_test(size=(120, 32)) as pilot:
        await until(pilot, lambda: "small" in status(pilot))
        await send(pilot, "/incognito")
        await until(pilot, lambda: room(pilot).conversation.incognito)
        await send(pilot, "/model far")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("escape")
        await pilot.pause()
        assert made.link.config.remote is None
        await send(pilot, "/model far")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("enter")
        await until(pilot, lambda: "↗ gpu.example.org:8000" in status(pilot))
        assert made.link.config.incognito_leaves
        await sees(pilot, "text leaves this machine: gpu.example.org:8000 reads it, without encryption")
    made.desk.incognito.close()
