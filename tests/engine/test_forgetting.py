"""What the engine keeps of nobody: incognito turns, and cells that it was told to forget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tiny
from driver import Driver
from traces import traces

from kvchat.backend.protocol import Forecast, Forecasted, Forget, Forgotten, Warm, Warmed
from kvchat.backend.values import PromptMessage
from kvchat.formats.page import pack_ids
from kvchat.kv.purge import purge

LONG = " ".join(f"Item {i * 7919} is a thing of its own." for i in range(40))


def pages(home: Path) -> list[Path]:
    return [path for path in home.glob("kv/pages/*/*/*") if len(path.name) == 64]


def own_runs(chat: Driver) -> list[bytes]:
    ids = [token for message in chat.messages for token in message.ids or ()]
    return [pack_ids(ids[at : at + 6]) for at in range(40, len(ids) - 6, 6)]


def test_an_incognito_turn_reuses_what_is_resident_and_writes_nothing(
    start: Callable[..., Driver], tmp_path: Path
) -> None:
    chat = start(context=2048)
    first = chat.ask(LONG, incognito=True)
    assert first.usage.reused == 0
    second = chat.ask("And then?", incognito=True)
    assert second.usage.resident >= first.usage.prompt_tokens
    assert second.usage.cut is None
    assert (second.usage.pages, second.usage.pages_saved) == (0, 0)
    question = (*chat.messages, PromptMessage("user", "Why?"))
    chat.engine.forecast(Forecast("f", question, incognito=True))
    forecast = chat.until(Forecasted)[-1]
    assert isinstance(forecast, Forecasted)
    assert forecast.resident > second.usage.prompt_tokens
    runs, secret = own_runs(chat), chat.messages
    chat.messages = []
    chat.ask("Another chat, which is kept.")  # its cells are those of the first
    chat.engine.close()
    assert pages(tmp_path)
    assert traces([tmp_path / "kv"], runs) == set()
    again = start(context=2048)
    again.messages = list(secret)
    assert again.ask("Once more?", incognito=True).usage.reused == 0


def test_pages_on_disk_are_not_read_by_an_incognito_turn(start: Callable[..., Driver]) -> None:
    chat = start(context=2048)
    chat.ask(LONG)
    chat.engine.close()
    again = start(context=2048)
    again.messages = list(chat.messages)
    assert again.ask("And then?", incognito=True).usage.reused == 0


def test_a_chat_that_is_too_long_does_not_have_an_incognito_one_written(tmp_path: Path) -> None:
    """It lies in the place where the other one was to be, and what is there is saved when the cache type changes."""
    chat = Driver.start(tmp_path, tiny.build("llama", tmp_path), context=512, parallel=1)
    chat.ready()
    chat.ask(LONG[:200], incognito=True)
    runs = own_runs(chat)
    chat.messages = []
    assert chat.ask(LONG).finished.reason == "context"
    chat.engine.configure(replace(chat.engine.config, type_k="q8_0", type_v="q8_0"))
    chat.ready()
    chat.engine.close()
    assert runs
    assert traces([tmp_path / "kv"], runs) == set()


def test_what_a_draft_model_read_of_an_incognito_chat_is_not_written_after_the_turn_of_another(tmp_path: Path) -> None:
    """That chat is opened again in between, and the other one drafts nothing, so nothing takes its place."""
    draft = tiny.build("llama", tmp_path, name="draft", seed=1)
    chat = Driver.start(tmp_path, tiny.build("llama", tmp_path), draft_path=str(draft))
    chat.ready()
    assert chat.ask(LONG[:400], incognito=True, draft="model").usage.draft_note is None
    words = chat.messages[0].ids
    assert words is not None
    chat.engine.warm(Warm("w", tuple(token for message in chat.messages for token in message.ids or ())))
    assert isinstance(chat.until(Warmed)[-1], Warmed)
    chat.messages = []
    chat.ask("Another chat, which is kept.")
    chat.engine.close()
    assert pages(tmp_path)
    assert traces([tmp_path / "kv"], [pack_ids(words[40:60])]) == set()


def test_what_was_forgotten_is_not_written_again(start: Callable[..., Driver], tmp_path: Path) -> None:
    chat = start(context=2048)
    chat.ask(LONG)
    chat.engine.forget(Forget("x"))
    forgotten = chat.until(Forgotten)[-1]
    assert forgotten == Forgotten("x")
    assert pages(tmp_path)
    runs = own_runs(chat)
    purge(tmp_path / "kv", [], [])
    assert not pages(tmp_path)
    went_on = chat.ask("And then?", incognito=True)
    assert went_on.usage.reused == 0  # nothing was left in the cells
    chat.engine.close()
    assert not pages(tmp_path)
    assert traces([tmp_path / "kv"], runs) == set()
