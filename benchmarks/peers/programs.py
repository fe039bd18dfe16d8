"""The programs that are compared, each as something that is started, asked and ended.

Owns their processes and how each is told to do the same: model, threads, context, cache type, batches. Must not
interpret what comes out. An answer's times are those at which its text reaches this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import family

HERE = Path(__file__).parent
PATIENCE = 60.0  # seconds in which a program has to end


@dataclass(frozen=True, slots=True)
class Setup:
    """What all programs are told alike. `home` is this program's folder; `model` its own copy of the file, so that what
    is mapped of it counts for this program alone. `flash` None, `batch` 0, `draft` "": as the program itself decides.
    """

    model: Path
    home: Path
    type: str = "f16"
    context: int = 4096
    threads: int = 2
    flash: bool | None = None
    batch: int = 0
    draft: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds from the question to the first text and to the last, tokens of the answer and of the prompt, and of these
    how many were computed; None: it does not say. `failed` says why there is no answer."""

    first: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    prompt: int | None = None
    computed: int | None = None
    text: str = ""
    failed: str = ""
    told: dict[str, Any] = field(default_factory=dict)


class Program(ABC):
    """One of them. `chats` are the histories, by name, as this program was told and told them. `gave_up`: it cannot go
    on with its chat."""

    name: str
    keeps = True  # chats come back after a restart

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.chats: dict[str, list[dict[str, str]]] = {}
        self.about: dict[str, Any] = {}  # what it says of itself
        self.gave_up = False
        setup.home.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def start(self) -> float:
        """Seconds until the model is loaded and a question can be asked."""

    @abstractmethod
    def send(self, chat: str, messages: list[dict[str, str]], tokens: int) -> Answer:
        """One answer to the last of the messages."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it in the way in which a person does; nothing where it does not run."""

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """All its processes."""

    def ask(self, chat: str, system: str, text: str, tokens: int) -> Answer:
        """The next turn of a chat, which goes on with the answer."""
        messages = self.chats.get(chat) or [{"role": "system", "content": system}]
        messages = [*messages, {"role": "user", "content": text}]
        answer = self.send(chat, messages, tokens)
        if not answer.failed:
            self.chats[chat] = [*messages, {"role": "assistant", "content": answer.text}]
        return answer

    def keep(self, chat: str) -> float:
        """Puts a chat where it survives a restart, for programs that do not do that themselves; seconds."""
        del chat
        return 0.0

    def bring_back(self, chat: str) -> float:
        """The other way, after a restart; seconds."""
        del chat
        return 0.0


def end(process: subprocess.Popen[Any]) -> None:
    """Waits until it has ended by itself, and not for ever."""
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()


class Worker(Program):
    """A program in a worker process, which talks through `wire`."""

    script: str
    python = sys.executable
    _process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        began = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.python, str(HERE / self.script), json.dumps(self.words())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.about |= self._event("ready")
        return time.perf_counter() - began

    @property
    def _log(self) -> Path:
        return self.setup.home / "worker.log"

    @abstractmethod
    def words(self) -> dict[str, Any]:
        """What the worker is started with."""

    def command(self, **fields: Any) -> None:
        """One line to the worker."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields) + "\n")
        self._process.stdin.flush()

    def _event(self, *wanted: str) -> dict[str, Any]:
        """The next event, which is one of `wanted`."""
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: {self._log.read_text()[-2000:]}")
        event = json.loads(line)
        assert event["event"] in wanted, event
        return dict(event)

    def receive(self, began: float) -> Answer:
        """The answer to what was asked at `began`."""
        first = last = 0.0
        while (event := self._event("text", "done", "failed"))["event"] == "text":
            last = time.perf_counter() - began
            first = first or last
        if event["event"] == "failed":
            return Answer(failed=event["why"])
        told = {key: event[key] for key in event.keys() - {"event", "tokens", "prompt", "computed", "text"}}
        return Answer(first, last, event["tokens"], event["prompt"], event["computed"], event["text"], told=told)

    def send(self, chat: str, messages: list[dict[str, str]], tokens: int) -> Answer:
        began = time.perf_counter()
        self.command(do="ask", chat=chat, messages=messages, tokens=tokens)
        return self.receive(began)

    def stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        end(process)
        process.stdout.close()

    @property
    def pids(self) -> list[int]:
        return family(self._process.pid) if self._process is not None else []


class Kvchat(Worker):
    """This program."""

    name = "kvchat"
    script = "worker_kvchat.py"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.ids: dict[str, str] = {}  # of its chats

    def words(self) -> dict[str, Any]:
        setup = self.setup
        flags: dict[str, Any] = {
            "ctx_size": str(setup.context),
            "threads": str(setup.threads),
            "cache_type_k": setup.type,
            "cache_type_v": setup.type,
        }
        if setup.draft:
            flags["draft"] = setup.draft
        if setup.batch:
            flags |= {"batch_size": str(setup.batch), "ubatch_size": str(setup.batch)}
        if setup.flash is not None:
            flags["flash_attn"] = "on" if setup.flash else "off"
        return {"home": str(setup.home), "model": str(setup.model), "flags": flags}

    def rest(self) -> None:
        """Until it has measured what it measures once on a machine."""
        self.command(do="rest")
        self.about |= self._event("rested")

    def send(self, chat: str, messages: list[dict[str, str]], tokens: int) -> Answer:
        """The program keeps the chat: it is told the new message only."""
        began = time.perf_counter()
        self.command(
            do="ask",
            chat=chat,
            id=self.ids.get(chat),
            system=messages[0]["content"],
            text=messages[-1]["content"],
            tokens=tokens,
        )
        answer = self.receive(began)
        self.ids[chat] = answer.told["id"]
        return answer


class PythonLlama(Worker):
    """llama-cpp-python's `Llama`, with its cache in RAM or on disk."""

    script = "worker_llama.py"

    def __init__(self, setup: Setup, cache: str) -> None:
        super().__init__(setup)
        self._cache = cache
        self.name = {"ram": "LlamaRAMCache", "disk": "LlamaDiskCache", "none": "Llama"}[cache]
        self.keeps = cache == "disk"

    def words(self) -> dict[str, Any]:
        setup = self.setup
        return {
            "home": str(setup.home / "cache"),
            "model": str(setup.model),
            "context": setup.context,
            "threads": setup.threads,
            "type": setup.type,
            "batch": setup.batch,
            "flash": setup.type != "f16" if setup.flash is None else setup.flash,
            "cache": self._cache,
            "draft": setup.draft == "ngram",
        }


class LlmPlugin(Worker):
    """`llm` with its SmolLM2 plugin, in its own environment. It has no settings for model, context or threads."""

    name = "llm"
    script = "worker_llm.py"
    keeps = False  # the words are, their KV is not

    def __init__(self, setup: Setup, python: Path) -> None:
        super().__init__(setup)
        self.python = str(python)

    def words(self) -> dict[str, Any]:
        return {}
