"""Real servers for tests, on loopback: llama-server, where TEST_LLAMA_SERVER names its binary, and that of
llama-cpp-python."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LLAMA_SERVER = os.environ.get("TEST_LLAMA_SERVER", "")
# On some processors extra buffers end in an illegal instruction; this server has no flag that turns them off.
PYTHON_SERVER = """
import sys, runpy
import llama_cpp.llama_cpp as native
usual = native.llama_model_default_params
def careful():
    params = usual()
    params.use_extra_bufts = False
    return params
native.llama_model_default_params = careful
sys.argv[0] = "llama_cpp.server"
runpy.run_module("llama_cpp.server", run_name="__main__")
"""
_PATIENCE = 90.0  # seconds until a server listens


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def _running(words: list[str], port: int, log: Path) -> Iterator[str]:
    """The URL of a server that is started by `words`. Skips where it cannot start."""
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as stream:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            if process.poll() is not None:
                pytest.skip(f"{words[0]} ended with {process.returncode}: {log.read_text()[-300:]}")
            try:
                get(f"{url}/v1/models")
                break
            except OSError:
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def llama_server(model: Path, log: Path) -> Iterator[str]:
    """One slot, one thread, 4,096 tokens; its root URL."""
    if not LLAMA_SERVER:
        pytest.skip(
            "TEST_LLAMA_SERVER names no llama-server, built from llama.cpp's sources with `--target llama-server`"
        )
    port = _free_port()
    flags = [
        "-c",
        "4096",
        "-np",
        "1",
        "-t",
        "1",
        "-fa",
        "off",
        "--no-repack",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with _running([LLAMA_SERVER, "-m", str(model), *flags], port, log) as url:
        yield url


@contextmanager
def python_server(model: Path, log: Path) -> Iterator[str]:
    """llama-cpp-python's own server; its root URL."""
    missing = [name for name in ("uvicorn", "fastapi", "sse_starlette") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"llama-cpp-python's server needs {', '.join(missing)}: pip install 'kvchat[dev]'")
    port = _free_port()
    flags = ["--model", str(model), "--n_ctx", "2048", "--n_threads", "1", "--host", "127.0.0.1", "--port", str(port)]
    with _running([sys.executable, "-c", PYTHON_SERVER, *flags], port, log) as url:
        yield url
