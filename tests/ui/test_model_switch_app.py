"""Another model and back in the running app, with real engines: nothing that was known is computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import tiny
from textual.pilot import Pilot
from ui_fakes import room, send, until

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event
from kvchat.backend.values import EngineConfig, Sampling, Usage
from kvchat.chats.thread import StoreThread
from kvchat.config import Settings
from kvchat.library.find import ModelFile
from kvchat.paths import Paths
from kvchat.ui.app import KvchatApp
from kvchat.ui.desk import Desk
from kvchat.ui.inbox import Inbox, StoreFailed
from kvchat.ui.launch import EngineLink, Survey
from kvchat.ui.progress import last_usage

TURN = 8


def real_engine(config: EngineConfig, post: Callable[[Event], None], state: Path, log: Path) -> Engine:
    return Engine(replace(config, extra_buffers=False, tune=False, guard=False), post, state, log)


@pytest.fixture
def desk(home: Path, smollm2: Path, tmp_path: Path) -> Iterator[Desk]:
    """With the built-in model and a tiny one of another vocabulary."""
    other = tiny.build("qwen3", tmp_path)
    models = tuple(ModelFile(path.stem, path, path.stat().st_size, "models") for path in (smollm2, other))
    settings = Settings(
        threads=1, context=1024, sampling=Sampling(temperature=0, max_tokens=TURN), auto_title=False, draft="off"
    )
    paths, inbox = Paths.find({"KVCHAT_HOME": str(home)}), Inbox()
    store = StoreThread(paths.chats_db, lambda error: inbox.post(StoreFailed(error)))
    link = EngineLink(settings, paths, inbox.post, real_engine, lambda *_: Survey(models, (tmp_path,), chosen=smollm2))
    yield Desk(settings, paths, store, link, inbox)
    link.close()
    store.close()


async def model(pilot: Pilot[None], desk: Desk, name: str) -> None:
    """`/model name`, until its engine is ready and idle."""
    await send(pilot, f"/model {name}")
    await ready(pilot, desk, name)


async def ready(pilot: Pilot[None], desk: Desk, name: str) -> None:
    def runs() -> bool:
        return desk.engine.ready is not None and name in desk.engine.ready.model.name and not room(pilot).is_busy

    await until(pilot, runs)


async def answered(pilot: Pilot[None], question: str) -> Usage:
    """The usage of the turn that answers it."""
    conversation = room(pilot).conversation
    before = len(conversation.messages)
    await send(pilot, question)
    done: Callable[[], bool] = partial(_answered, pilot, before + 2)
    await until(pilot, done)
    return last_usage(conversation.messages)


def _answered(pilot: Pilot[None], messages: int) -> bool:
    return len(room(pilot).conversation.messages) == messages and not room(pilot).is_busy


async def test_back_at_once_and_after_a_turn(desk: Desk) -> None:
    """Switched away and back, the next turn computes its own tokens: the prompt less all that is known, which is the
    last prompt with its reply but for the token that was sampled last. After a turn of the other model that turn's
    text is new, too, and nothing else."""
    async with KvchatApp(desk, None).run_test(size=(100, 30)) as pilot:
        await ready(pilot, desk, "SmolLM2")
        first = await answered(pilot, "Name three colours.")
        known = first.prompt_tokens + TURN - 1
        await model(pilot, desk, "qwen3")
        await model(pilot, desk, "SmolLM2")
        second = await answered(pilot, "And three animals.")
        assert (second.reused, second.computed) == (known, second.prompt_tokens - known)
        assert second.cut is None
        known = second.prompt_tokens + TURN - 1
        await model(pilot, desk, "qwen3")
        other = await answered(pilot, "And three trees.")
        assert (other.reused, other.computed) == (0, other.prompt_tokens)
        await model(pilot, desk, "SmolLM2")
        third = await answered(pilot, "And three cities.")
        assert (third.reused, third.computed) == (known, third.prompt_tokens - known)
        messages = room(pilot).conversation.messages
    asked = ["Name three colours.", "And three animals.", "And three trees.", "And three cities."]
    assert [message.text for message in messages[::2]] == asked
    assert all(message.text for message in messages[1::2])
    assert ["qwen3" in message.model for message in messages[1::2]] == [False, False, True, False]
