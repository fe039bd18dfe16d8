"""llama-server, asked over its OpenAI-compatible API on loopback."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from processes import family
from programs import PATIENCE, Answer, Program, Setup, end

SLOT = 0  # there is one


class LlamaServer(Program):
    """One slot, as for one person; saved by `/slots` where its chats are to survive. The rest is as it comes: prompt
    cache on, 8,192 MiB of host memory for other prompts (`--cache-ram`). `speculative` are its flags for drafts."""

    def __init__(self, setup: Setup, binary: Path, *, name: str = "llama-server", speculative: tuple[str, ...] = ()):
        super().__init__(setup)
        self.name = name
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._speculative = speculative
        (setup.home / "slots").mkdir(exist_ok=True)

    def _command(self) -> list[str]:
        setup = self.setup
        flash = {None: "auto", True: "on", False: "off"}[setup.flash]
        options = {
            "-m": setup.model,
            "-c": setup.context,
            "-t": setup.threads,
            "-np": 1,
            "-ctk": setup.type,
            "-ctv": setup.type,
            "-fa": flash,
            "--slot-save-path": setup.home / "slots",
            "--host": "127.0.0.1",
            "--port": self._port,
        }
        if setup.batch:
            options |= {"-b": setup.batch, "-ub": setup.batch}
        words = [str(word) for pair in options.items() for word in pair]
        return [str(self._binary), *words, *self._speculative]

    def start(self) -> float:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._port = int(taken.getsockname()[1])
        began = time.perf_counter()
        with (self.setup.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not self._healthy():
            if self._process.poll() is not None or time.perf_counter() - began > PATIENCE:
                raise RuntimeError(f"{self.name}: {(self.setup.home / 'server.log').read_text()[-2000:]}")
            time.sleep(0.005)
        return time.perf_counter() - began

    def _healthy(self) -> bool:
        try:
            return self._request("GET", "/health")[0] == http.client.OK
        except OSError:
            return False

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def send(self, chat: str, messages: list[dict[str, str]], tokens: int) -> Answer:
        del chat  # a server knows no chats
        body = {"messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        began = time.perf_counter()
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                return Answer(failed=answer.read().decode(errors="replace")[:500])
            return _streamed(answer, began)
        finally:
            connection.close()

    def keep(self, chat: str) -> float:
        return self._slot("save", chat)

    def bring_back(self, chat: str) -> float:
        return self._slot("restore", chat)

    def _slot(self, action: str, chat: str) -> float:
        began = time.perf_counter()
        status, told = self._request("POST", f"/slots/{SLOT}?action={action}", {"filename": f"{chat}.bin"})
        if status != http.client.OK:
            raise RuntimeError(f"{self.name} could not {action} {chat}: {told}")
        return time.perf_counter() - began

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.terminate()
            end(process)

    @property
    def pids(self) -> list[int]:
        return family(self._process.pid) if self._process is not None else []


def _streamed(answer: http.client.HTTPResponse, began: float) -> Answer:
    """What comes as server-sent events."""
    text, first, last, timings = "", 0.0, 0.0, {}
    for line in answer:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        piece = event["choices"][0]["delta"].get("content") if event.get("choices") else None
        if piece:
            last = time.perf_counter() - began
            first, text = first or last, text + piece
        timings = event.get("timings") or timings
    computed, cached = timings.get("prompt_n", 0), timings.get("cache_n", 0)
    return Answer(first, last, timings.get("predicted_n", 0), computed + cached, computed, text, told=timings)
