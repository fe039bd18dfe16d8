"""What servers answer, as the client of a server reads it: a streamed answer, and a list of models. See `fuzzing`.

An input is a whole response: a line with the status, lines of headers, an empty line, the body. It comes in pieces of a
size that depends on it. Nothing is opened: a transport in memory stands for the network.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from fuzzing import Target

from kvchat.backend.choices import Remote
from kvchat.backend.protocol import Event, Generate, PromptProgress, Restored, TextDelta
from kvchat.backend.remote_request import Sent
from kvchat.backend.remote_served import served
from kvchat.backend.remote_turn import RemoteTurn
from kvchat.backend.remote_wire import USUAL, Wire
from kvchat.backend.values import PromptMessage
from kvchat.clean import clean_line
from kvchat.errors import KvchatError

_REMOTE = Remote("lab", "http://127.0.0.1:1/v1")
_PIECES = (1, 7, 100, 1 << 16)  # bytes that come together
_MOST_PIECES = 2000


class _Server:
    """A wire to a server that answers with what a test tells it."""

    def __init__(self) -> None:
        import httpx2

        self._http = httpx2
        self.wire = Wire(_REMOTE, "", USUAL)
        self.wire._client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._respond))
        self.answer = b""

    def _respond(self, _: object) -> object:
        head, _, body = self.answer.partition(b"\n\n")
        first, *lines = head.split(b"\n")
        status = int(first) if first.isdigit() and 200 <= int(first[:4]) < 600 else 200
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        return self._http.Response(status, headers=headers, content=_in_pieces(body))


async def _in_pieces(body: bytes) -> AsyncIterator[bytes]:
    size = max(_PIECES[zlib.crc32(body) % len(_PIECES)], len(body) // _MOST_PIECES)
    for start in range(0, len(body), size):
        yield body[start : start + size]


@cache
def _server() -> _Server:
    return _Server()


def _stream_seeds(_: Path) -> list[bytes]:
    told = {"prompt_tokens": 20, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 12}}
    timings = {"cache_n": 12, "prompt_n": 8, "predicted_n": 4, "prompt_ms": 20.5}
    progress = {"total": 20, "cache": 12, "processed": 16, "time_ms": 10}
    llama = [
        {"choices": [], "prompt_progress": progress},
        _delta(reasoning_content="Six times seven."),
        _delta(content="42"),
        _delta("stop") | {"usage": told, "timings": timings},
    ]
    vllm = [_delta(role="assistant", content=""), _delta(reasoning="Hm."), _delta(content="né€😀"), _delta("length")]
    failed = [_delta(content="So far"), {"error": {"message": "CUDA out of memory", "code": 500}}]
    other = b": a sign of life\r\n\r\nevent: message\r\nid: 7\r\nretry: 10\r\ndata: {\r\ndata: }\r\n\r\n"
    streams = [*map(_events, (llama, [*vllm, {"choices": [], "usage": told}], failed)), other]
    heads = [
        b"200\ncontent-type: text/event-stream; charset=" + name for name in (b"utf-8", b"utf-16", b"hex", b"zlib")
    ]
    packed = zlib.compress(streams[0])
    return [
        *(head + b"\n\n" + stream for head, stream in zip(heads, streams, strict=True)),
        b"200\ncontent-type: text/event-stream\ncontent-encoding: deflate\n\n" + packed,
        b"429\ncontent-type: application/json\nretry-after: 17\n\n"
        + b'{"error": {"message": "slow down", "code": 429}}',
        b"307\nlocation: http://other/v1\n\n",
        b'400\ncontent-type: application/json\n\n{"detail": "unknown stream_options"}',
    ]


def _delta(finish: str | None = None, **delta: str) -> dict[str, object]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _events(found: list[dict[str, object]]) -> bytes:
    return b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in found) + b"data: [DONE]\n\n"


def _read_stream(data: bytes, _: Path) -> str:
    """A whole turn. Whatever comes: what is posted is the answer, and what is told of it makes sense."""
    server = _server()
    server.answer = data
    request = Generate("t", (PromptMessage("user", "What is six times seven?"),))
    turn = RemoteTurn(request, server.wire, "m", "llama-server", Sent(), _REMOTE.host)
    posted: list[Event] = []
    problem: KvchatError | None = None
    try:
        asyncio.run(turn.run(posted.append))
    except KvchatError as error:
        problem = error
    finished = turn.finished(problem)
    assert "".join(event.text for event in posted if isinstance(event, TextDelta)) == turn._answer.text
    assert (finished.failure is None) == (problem is None)
    for event in (finished.usage, *(each for each in posted if isinstance(each, Restored | PromptProgress))):
        counts = [value for value in asdict(event).values() if isinstance(value, int | float)]
        assert all(math.isfinite(value) and value >= 0 for value in counts), event
    if problem is not None:
        raise _checked(problem)
    return f"{finished.reason} {[type(event).__name__ for event in posted]} {turn._answer.finish}"


def _list_seeds(_: Path) -> list[bytes]:
    vllm = {"object": "list", "data": [{"id": "Qwen/Qwen3-32B", "owned_by": "vllm", "max_model_len": 4096}]}
    llama = {"data": [{"id": "/models/a.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 8192}}]}
    several = {"data": [{"id": "one"}, {"id": "two"}]}
    head = b"200\ncontent-type: application/json\n\n"
    return [*(head + json.dumps(each).encode() for each in (vllm, llama, several)), b'404\n\n{"error": "no list"}']


def _read_list(data: bytes, _: Path) -> str:
    server = _server()
    server.answer = data
    try:
        found = asyncio.run(served(server.wire, _REMOTE))
    except KvchatError as error:
        raise _checked(error) from error
    assert 0 <= found.context < 1 << 31
    assert found.name == clean_line(found.name)
    assert all(note == clean_line(note) for note in found.notes(_REMOTE))
    return f"{found.program} {bool(found.context)} {bool(found.name)}"


def _checked(error: KvchatError) -> KvchatError:
    """What a person reads is bounded, and no terminal obeys it. What is handed on is without the words of the server:
    each of them would pass for something new."""
    for words in (error.message, error.hint or ""):
        assert words == clean_line(words), words
        assert len(words) < 2000, words
    return KvchatError(error.hint or "")


REMOTE: Mapping[str, Target] = {
    "stream of a server": Target(_stream_seeds, _read_stream),
    "models of a server": Target(_list_seeds, _read_list),
}
