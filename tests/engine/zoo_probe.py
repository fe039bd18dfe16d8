"""Chats with models in one process, with a new session for each turn: `zoo_probe.py FOLDER TURNS MODEL...`.

A session is all that an engine process has: closing it frees the model and the context, and the next one has nothing
but the page store. Prints JSON: model name -> scene -> list of turns (see `_told`).

stay      TURNS turns without a stop
reopen    the same turns, each in a session of its own
again     the last answer once more, in the session that gave it
again2    and in a new session
instead   the same turns without a stop, but for another last message
edit      the last message of them replaced by that one, in the session that answered it
edit2     and in a new session
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from kvchat.backend.protocol import Generate, PromptReady, TextDelta, TurnFinished
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session

STORY = "Once there was a cell that remembered every key it was given, and it was asked for them again. "
TASK = "Write it down again, word for word."  # what even a model without training for chats answers
QUESTION = STORY * 2 + TASK
OTHER = STORY + TASK
FEW = Sampling(temperature=0, max_tokens=16)


class Chat:
    """One conversation, and the session that is open."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._config = EngineConfig(str(model), context=2048, threads=1, extra_buffers=False, kv_folder=str(folder))
        self.messages: list[PromptMessage] = []
        self._session: Session | None = None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def ask(self, text: str | None) -> dict[str, object]:
        """Ask, or, without a text, have the last message answered once more."""
        self._events: list[object] = []
        if self._session is None:
            self._session = Session(self._config, Interrupt(), lambda fraction: True, lambda event: None)
        if text is not None:
            self.messages.append(PromptMessage("user", text))
        session = self._session
        session._emit = self._events.append
        scheduler = Scheduler(session, Interrupt(), self._events.append)
        scheduler.add(Generate("t", tuple(self.messages), FEW, draft="off"))
        scheduler.run_out()
        segments = next(event.segments for event in self._events if isinstance(event, PromptReady))
        finished = next(event for event in self._events if isinstance(event, TurnFinished))
        assert finished.failure is None, finished
        deltas = [event for event in self._events if isinstance(event, TextDelta)]
        ids = tuple(token for delta in deltas for token in delta.ids)
        known = [replace(message, ids=part) for message, part in zip(self.messages, segments, strict=True)]
        self.messages = [*known, PromptMessage("assistant", "".join(delta.text for delta in deltas), ids)]
        return _told(finished, segments, ids)


def _told(finished: TurnFinished, segments: tuple[tuple[int, ...], ...], ids: tuple[int, ...]) -> dict[str, object]:
    """The reply's ids, the usage, the number of ids that the prompt had not had before, and that of the tokens that
    were chosen and not computed: the last one, where an answer was cut off."""
    return {"ids": ids, "new": len(segments[-1]), "left": finished.reason == "length", **asdict(finished.usage)}


def scenes(model: Path, folder: Path, turns: int) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    stay = Chat(model, folder / "stay")
    found["stay"] = [stay.ask(QUESTION) for _ in range(turns)]
    before = stay.messages[:-2]
    stay.messages.pop()
    found["again"] = [stay.ask(None)]
    stay.messages = [*before]
    found["edit"] = [stay.ask(OTHER)]
    stay.close()
    reopened = Chat(model, folder / "reopen")
    found["reopen"] = []
    for _ in range(turns):
        found["reopen"].append(reopened.ask(QUESTION))
        reopened.close()
    before = reopened.messages[:-2]
    reopened.messages.pop()
    found["again2"] = [reopened.ask(None)]
    reopened.close()
    reopened.messages = [*before]
    found["edit2"] = [reopened.ask(OTHER)]
    reopened.close()
    instead = Chat(model, folder / "instead")
    found["instead"] = [instead.ask(question) for question in [*[QUESTION] * (turns - 1), OTHER]]
    instead.close()
    return found


def main() -> None:
    llama.start(lambda text, error: None)
    folder, turns, models = Path(sys.argv[1]), int(sys.argv[2]), [Path(name) for name in sys.argv[3:]]
    print(json.dumps({model.stem: scenes(model, folder / model.stem, turns) for model in models}))


main()
