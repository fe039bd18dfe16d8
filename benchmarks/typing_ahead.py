"""How long the first token of an answer takes after Enter, with and without reading ahead of it while the person types.

    python benchmarks/typing_ahead.py [MODEL.gguf] [--type f16|q8_0|q4_0] [--chats N] [--follow N] [--seed N]

Each chat begins with a pasted text of about 2,000 tokens and a typed question about it; typed questions follow. Keys
come at 40 words a minute (a word is five letters), with uneven rests, letters that are taken back at once, words that
are taken back later, and endings that are put otherwise. The same keys are replayed twice: drafts are read ahead by the
rules of the app, or only what was sent is read.

The clock is simulated, so that nobody has to wait for a typist: between two keys it is set to the next one, and
computing moves it on by the processor time that it took, in one thread. What is computed when a key comes is not done
earlier than that, and Enter breaks it off, as in the app. So the figures are those of one core with nothing else to do.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from kvchat.backend.protocol import Event, Generate, PromptReady, ReadAhead, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling, Usage
from kvchat.engine import llama
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.library.find import BUILT_IN, find_models
from kvchat.machine import processor
from kvchat.paths import Paths
from kvchat.ui.typing_ahead import LONG_REST, REST

KEY = 60 / (40 * 5)  # seconds
ANSWER = Sampling(temperature=0, max_tokens=16)
TEXT = """the cache keeps keys and values of every token so that nothing is computed again but what is new and a window
looks back only so far while attention reads all rows that are there which model would you take for this and why does
it need so much memory when context grows what happens if two chats share their beginning could we keep less of it how
long does it take to read a page from disk is that faster than computing it show me an example with numbers please"""
WORDS = TEXT.split()


@dataclass(frozen=True)
class Draft:
    """What stands in the prompt from `at` on, in seconds since typing began; `pasted`: a paste brought it."""

    at: float
    text: str
    pasted: bool = False


# ---------------------------------------------------------------------- the typist


@dataclass
class Typist:
    """Types messages, always the same for a seed."""

    source: random.Random
    drafts: list[Draft] = field(default_factory=list)
    now: float = 0.0
    text: str = ""

    def question(self, words: int, pasted: str = "") -> list[Draft]:
        """All drafts of one message; the last one is sent."""
        self.drafts, self.now, self.text = [], 0.0, ""
        if pasted:
            self._write(pasted, pasted=True)
            self._rest(1.0, 3.0)
        for number in range(words):
            self._word(self.source.choice(WORDS) + (" " if number < words - 1 else "?"))
            if self.source.random() < 0.05:  # noticed later
                self._take_back(self.source.randint(1, 2))
            if self.source.random() < 0.1:
                self._rest(1.0, 4.0)  # thinking
        if self.source.random() < 0.2:  # put otherwise
            self._rest(0.8, 2.0)
            self._take_back(self.source.randint(2, 4))
            for _ in range(3):
                self._word(self.source.choice(WORDS) + " ")
        self._rest(0.3, 1.5)
        self.drafts.append(Draft(self.now, self.text))
        return self.drafts

    def _word(self, word: str) -> None:
        if self.source.random() < 0.12:  # noticed at once
            for letter in (*word[:2], "x"):
                self._key(self.text + letter)
            while not word.startswith(self._last_word()):
                self._key(self.text[:-1])
            word = word.removeprefix(self._last_word())
        for letter in word:
            self._key(self.text + letter)

    def _last_word(self) -> str:
        return self.text.rpartition("\n")[2].rpartition(" ")[2]

    def _take_back(self, words: int) -> None:
        for _ in range(words):
            kept = self.text.rstrip(" ?").rpartition(" ")
            while len(self.text) > len(kept[0]) + len(kept[1]):
                self._key(self.text[:-1], KEY / 3)

    def _key(self, text: str, seconds: float = KEY) -> None:
        self.now += seconds * self.source.lognormvariate(-0.125, 0.5)
        self._write(text)

    def _write(self, text: str, *, pasted: bool = False) -> None:
        self.text = text
        self.drafts.append(Draft(self.now, text, pasted))

    def _rest(self, least: float, most: float) -> None:
        self.now += self.source.uniform(least, most)


def text_of(source: random.Random, tokens: int) -> str:
    """A text of about so many tokens."""
    sentences = (" ".join(source.choices(WORDS, k=12)).capitalize() + "." for _ in range(tokens // 13))
    return " ".join(sentences) + "\n\n"


def questions_to_read(drafts: Sequence[Draft]) -> Iterator[tuple[float, str, bool]]:
    """When the app would ask for what, by its rules: time, draft, whether it has rested."""
    for draft, following in pairwise(drafts):
        rest = following.at - draft.at
        if draft.pasted:
            yield draft.at, draft.text, False
        if rest >= REST:
            yield draft.at + REST, draft.text, False
        if rest >= LONG_REST:
            yield draft.at + LONG_REST, draft.text, True


# ---------------------------------------------------------------------- the engine


class Deadline(Interrupt):
    """Breaks a computation off when the simulated clock would come to Enter."""

    at: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self.stop = self

    def __call__(self) -> bool:
        return self.at is not None and time.process_time() >= self.at


class Chat:
    """A conversation with an engine in this process."""

    def __init__(self, config: EngineConfig) -> None:
        self._events: list[tuple[float, Event]] = []
        self._deadline = Deadline()
        self._session = Session(config, self._deadline, lambda _: True, self._emit)
        self._scheduler = Scheduler(self._session, self._deadline, self._emit)
        self._count = 0
        self.messages: list[PromptMessage] = []

    def close(self) -> None:
        self._session.close()

    def _emit(self, event: Event) -> None:
        self._events.append((time.process_time(), event))

    def types(self, drafts: Sequence[Draft]) -> None:
        """Read ahead what is typed until it is sent. A computation that goes on when the next question comes ends
        before that is looked at."""
        sent, now = drafts[-1].at, 0.0
        asked = [*questions_to_read(drafts), (sent, "", True)]
        for (at, text, rested), (until, _, _) in pairwise(asked):
            now = max(now, at)
            if now >= sent:
                return
            now += self._timed(partial(self._ask_to_read, text, rested=rested))
            while now < min(until, sent) and self._session.aside is not None:
                self._deadline.at = time.process_time() + sent - now
                now += self._timed(self._session.advance_aside)
                self._deadline.at = None

    @staticmethod
    def _timed(action: Callable[[], None]) -> float:
        began = time.process_time()
        action()
        return time.process_time() - began

    def _ask_to_read(self, text: str, *, rested: bool) -> None:
        messages = (*self.messages, PromptMessage("user", text))
        self._session.read_ahead(ReadAhead("draft", messages, done=rested))

    def sends(self, text: str) -> tuple[float, Usage]:
        """Seconds to the first text of the answer, and what the turn cost."""
        self._count += 1
        self.messages.append(PromptMessage("user", text))
        self._events.clear()
        began = time.process_time()
        self._scheduler.add(Generate(f"turn {self._count}", tuple(self.messages), ANSWER, draft="off"))
        self._scheduler.run_out()
        first = next((at for at, event in self._events if isinstance(event, TextDelta)), time.process_time())
        told = [event for _, event in self._events]
        segments = next(event.segments for event in told if isinstance(event, PromptReady))
        self.messages = [replace(m, ids=ids) for m, ids in zip(self.messages, segments, strict=True)]
        deltas = [event for event in told if isinstance(event, TextDelta)]
        ids = tuple(token for event in deltas for token in event.ids)
        self.messages.append(PromptMessage("assistant", "".join(event.text for event in deltas), ids))
        return first - began, next(event.usage for event in told if isinstance(event, TurnFinished))


@dataclass
class Result:
    """Of one kind of message: seconds to the first token, and tokens that were read ahead."""

    seconds: list[float] = field(default_factory=list)
    used: int = 0
    wasted: int = 0

    @property
    def in_vain(self) -> str:
        read = self.used + self.wasted
        return f"{self.wasted:,} of {read:,} ({self.wasted / max(1, read):.1%})"


def replay(config: EngineConfig, given: argparse.Namespace, *, reads: bool) -> dict[str, Result]:
    """All chats, with or without reading ahead, by the kind of message."""
    results: dict[str, Result] = {}
    for number in range(given.chats):
        source = random.Random(given.seed + number)  # noqa: S311 (typing errors are no secret)
        typist, chat = Typist(source), Chat(config)
        for turn in range(1 + given.follow):
            pasted = "" if turn else text_of(source, given.tokens)
            drafts = typist.question(source.randint(6, 22), pasted)
            if reads:
                chat.types(drafts)
            seconds, usage = chat.sends(drafts[-1].text)
            result = results.setdefault("typed" if turn else "pasted", Result())
            result.seconds.append(seconds)
            result.used += usage.ahead
            result.wasted += usage.ahead_wasted
        chat.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--type", choices=("f16", "q8_0", "q4_0"), default="f16")
    parser.add_argument("--tokens", type=int, default=2000, help="of the pasted text")
    parser.add_argument("--chats", type=int, default=2)
    parser.add_argument("--follow", type=int, default=12, help="typed questions after the first one of a chat")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    llama.start(lambda *_, **__: None)
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or next(
            m.path for m in find_models(Paths.find({"KVCHAT_HOME": folder})) if m.source == BUILT_IN
        )
        config = EngineConfig(
            str(model), context=4096, type_k=given.type, type_v=given.type, threads=1, extra_buffers=False
        )
        ahead, plain = (replay(config, given, reads=reads) for reads in (True, False))
    print(f"{model.name}, {given.type}, {processor()}, one thread, Python {platform.python_version()}")
    print(f"{'message':>8} {'turns':>6} {'without: median, 95 %':>23} {'ahead: median, 95 %':>21} {'read in vain':>24}")
    for kind, before in plain.items():
        after = ahead[kind]
        row = (statistics.median(before.seconds), _high(before.seconds))
        then = (statistics.median(after.seconds), _high(after.seconds))
        figures = f"{row[0]:>12.3f} s {row[1]:>6.3f} s {then[0]:>11.3f} s {then[1]:>6.3f} s"
        print(f"{kind:>8} {len(before.seconds):>6} {figures:>45} {after.in_vain:>24}")


def _high(values: Sequence[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


if __name__ == "__main__":
    main()
