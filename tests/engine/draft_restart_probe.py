"""Two turns of one chat in two sessions, with time between them: `draft_restart_probe.py MODEL DRAFT FOLDER`.

Prints JSON, one object for each turn: tokens of the chat that the draft model `held` when drafting began, `new` ones of
the question and what stands around it, those `said` in the answer, and those `read` by the draft model in the turn and
after it; what was drafted and stood is read, too.
"""

import json
import sys
from dataclasses import replace

from kvchat.backend.protocol import Generate, PromptReady, TextDelta
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.draft_model import DraftModel
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session

QUESTIONS = ("Name three colours. " * 12, "And three animals, please.")
SAID = 12


class Watched(DraftModel):
    """Remembers what it held at the beginning."""

    def begin(self, ids):
        super().begin(ids)
        self.held = len(self.seat.cells)


def turn(config: EngineConfig, messages: list[PromptMessage], question: str) -> dict[str, int]:
    events: list[object] = []
    session = Session(config, Interrupt(), lambda fraction: True, events.append)
    draft = session._companion.model
    draft.__class__ = Watched
    messages.append(PromptMessage("user", question))
    scheduler = Scheduler(session, Interrupt(), events.append)
    scheduler.add(Generate("t", tuple(messages), Sampling(temperature=0, max_tokens=SAID), draft="model"))
    scheduler.run_out()
    while session.aside is not None:
        session.advance_aside()
    segments = next(event.segments for event in events if isinstance(event, PromptReady))
    said = tuple(token for event in events if isinstance(event, TextDelta) for token in event.ids)
    messages[:] = [replace(message, ids=ids) for message, ids in zip(messages, segments, strict=True)]
    messages.append(PromptMessage("assistant", "", said))
    read = len(draft.seat.cells) - draft.held
    session.close()
    return {"held": draft.held, "new": len(segments[-1]), "said": len(said), "read": read}


def main() -> None:
    llama.start(lambda text, error: None)
    config = EngineConfig(
        sys.argv[1], context=1024, threads=1, extra_buffers=False, kv_folder=sys.argv[3], draft_path=sys.argv[2]
    )
    messages: list[PromptMessage] = []
    print(json.dumps([turn(config, messages, question) for question in QUESTIONS]))


main()
