"""What the person is told about the engine, each thing once. Owns what was told; must not know widgets."""

from __future__ import annotations

from collections.abc import Iterable

from kvchat.backend.protocol import EngineDied, Event, Ready
from kvchat.ui.entry import NoteKind
from kvchat.ui.wording import capital, note_on

Note = tuple[str, NoteKind]


class Notes:
    """Events in, sentences out. What does not work on this machine is told when it is found out, not at every start."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def know(self, sentences: Iterable[str]) -> None:
        """These were told at earlier starts."""
        self._told.update(_subject(sentence) for sentence in sentences)

    def on(self, event: Event, turn: str | None) -> list[Note]:
        """What to say about an event; `turn` is the one that was going on when it came."""
        match event:
            case Ready(notes=notes):
                return [(note, "info") for note in self._new(notes)]
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


def _subject(sentence: str) -> str:
    """What was given up, of a sentence that says so and why; else the whole sentence."""
    return sentence.partition(": off")[0]
