"""A disk that fails: at one chosen call, or from a chosen size of files on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

CALLS = ("open", "writev", "replace", "mkdir", "unlink")


class FailingDisk:
    """From the `nth` call of `function` on, counted from 1, all of them fail; a `writev` writes `short` bytes first."""

    def __init__(self, function: str, nth: int, code: int, short: int = 0) -> None:
        self.function, self._nth, self._code, self._short = function, nth, code, short
        self._calls = 0
        self._real: Any = getattr(os, function)

    @property
    def failed(self) -> bool:
        return self._calls >= self._nth

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._calls += 1
        if self._calls < self._nth:
            return self._real(*arguments, **options)
        if self._calls == self._nth and self.function == "writev" and self._short:
            return self._write_a_part(*arguments)
        raise OSError(self._code, os.strerror(self._code))

    def _write_a_part(self, fd: int, buffers: Sequence[memoryview]) -> int:
        return os.write(fd, b"".join(buffers)[: self._short])

    @contextmanager
    def in_force(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(os, self.function, self)
            yield


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes, as on a full disk: also for SQLite, which is not Python."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
