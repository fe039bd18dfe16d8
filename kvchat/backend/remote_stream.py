"""A streamed answer in the making: from the events of a server to text, an ending and what it cost. Owns that reading;
must not know connections or the app.

Servers say reasoning in a part of its own (`reasoning_content` of llama-server, SGLang and DeepSeek, `reasoning` of
vLLM and Ollama). Here it becomes what local models write: a block at the beginning of the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvchat.backend.values import FinishReason, Usage
from kvchat.clean import encodable

OPENING, CLOSING = "<think>\n", "\n</think>\n\n"
_REASONING = ("reasoning_content", "reasoning")
_LARGEST_COUNT = 1 << 40
_LONGEST = 16 << 20  # characters of a reply; more than any context holds


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a prompt of `total` tokens the server had `cached`, and has read `done`, those among them; in `seconds`."""

    total: int
    cached: int
    done: int
    seconds: float


class Answer:
    """`clock` is one that only goes forward, in seconds. `strange` is told what of an answer has another form, and must
    raise. `continued`: it goes on with a reply that has text."""

    def __init__(self, clock: Callable[[], float], strange: Callable[[str], object], *, continued: bool) -> None:
        self._clock = clock
        self._strange = strange
        self._began = clock()
        self._thinking: float | None = None  # since when, while it does
        self._reasoning_seconds = 0.0
        self._first: float | None = None
        self._last = 0.0
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._pieces: list[str] = []
        self._length = 0
        self._begun = continued
        self._half = ""  # the first of two UTF-16 halves of a character
        self.finish: str | None = None
        self.progress: Progress | None = None

    def take(self, event: Mapping[str, Any]) -> str:
        """The text that an event adds to the reply."""
        self._usage = _part(event, "usage") or self._usage
        self._timings = _part(event, "timings") or self._timings
        self.progress = _progress(event.get("prompt_progress")) or self.progress
        choices = event.get("choices")
        if not isinstance(choices, list):
            if not self._usage and self.progress is None:
                self._strange("something else than a chat completion")
            return ""
        new = self._whole("".join(self._choice(choice) for choice in choices[:1]))
        if new:
            self._last = self._clock()
            self._first = self._last if self._first is None else self._first
            self._pieces.append(new)
            self._begun = True
            self._length += len(new)
            if self._length > _LONGEST:
                self._strange("without an end")
        return new

    def end(self) -> str:
        """The text that ends the reply."""
        new = encodable(self._half) + (self._end_of_thought() if self._thinking is not None else "")
        self._pieces.append(new)
        return new

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self._pieces)

    def _whole(self, text: str) -> str:
        """JSON can have a character as two halves, which may come one by one. A half alone has no UTF-8 form."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return encodable(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))

    def _choice(self, choice: object) -> str:
        if not isinstance(choice, dict) or not isinstance(delta := choice.get("delta", {}), dict):
            self._strange("a chat completion of another form")
            return ""
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish = reason
        thought = next((delta[name] for name in _REASONING if delta.get(name)), "")
        content = delta.get("content") or ""
        if not isinstance(thought, str) or not isinstance(content, str):
            self._strange("a reply that is no text")
            return ""
        return self._thought(thought) + self._content(content)

    def _thought(self, text: str) -> str:
        if not text or self._thinking is not None:
            return text
        if self._begun:  # it thinks once more, after a part of its answer: only what a reply begins with is kept
            return ""
        self._thinking = self._clock()
        return OPENING + text

    def _content(self, text: str) -> str:
        return self._end_of_thought() + text if text and self._thinking is not None else text

    def _end_of_thought(self) -> str:
        assert self._thinking is not None
        self._reasoning_seconds += self._clock() - self._thinking
        self._thinking = None
        return CLOSING

    @property
    def reason(self) -> FinishReason | None:
        """How it ended; None: it did not come to its end."""
        if self.finish is None:
            return None
        return "length" if self.finish == "length" else "error" if self.finish == "content_filter" else "stop"

    def usage(self, host: str, cut: str | None) -> Usage:
        """What it cost, as far as the server says so; times as they were here."""
        prompt, cached, written = self._counts()
        known = cached is not None and prompt > 0
        reused = cached or 0
        first = self._first
        return Usage(
            prompt_tokens=prompt,
            reused=reused if known else 0,
            computed=prompt - reused if known else 0,
            cut=cut,
            prefill_seconds=_number(self._timings.get("prompt_ms")) / 1000,
            decode_tokens=written,
            decode_seconds=_decode_seconds(written, self._last - first) if first is not None else 0.0,
            ttft_seconds=first - self._began if first is not None else 0.0,
            cells=prompt + written,
            reasoning_tokens=_count(_part(self._usage, "completion_tokens_details").get("reasoning_tokens")) or 0,
            reasoning_seconds=self._reasoning_seconds,
            remote=host,
        )

    def _counts(self) -> tuple[int, int | None, int]:
        """Tokens of the prompt, those of it that the server had (None: it does not say), tokens of the reply."""
        usage, timings = self._usage, self._timings
        kept, read = _count(timings.get("cache_n")), _count(timings.get("prompt_n"))
        prompt = _count(usage.get("prompt_tokens"))
        if prompt is None:
            prompt = (kept or 0) + (read or 0)
        cached = _count(_part(usage, "prompt_tokens_details").get("cached_tokens"))
        cached = kept if cached is None else cached
        written = _count(usage.get("completion_tokens"))
        written = _count(timings.get("predicted_n")) if written is None else written
        return prompt, None if cached is None else min(cached, prompt), written or 0


def _decode_seconds(tokens: int, seconds: float) -> float:
    """The time of all tokens, of which the first one came when the clock began to run."""
    return seconds * tokens / (tokens - 1) if tokens > 1 else 0.0


def _progress(found: object) -> Progress | None:
    """That of llama-server."""
    if not isinstance(found, dict):
        return None
    counts = [_count(found.get(name)) for name in ("total", "cache", "processed")]
    total, cached, done = (count or 0 for count in counts)
    cached = min(cached, total)
    return Progress(total, cached, max(cached, min(done, total)), _number(found.get("time_ms")) / 1000)


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _count(value: object) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_COUNT
    return value if good and isinstance(value, int) else None


def _number(value: object) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST_COUNT
    return float(value) if good and isinstance(value, int | float) else 0.0
