"""One turn on a server: its request, and the events of its answer as the app knows them. Owns how often text goes out;
must not know threads, or which turns there are. Its one TurnFinished is made here, for whoever ran it to post.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kvchat.backend.protocol import Event, Generate, PromptProgress, Restored, TextDelta, TurnFinished
from kvchat.backend.remote_request import Sent, body, said
from kvchat.backend.remote_stream import Answer, Progress
from kvchat.backend.remote_wire import KEPT, Refused, Wire
from kvchat.backend.values import Failure, FinishReason
from kvchat.errors import KvchatError

SHORTEST_PAUSE = 1 / 30  # seconds between two pieces of text
_UNKNOWN_OPTION = "stream_options"  # that not every server knows


class RemoteTurn:
    """`sent` is what the server has read so far, by all turns."""

    def __init__(self, request: Generate, wire: Wire, model: str, program: str, sent: Sent, host: str) -> None:
        self.request = request
        self._wire = wire
        self._model = model
        self._program = program
        self._sent = sent
        self._host = host
        self._messages = said(request.messages)
        self._cut = sent.cut(self._messages)
        self._answer = Answer(time.monotonic, wire.strange, continued=request.continue_reply)
        self._waiting: list[str] = []
        self._told = 0.0

    async def run(self, post: Callable[[Event], None]) -> None:
        """Have it answered. KvchatError when there is no whole answer; what had come of it was posted."""
        flushing = asyncio.create_task(self._flush_often(post))
        try:
            await self._ask(post)
        finally:
            flushing.cancel()
            self._waiting.append(self._answer.end())
            self._flush(post)
            self._remember()

    async def _ask(self, post: Callable[[Event], None]) -> None:
        try:
            await self._stream(post, usage=True)
        except Refused as refused:
            if refused.status not in (400, 422) or _UNKNOWN_OPTION not in refused.said:
                raise
            await self._stream(post, usage=False)

    async def _stream(self, post: Callable[[Event], None], *, usage: bool) -> None:
        content = body(self.request, self._model, self._program, usage=usage)
        answer, told = self._answer, None
        async with self._wire.stream(content) as events:
            async for event in events:
                self._waiting.append(answer.take(event))
                if answer.progress is not None and answer.progress != told:
                    self._tell(answer.progress, post, first=told is None)
                    told = answer.progress
        if answer.reason is None:
            raise KvchatError(f"{self._host} ended its answer before its end", KEPT)
        if answer.reason == "error":
            raise KvchatError(f"{self._host} withheld the rest of its answer ({answer.finish})", KEPT)

    def _tell(self, progress: Progress, post: Callable[[Event], None], *, first: bool) -> None:
        turn, computed = self.request.turn, progress.total - progress.cached
        if first:
            post(Restored(turn, progress.cached, 0, 0, 0, computed, 0.0, self._cut))
        done = progress.done - progress.cached
        post(PromptProgress(turn, done, computed, done / progress.seconds if progress.seconds > 0 else 0.0))

    async def _flush_often(self, post: Callable[[Event], None]) -> None:
        while True:
            await asyncio.sleep(SHORTEST_PAUSE)
            self._flush(post)

    def _flush(self, post: Callable[[Event], None]) -> None:
        text = "".join(self._waiting)
        self._waiting.clear()
        if text:
            post(TextDelta(self.request.turn, text, ()))

    def _remember(self) -> None:
        """What the server has read; of an answer that was cut off, no more than came here."""
        before = self.request.messages[-1].text if self.request.continue_reply else ""
        if self._answer.text:
            self._sent.remember(self._messages, before + self._answer.text)

    def finished(self, error: BaseException | None) -> TurnFinished:
        """How it ended; `error` is what `run` raised, None for a whole answer."""
        usage = self._answer.usage(self._host, self._cut)
        turn = self.request.turn
        reason: FinishReason = self._answer.reason or "stop"
        if error is None:
            return TurnFinished(turn, reason, usage)
        if isinstance(error, asyncio.CancelledError):
            return TurnFinished(turn, "cancelled", usage)
        if isinstance(error, KvchatError):
            return TurnFinished(turn, "error", usage, Failure(error.message, error.hint))
        return TurnFinished(turn, "error", usage, Failure(f"the answer could not be read: {type(error).__name__}"))
