"""From other threads to the event loop. Owns what waits for the screen; must not look into it.

One lock and one list per item, one wake-up per batch: handing over each token by itself would slow the model down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvchat.errors import KvchatError
from kvchat.ui.launch import Survey, Weighed

if TYPE_CHECKING:
    from kvchat.backend.protocol import Event


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A change of a chat that nobody waits for could not be written."""

    error: KvchatError


if TYPE_CHECKING:
    News = Event | StoreFailed | Survey | Weighed


class Inbox:
    """`post` may be called from any thread, before, while and after somebody listens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._news: list[News] = []
        self._wake: Callable[[], object] | None = None

    def post(self, news: News) -> None:
        """Put something in."""
        with self._lock:
            self._news.append(news)
            if len(self._news) == 1 and self._wake is not None:
                self._wake()

    def take(self) -> list[News]:
        """Everything so far, in order."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def listen(self, wake: Callable[[], object]) -> None:
        """From now on `wake` is called, on the posting thread, for the first item after each `take`."""
        with self._lock:
            self._wake = wake
            if self._news:
                wake()

    def ignore(self) -> None:
        """Nobody is there to be woken any more. When this returns, nobody is being woken either."""
        with self._lock:
            self._wake = None
