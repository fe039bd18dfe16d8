"""What the person is told about the engine, each thing once. Owns what was told; must not know widgets."""

from __future__ import annotations

from collections.abc import Iterable

from kvchat.backend.fidelity import Guarded
from kvchat.backend.protocol import EngineDied, Event, Ready, TurnFinished
from kvchat.backend.values import Failure, Usage
from kvchat.conversation.overflow_words import cannot_evict
from kvchat.ui.entry import NoteKind
from kvchat.ui.wording import capital, note_on, too_long

Note = tuple[str, NoteKind]


class Notes:
    """Events in, sentences out. What does not work on this machine is told when it is found out, not at every start."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._trained = 0  # the context that the model was trained for, in tokens
        self._lets_go = False  # tokens can leave its context

    def know(self, sentences: Iterable[str]) -> None:
        """These were told at earlier starts."""
        self._told.update(_subject(sentence) for sentence in sentences)

    def on(self, event: Event, turn: str | None) -> list[Note]:
        """What to say about an event; `turn` is the one that was going on when it came."""
        match event:
            case Ready(notes=notes, model=model):
                self._trained, self._lets_go = model.context_trained, not cannot_evict(event)
                return [(note, "info") for note in self._new(notes)]
            case TurnFinished(turn=finished, failure=Failure() as failure, usage=usage) if usage.excess:
                said = too_long(failure, usage, self._trained, lets_go=self._lets_go)
                return [(said, "error")] if finished == turn else []
            case Guarded() | TurnFinished(usage=Usage(cut="check")):
                return _guarded(event, turn)
            case EngineDied(cause=cause, restarting=True, note=note) if given_up := self._new(note.split("; ")):
                without = " and ".join(map(_subject, given_up))
                return [(f"{capital(cause)} while it started. It goes on without {without}; nothing is lost.", "info")]
            case _:
                found = note_on(event, turn)
                return [found] if found else []

    def _new(self, sentences: Iterable[str]) -> list[str]:
        new = [sentence for sentence in sentences if sentence and _subject(sentence) not in self._told]
        self.know(new)
        return new


def _guarded(event: Guarded | TurnFinished, turn: str | None) -> list[Note]:
    """Cache types that cost more than they should, and saved KV that is wrong."""
    from kvchat.backend.guarding import REFUTED, warning  # the first frame does without

    if isinstance(event, TurnFinished):
        found = note_on(event, turn)
        return [note for note in (found, (REFUTED, "warning")) if note] if event.turn == turn else []
    said = warning(event.verdict)
    return [(said, "warning")] if said else []


def _subject(sentence: str) -> str:
    """What was given up, of a sentence that says so and why; else the whole sentence."""
    return sentence.partition(": off")[0]
