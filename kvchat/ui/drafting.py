"""What drafts in the open chat, as a command: `/draft`. Owns which draft models were proposed for the model that runs,
and what was told about drafting. Must not wait for files or for the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kvchat.backend.protocol import Event, Ready, TurnFinished
from kvchat.backend.values import DRAFT_MODES, DraftMode, Usage
from kvchat.config_options import NO_DRAFT_MODEL
from kvchat.conversation import read_usage
from kvchat.conversation.draft_words import MODES, draft_words
from kvchat.errors import KvchatError
from kvchat.library.find import ModelFile
from kvchat.ui.meters import size_text
from kvchat.ui.progress import last_usage
from kvchat.ui.room import Room
from kvchat.ui.wording import capital, duration

NO_DRAFT = "There is no draft model. /draft NAME takes one."


class Drafting:
    """`models` are those that were found; `change` goes over to another draft model (None: none)."""

    def __init__(
        self, room: Room, models: Callable[[], Sequence[ModelFile]], change: Callable[[str | None], object]
    ) -> None:
        self._room = room
        self._models = models
        self._change = change
        # for which model, of which found, there are or soon will be proposals
        self._asked: tuple[str, Sequence[ModelFile]] = ("", ())
        self._proposed: tuple[tuple[str, str], ...] = ()
        self._wanted = ""  # the path of the draft model that was asked for by name, until it is there
        self._told: set[str] = set()

    # ------------------------------------------------------------------ the command

    def command(self, text: str) -> None:
        """`/draft [off|ngram|model|auto|none|NAME]`."""
        word = text.lower()
        if not text:
            self._room.transcript.note("\n".join(self._state()))
        elif word in DRAFT_MODES:
            self._mode(word)
        elif word == NO_DRAFT_MODEL:
            self._change(None)
        else:
            self._model(text)

    def _mode(self, mode: DraftMode) -> None:
        conversation, room = self._room.conversation, self._room
        if mode == "model" and room.desk.engine.config.draft_path is None:
            room.toast(NO_DRAFT)
            return
        said = f"draft {mode} ({MODES[mode]}), from this chat's next answer on."
        room.try_to(lambda: conversation.set_draft(mode), lambda _: room.toast(said), "not set")

    def _model(self, name: str) -> None:
        path = self._room.desk.engine.config.model_path
        room, models = self._room, self._models()
        if not path:
            room.toast("A draft model needs a model to draft for. /model chooses one.")
            return

        def find() -> ModelFile:
            from kvchat.ui.draft_choices import chosen_draft

            return chosen_draft(Path(path), name, models)

        def found(model: ModelFile) -> None:
            self._wanted = wanted = str(model.path)
            if (ready := room.desk.engine.ready) is not None:
                self._came(ready)
            self._change(wanted)

        room.aside(find, found, room.refuse)

    def _state(self) -> list[str]:
        room = self._room
        conversation, ready = room.conversation, room.desk.engine.ready
        lines = [f"draft {conversation.draft}: {MODES[conversation.draft]}"]
        if ready is not None and ready.draft is not None:
            draft = ready.draft
            sizes = f"weights {size_text(draft.weights_bytes)}, KV {size_text(draft.cache_bytes)}"
            lines.append(f"draft model {draft.name}: {sizes}")
        else:
            notes = ready.notes if ready is not None else ()
            lines.append(next((note for note in notes if note.startswith("draft model")), "no draft model"))
        usage = last_usage(conversation.messages)
        said = "; ".join(filter(None, (draft_words(usage), usage.draft_note)))
        if said:
            lines.append(f"the last answer: {said}")
        usages = [read for message in conversation.messages if (read := read_usage(message)) is not None]
        return [*lines, *([self._sum(usages)] if len(usages) > 1 else [])]

    def _sum(self, usages: Sequence[Usage]) -> str:
        """All answers of the branch together."""
        proposed, accepted = sum(each.draft_proposed for each in usages), sum(each.draft_accepted for each in usages)
        gained = sum(each.decode_seconds * (each.draft_speedup - 1) for each in usages if each.draft_speedup > 0)
        words = "saved" if gained >= 0 else "lost"
        return f"{len(usages)} answers here: drafts {accepted:,} of {proposed:,}, {duration(abs(gained))} {words}"

    # ------------------------------------------------------------------ what may be typed

    def values(self, came: Callable[[], object]) -> list[tuple[str, str]]:
        """What `/draft` takes: proposed draft models, then the modes. `came` is called when proposals come later."""
        path = self._room.desk.engine.config.model_path
        if path and (path, self._models()) != self._asked:
            self._ask(path, came)
        has_draft = self._room.desk.engine.config.draft_path is not None
        modes = [(mode, MODES[mode]) for mode in DRAFT_MODES if mode != "model" or has_draft]
        return [*self._proposed, *modes, *([(NO_DRAFT_MODEL, "no draft model")] if has_draft else [])]

    def _ask(self, path: str, came: Callable[[], object]) -> None:
        models = self._models()
        self._asked = asked = path, models
        self._proposed = ()

        def find() -> tuple[tuple[str, str], ...]:
            from kvchat.library.find import resolve
            from kvchat.library.pairing import proposals

            found = proposals(resolve(path, models), models)
            return tuple((each.model.name, f"{size_text(each.bytes)}, {each.why}") for each in found)

        def know(found: tuple[tuple[str, str], ...]) -> None:
            if self._asked == asked and found:
                self._proposed = found
                came()

        def unknown(_: KvchatError) -> None:
            """The list of models says what is wrong with the file."""

        self._room.aside(find, know, unknown)

    # ------------------------------------------------------------------ what is told

    def apply(self, event: Event) -> None:
        """A draft model that was asked for is there: it may draft. Where the person has said what is to draft and it
        did not, the reason is told once."""
        if isinstance(event, Ready):
            self._came(event)
        if not isinstance(event, TurnFinished) or event.usage.draft_note is None:
            return
        note, mode = event.usage.draft_note, self._room.conversation.draft
        if mode in ("ngram", "model") and note not in self._told:
            self._told.add(note)
            self._room.transcript.note(f"{capital(f'draft {mode}')}: {note}")

    def _came(self, ready: Ready) -> None:
        conversation, wanted = self._room.conversation, self._wanted
        if ready.draft is None or ready.draft.path != wanted:
            return
        self._wanted = ""
        if conversation.draft in ("off", "ngram"):  # else it would be loaded for nothing
            self._room.try_to(lambda: conversation.set_draft("auto"), lambda _: None, "not set")
