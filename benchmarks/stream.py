"""What a streamed answer costs the app, in a pseudo-terminal: 10,000 tokens of Markdown into a chat of 500 messages.

    python benchmarks/stream.py [--rates 60,400] [--tokens N] [--messages N] [--resize]

The engine is a thread that sends tokens at a fixed rate. Latency: by how much a sleep of 10 ms of the event loop is
late. CPU: time of the app's process per second, the sending thread and the probe among it. RSS: of the process before
the answer, half way and after it. At the end the answer on disk must be what was sent, and its last line be drawn.
With --resize the window gets another size every two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from screen import PLACEHOLDER, Terminal

from kvchat.backend.protocol import (
    Event,
    Forecast,
    Generate,
    Preview,
    PromptReady,
    ReadAhead,
    Ready,
    Restored,
    TextDelta,
    Title,
    TurnFinished,
    Warm,
)
from kvchat.backend.values import CacheInfo, EngineConfig, ModelInfo, Usage
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.config import Settings
from kvchat.machine import physical_cores, processor
from kvchat.paths import Paths, ensure_private
from kvchat.ui import app
from kvchat.ui.launch import Survey

WORDS = """the cache holds keys and values for every layer so memory grows with context length and head dimension while
quantised blocks trade accuracy for space in a way that depends on outliers rotation and group size"""
LETTERS = 4  # of a token
DONE = "stream-done.json"
SIZES = ((80, 24), (40, 12), (20, 6), (200, 50), (120, 36))


def answer(rng: random.Random) -> Iterator[str]:
    """Blocks of Markdown without end."""
    known = WORDS.split()

    def words(count: int) -> str:
        found = [rng.choice(known) for _ in range(count)]
        found[::17] = [f"**{word}**" for word in found[::17]]
        found[5::23] = [f"`{word}`" for word in found[5::23]]
        return " ".join(found)

    while True:
        yield f"## {words(3)}\n\n{words(60)}.\n\n"
        yield "".join(f"- {words(9)}\n" for _ in range(5)) + "\n"
        lines = (
            f"{'    ' * (n % 3)}value_{n} = compute(layer={n}, scale={rng.random():.4f})  # step" for n in range(14)
        )
        yield "```python\n" + "\n".join(lines) + "\n```\n\n"
        yield f"{words(45)} 键值缓存的量化会影响注意力精度 한국어 🚀.\n\n> {words(25)}\n\n"
        rows = "".join(f"| q{rng.randint(2, 8)} | {rng.randint(10, 999)} | {words(3)} |\n" for _ in range(5))
        yield "| cache | MiB | note |\n|---|--:|---|\n" + rows + "\n"


def text_of(characters: int, seed: int) -> str:
    blocks: list[str] = []
    size = 0
    for block in answer(random.Random(seed)):  # noqa: S311 (only a text)
        blocks.append(block)
        size += len(block)
        if size >= characters:
            break
    return "".join(blocks)[:characters]


def fill(paths: Paths, messages: int) -> None:
    """A chat of so many messages."""
    ensure_private(paths.chats_db.parent)
    store = ChatStore(paths.chats_db)
    now = time.time()
    chat = Chat("01" + "0" * 24, "a long chat", now, now, "", now, "stream", None)
    parent = None
    for number in range(0, messages, 2):
        ids = [f"01{number + n:024}" for n in range(2)]
        question = Message(ids[0], chat.id, parent, "user", f"Question {number}?", now, "")
        reply = Message(ids[1], chat.id, ids[0], "assistant", text_of(2_000, number), now, "stop", "stream")
        store.add_turn(chat, (question, reply))
        parent = reply.id
    store.close()


# ---------------------------------------------------------------------- inside the terminal


class Probe:
    """Latency of the event loop, CPU and memory between `begin` and `end`."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._on = False
        self._rss: list[float] = []
        self._cpu = self._began = 0.0

    async def run(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            if self._on:
                self._late.append(time.perf_counter() - before - 0.01)

    def begin(self) -> None:
        self._rss = [rss()]
        self._cpu, self._began = time.process_time(), time.perf_counter()
        self._on = True

    def half(self) -> None:
        self._rss.append(rss())

    def end(self, file: Path) -> None:
        self._on = False
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        late = sorted(self._late)
        part = {f"p{p}": late[min(len(late) - 1, len(late) * p // 100)] for p in (50, 95, 99, 100)}
        found = {"seconds": seconds, "cpu": cpu / seconds, "late": part, "rss": [*self._rss, rss()]}
        file.with_suffix(".part").write_text(json.dumps(found))
        file.with_suffix(".part").rename(file)


def rss() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


class Engine:
    """Sends tokens at a fixed rate."""

    def __init__(
        self, config: EngineConfig, post: Callable[[Event], None], probe: Probe, tokens: int, rate: float
    ) -> None:
        self.config = config
        self.ready: Ready | None = None
        self._post = post
        self._probe = probe
        self._tokens = tokens
        self._rate = rate

    def start(self) -> None:
        model = ModelInfo("stream", self.config.model_path, "llama", "GQA", "0" * 32, "stream", "GGUF", 65_536, 1024)
        self.ready = Ready(model, CacheInfo("f16", "f16", 65_536, False, 1, 0, True, True), 0.1)
        self._post(self.ready)

    def configure(self, config: EngineConfig) -> None:
        self.config = config

    def warm(self, command: Warm) -> None:
        pass

    def forecast(self, command: Forecast) -> None:
        pass

    def read_ahead(self, command: ReadAhead) -> None:
        pass

    def preview(self, command: Preview) -> None:
        pass

    def title(self, command: Title) -> None:
        pass

    def cancel(self, turn: str) -> None:
        pass

    def close(self, patience: float = 0.0) -> None:
        pass

    def submit(self, request: Generate) -> None:
        threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: Generate) -> None:
        text = text_of(self._tokens * LETTERS, 99_999)
        self._post(PromptReady(request.turn, ((1,),) * len(request.messages), len(request.messages)))
        self._post(Restored(request.turn, 0, 0, 0, 0, 1, 0.0, None))
        time.sleep(1)
        self._probe.begin()
        began = time.perf_counter()
        for number in range(self._tokens):
            if number == self._tokens // 2:
                self._probe.half()
            due = began + number / self._rate
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            self._post(TextDelta(request.turn, text[number * LETTERS : (number + 1) * LETTERS], (number,)))
        self._post(TurnFinished(request.turn, "stop", Usage(prompt_tokens=1, decode_tokens=self._tokens)))
        time.sleep(1)
        self._probe.end(Path(os.environ["KVCHAT_HOME"]) / DONE)


def inside(tokens: int, rate: float) -> int:
    """The app with that engine."""
    probe = Probe()
    begin = app.KvchatApp.on_mount
    tasks = []

    def on_mount(self: app.KvchatApp) -> None:
        tasks.append(asyncio.get_running_loop().create_task(probe.run()))
        begin(self)

    app.KvchatApp.on_mount = on_mount  # type: ignore[method-assign]
    return app.run_app(
        Settings(),
        Paths.find(os.environ),
        continue_last=True,
        engine_factory=lambda config, post, *_: Engine(config, post, probe, tokens, rate),
        surveyor=lambda *_: Survey(chosen=Path("/stream.gguf")),
    )


# ---------------------------------------------------------------------- outside


def check(paths: Paths, tokens: int) -> None:
    """The answer on disk is the text that was sent."""
    store = ChatStore(paths.chats_db)
    chat = store.latest()
    last = store.path(chat.head)[-1] if chat is not None else None
    store.close()
    if last is None or (last.text, last.finish) != (text_of(tokens * LETTERS, 99_999), "stop"):
        raise SystemExit("error: the answer on disk is not what was sent")


def measure(tokens: int, rate: float, messages: int, resize: bool) -> dict[str, object]:
    """One answer in a new terminal."""
    with tempfile.TemporaryDirectory() as home:
        fill(Paths.find({"KVCHAT_HOME": home}), messages)
        command = [sys.executable, __file__, "--inside", "--tokens", str(tokens), "--rates", str(rate)]
        terminal = Terminal(command, home)
        try:
            terminal.until(PLACEHOLDER)
            terminal.rest(2)
            terminal.send("go\r")
            done = Path(home) / DONE
            deadline = time.perf_counter() + tokens / rate + 120
            for number in count(1):
                if done.exists():
                    break
                if time.perf_counter() > deadline:
                    raise SystemExit("error: the answer did not end")
                terminal.rest(0.5)
                if resize and number % 4 == 0:
                    terminal.resize(*SIZES[number // 4 % len(SIZES)])
            end = text_of(tokens * LETTERS, 99_999).rstrip().rpartition("\n")[2].split()[-1].strip("|*`")
            if end.encode() not in terminal.seen:
                raise SystemExit(f"error: the end of the answer, {end!r}, was not drawn")
            check(Paths.find({"KVCHAT_HOME": home}), tokens)
            found: dict[str, object] = json.loads(done.read_text())
            return found
        finally:
            terminal.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="60,400")
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=500)
    parser.add_argument("--resize", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    rates = [float(rate) for rate in given.rates.split(",")]
    if given.inside:
        return inside(given.tokens, rates[0])
    print(f"{time.strftime('%Y-%m-%d')}  {processor()}, {physical_cores()} cores")
    print(f"{given.tokens:,} tokens into a chat of {given.messages:,} messages, 120x36; load {os.getloadavg()[0]:.1f}")
    for rate in rates:
        found = measure(given.tokens, rate, given.messages, given.resize)
        late: dict[str, float] = found["late"]  # type: ignore[assignment]
        memory: list[float] = found["rss"]  # type: ignore[assignment]
        lag = "  ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in late.items())
        print(
            f"{rate:4.0f} tok/s   event loop late {lag} ms   CPU {found['cpu']:.1%} of a core   "
            f"RSS {' -> '.join(f'{value:.0f}' for value in memory)} MiB   ({found['seconds']:.0f} s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
