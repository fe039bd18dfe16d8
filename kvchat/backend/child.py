"""One engine process as its client knows it. Owns what is owed for it; must not start, end or judge it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from kvchat.backend.journal import Choice
from kvchat.backend.protocol import Command
from kvchat.backend.values import EngineConfig


@dataclass(slots=True)
class Change:
    """A change of configuration under way, and what stood before it."""

    choice: Choice
    config: EngineConfig
    failed: bool = False


@dataclass(slots=True)
class Child:
    """One engine process and what is owed for it."""

    process: subprocess.Popen[bytes]
    connection: Connection
    choice: Choice
    log_start: int
    ready: bool = False
    refused: bool = False
    replaced: bool = False
    drafting: bool = False  # its model stands, and it is loading a draft model
    measuring: bool = False  # it was asked to measure itself and has not told the result
    guarding: bool = False  # it was asked to check its cache types and has not told the verdict
    asked: deque[Change] = field(default_factory=deque)  # configurations that it has not answered yet
    turns: dict[str, bool] = field(default_factory=dict)  # turn -> whether its restore is over
    measurements: set[str] = field(default_factory=set)  # begun, and not told the end of


def same_process(old: EngineConfig, new: EngineConfig) -> bool:
    """Whether the loaded model serves both."""
    return (old.model_path, old.gpu_layers, old.extra_buffers) == (new.model_path, new.gpu_layers, new.extra_buffers)


def send(child: Child, command: Command) -> None:
    with suppress(OSError):
        child.connection.send(command)


def hang_up(connection: Connection) -> None:
    """Close the sending half, so that the engine reads the end of the pipe while we still read what it says."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as half:
        half.shutdown(socket.SHUT_WR)
