"""What a Conversation is tested with: a store on the disk, and a backend that plays turns. A file may have its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conversing import GREEDY
from fake_backend import FakeBackend, make_ready

from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.errors import KvchatError


@pytest.fixture
def failures() -> list[KvchatError]:
    """What the store could not save."""
    return []


@pytest.fixture
def store(tmp_path: Path, failures: list[KvchatError]) -> Iterator[StoreThread]:
    opened = StoreThread(tmp_path / "chats.db", failures.append)
    yield opened
    opened.close()


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(make_ready())


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    return Conversation.start(store, backend, sampling=GREEDY)
