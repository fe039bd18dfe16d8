"""A backend without a model: records what it is asked, and makes the events that a real engine would send.

Token ids are made up so that a test can compute them: a message's own ids are the bytes of its text plus 1000, those of
a user message are preceded by USER_TURN and followed by REPLY_TURN. The system prompt adds its bytes to the first one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kvchat.backend.fidelity import Measure
from kvchat.backend.protocol import (
    Event,
    Forecast,
    Forget,
    Forgotten,
    Generate,
    Pin,
    Preview,
    PromptProgress,
    PromptReady,
    ReadAhead,
    Ready,
    Restored,
    Summarize,
    TextDelta,
    Title,
    TurnFinished,
    Warm,
)
from kvchat.backend.values import CacheInfo, Failure, FinishReason, ModelInfo, Usage
from kvchat.errors import KvchatError

USER_TURN = 1
REPLY_TURN = 2


def make_ready(text_key: str = "fakevocab", name: str = "fake-1b", context: int = 4096) -> Ready:
    """What an engine says when a model called `name`, with the vocabulary and template `text_key`, is loaded."""
    model = ModelInfo(
        name=name,
        path=f"{name}.gguf",
        architecture="llama",
        attention="GQA",
        fingerprint="0" * 32,
        text_key=text_key,
        template="GGUF",
        context_trained=context,
        kv_bytes_per_token=23040,
    )
    cache = CacheInfo("f16", "f16", context, False, 1, 0, True, True, "f" * 16)
    return Ready(model, cache, 0.1)


def text_ids(text: str) -> tuple[int, ...]:
    """The made-up ids of a text."""
    return tuple(1000 + byte for byte in text.encode())


def segments(request: Generate) -> tuple[tuple[int, ...], ...]:
    """What PromptReady tells of the messages: ids that were sent along stay what they are."""
    system = next((message.text for message in request.messages if message.role == "system"), "")
    found: list[tuple[int, ...]] = []
    for message in request.messages:
        if message.ids is not None:
            found.append(message.ids)
        elif message.role == "user":
            found.append((*text_ids(system), USER_TURN, *text_ids(message.text), REPLY_TURN))
        else:
            found.append(text_ids(message.text))
        if message.role != "system":
            system = ""
    return tuple(found)


def prompt_events(request: Generate) -> list[Event]:
    """The events of a turn before its first text: nothing is reused, all is computed in two steps."""
    ids = segments(request)
    tokens = sum(map(len, ids))
    return [
        PromptReady(request.turn, ids, tokens),
        Restored(request.turn, 0, 0, 0, 0, tokens, 0.0, request.past_cut),
        PromptProgress(request.turn, tokens // 2, tokens, 100.0),
        PromptProgress(request.turn, tokens, tokens, 100.0),
    ]


def delta(request: Generate, text: str) -> TextDelta:
    """A piece of the reply."""
    return TextDelta(request.turn, text, text_ids(text))


def finished(request: Generate, reason: FinishReason = "stop", failure: Failure | None = None) -> TurnFinished:
    """The end of a turn."""
    tokens = sum(map(len, segments(request)))
    usage = Usage(prompt_tokens=tokens, computed=tokens, cut=request.past_cut, prefill_seconds=0.5, ttft_seconds=0.6)
    return TurnFinished(request.turn, reason, usage, failure)


def turn_events(
    request: Generate, pieces: Sequence[str] = ("Hello", " there."), reason: FinishReason = "stop"
) -> list[Event]:
    """All events of a turn whose reply comes in these pieces."""
    return [*prompt_events(request), *(delta(request, piece) for piece in pieces), finished(request, reason)]


class FakeBackend:
    """`requests`, `cancelled`, `warms`, `forecasts`, `previews`, `titles`, `summaries`, `pins`, `measures` record what
    was asked, in order.

    With `script` and `post`, a submit posts the events that `script(request)` returns, on the thread that submits, as
    an engine's client may; without them the test posts what it likes. `refuse`, when set, is raised by `submit`.
    """

    def __init__(
        self,
        ready: Ready | None = None,
        post: Callable[[Event], None] | None = None,
        script: Callable[[Generate], Sequence[Event]] | None = None,
    ) -> None:
        self.ready = ready
        self.post = post
        self.script = script
        self.refuse: KvchatError | None = None
        self.requests: list[Generate] = []
        self.cancelled: list[str] = []
        self.warms: list[Warm] = []
        self.forecasts: list[Forecast] = []
        self.read_aheads: list[ReadAhead] = []
        self.forgotten: list[Forget] = []
        self.previews: list[Preview] = []
        self.titles: list[Title] = []
        self.summaries: list[Summarize] = []
        self.pins: list[Pin] = []
        self.measures: list[Measure] = []
        self._arrived = threading.Condition()

    def submit(self, request: Generate) -> None:
        """Record it, and play the script."""
        if self.refuse is not None:
            raise self.refuse
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        if self.script is not None and self.post is not None:
            for event in self.script(request):
                self.post(event)

    def cancel(self, turn: str) -> None:
        """Record it."""
        self.cancelled.append(turn)

    def warm(self, command: Warm) -> None:
        """Record it."""
        self.warms.append(command)

    def forecast(self, command: Forecast) -> None:
        """Record it."""
        self.forecasts.append(command)

    def read_ahead(self, command: ReadAhead) -> None:
        """Record it."""
        self.read_aheads.append(command)

    def forget(self, command: Forget) -> None:
        """Record it, and answer."""
        self.forgotten.append(command)
        if self.post is not None:
            self.post(Forgotten(command.turn))

    def preview(self, command: Preview) -> None:
        """Record it."""
        self.previews.append(command)

    def title(self, command: Title) -> None:
        """Record it."""
        self.titles.append(command)

    def summarize(self, command: Summarize) -> None:
        """Record it."""
        self.summaries.append(command)

    def pin(self, command: Pin) -> None:
        """Record it."""
        self.pins.append(command)

    def measure(self, command: Measure) -> None:
        """Record it."""
        self.measures.append(command)

    def wait(self, count: int = 1, seconds: float = 30.0) -> Generate:
        """Wait until `count` requests have come; the last of them."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= count, seconds), "no request came"
            return self.requests[count - 1]
