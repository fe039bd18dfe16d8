"""What the inspector says of a real engine's turns, against what the engine used and what lies on the disk."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import tiny
from driver import Driver
from kv_pages import page_files

from kvchat.chats.types import Message
from kvchat.conversation import Sight
from kvchat.formats.past import Past
from kvchat.kv.store import PAGE_TOKENS
from kvchat.ui.inspector_context import context_view
from kvchat.ui.inspector_memory import MemoryView, memory_view
from kvchat.ui.inspector_store import store_view
from kvchat.ui.memory import memory_for_engine
from kvchat.ui.model_facts import model_at, read_facts

LONG = "Tell me about letters, reports and the like. " * 5


@pytest.mark.parametrize("kind", ["llama", "gemma3", "jamba"])
def test_two_turns(home: Path, tmp_path: Path, kind: str) -> None:
    """Full pages, one with a window and a recurrent state each: the cells that are used are those that the pages hold;
    of hybrid models there are checkpoints beside them."""
    path = tiny.build(kind, tmp_path)
    driver = Driver.start(home, path)
    try:
        ready = driver.ready()
        driver.ask(LONG)
        usage = driver.ask(LONG).usage
        config = driver.engine.config
        memory = memory_view(
            read_facts(model_at(path, ())), config, ready, memory_for_engine(config, ready, driver.engine.pid)
        )
    finally:
        driver.engine.close()
    ids = tuple(token for message in driver.messages for token in message.ids or ())
    store = store_view(home / "kv", config, ready, Sight(past=Past(ids)))
    files = page_files(home / "kv")
    pages, checkpoints = store.kept.history.pages, store.kept.history.checkpoints
    assert (store.kept.tokens, pages) == (usage.cells, -(-usage.cells // PAGE_TOKENS))
    assert (checkpoints > 0) == (kind == "jamba")
    assert store.kept.every.bytes == sum(file.stat().st_size for file in files)
    assert len(files) == store.kept.every.pages + store.kept.every.checkpoints

    lengths = {str(number): len(message.ids or ()) for number, message in enumerate(driver.messages)}
    messages = tuple(
        Message(name, "c", None, "assistant" if int(name) % 2 else "user", "", 1.0, "stop", "m", None)
        for name in lengths
    )
    last = Message("3", "c", None, "assistant", "", 1.0, "stop", "m", json.dumps(asdict(usage)))
    view = context_view(
        (*messages[:3], last), lengths, live=None, generated=0, warmed=None, reserved=ready.cache.context, system=False
    )
    assert view.used == usage.cells
    assert [part.tokens for part in view.parts][:3] == list(lengths.values())[:3]
    assert sum(part.tokens for part in view.parts) == usage.cells

    assert isinstance(memory, MemoryView)
    assert memory.plan.context == ready.cache.context == 1024
    assert memory.plan.chosen.fits
