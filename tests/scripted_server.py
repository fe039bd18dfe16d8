"""A server with an OpenAI-compatible chat API that does what a test tells it to, faults included. On loopback only."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Script = Callable[["Reply"], None]


@dataclass(frozen=True)
class Seen:
    """A request for an answer, as it came."""

    raw: bytes
    headers: Mapping[str, str]

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw)
        return found

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(message["role"], message["content"]) for message in self.body["messages"]]


class Reply:
    """What a script writes to."""

    def __init__(self, handler: BaseHTTPRequestHandler, server: ScriptedServer) -> None:
        self._handler = handler
        self.server = server

    def status(self, code: int, body: object = None, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer: JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._handler.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self._handler.send_header(name, value)
        self._handler.send_header("Content-Length", str(len(data)))
        self._handler.end_headers()
        self._handler.wfile.write(data)

    def begin(self, kind: str = "text/event-stream") -> None:
        """A stream of events, which ends when the connection does."""
        self._handler.close_connection = True
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", kind)
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()

    def raw(self, data: bytes) -> None:
        """Bytes of a stream."""
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def event(self, value: object) -> None:
        """One event of a stream."""
        self.raw(f"data: {json.dumps(value)}\n\n".encode())

    def delta(self, finish: str | None = None, **delta: str) -> None:
        """A piece of the reply."""
        self.event({"object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}]})

    def end(self, usage: Mapping[str, object] | None = None, finish: str = "stop", **more: object) -> None:
        """The end of a reply, as vLLM and llama-server write it."""
        self.delta(finish)
        if usage is not None or more:
            self.event({"choices": [], **({"usage": usage} if usage is not None else {}), **more})
        self.raw(b"data: [DONE]\n\n")


def saying(*pieces: str, usage: Mapping[str, object] | None = None, **more: object) -> Script:
    """A script that answers with these pieces of text."""

    def play(reply: Reply) -> None:
        reply.begin()
        for piece in pieces:
            reply.delta(content=piece)
        reply.end(usage, **more)

    return play


def failing(code: int, body: object = None, headers: Mapping[str, str] | None = None) -> Script:
    """A script that refuses."""
    return lambda reply: reply.status(code, body, headers)


def usage(prompt: int, written: int, cached: int | None = None) -> dict[str, object]:
    """What a server says that an answer cost."""
    told: dict[str, object] = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return told if cached is None else {**told, "prompt_tokens_details": {"cached_tokens": cached}}


class ScriptedServer:
    """Serves `models`. Each request for an answer plays the next of `scripts`, the last one again and again. `seen` are
    those requests, `asked` counts all; `left` is set when a script could not go on, since nobody listened."""

    def __init__(self, *scripts: Script, owner: str = "vllm", names: Sequence[str] = ("served",)) -> None:
        self.scripts = list(scripts)
        self.models: object = {"data": [{"id": name, "owned_by": owner, "max_model_len": 4096} for name in names]}
        self.models_script: Script = lambda reply: reply.status(200, self.models)
        self.seen: list[Seen] = []
        self.asked = 0
        self.left = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    def until_left(self, reply: Reply, pieces: Iterable[str]) -> None:
        """Write pieces of a reply as long as somebody listens."""
        pause = threading.Event()
        try:
            for piece in pieces:
                reply.delta(content=piece)
                pause.wait(0.02)
        except OSError:
            self.left.set()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                """Quiet."""

            def do_GET(self) -> None:
                server.asked += 1
                server.models_script(Reply(self, server))

            def do_POST(self) -> None:
                server.asked += 1
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                server.seen.append(Seen(raw, dict(self.headers)))
                script = server.scripts.pop(0) if len(server.scripts) > 1 else server.scripts[0]
                with suppress(OSError):
                    script(Reply(self, server))

        return Handler
