"""The two fields about drafting on the page of the engine: what drafts in the open chat, and which model can.

What drafts is the chat's own, the draft model is part of the engine's configuration; both choices belong to those who
hold them. Owns the words. Must not know widgets or read files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backend.values import DRAFT_MODES, DraftMode
from kvchat.config_options import NO_DRAFT_MODEL
from kvchat.conversation.draft_words import MODES, draft_words
from kvchat.library.pairing import QUANTIZED_SHARE, difference
from kvchat.ui.meters import size_text
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.progress import last_usage
from kvchat.ui.sampling_fields import DRAFT
from kvchat.ui.settings_pages import ChatDraft
from kvchat.ui.settings_row import RowState

if TYPE_CHECKING:
    from kvchat.ui.settings_engine import EngineDraft

DRAFT_MODEL = "draft_model"
LABELS = {DRAFT.name: (DRAFT.label, DRAFT.short), DRAFT_MODEL: ("Draft model", "Drafter")}
NONE = "there is no draft model"
LOSSLESS = "Drafts are checked by the model, so answers are drawn as without them"
MEASURED: dict[DraftMode, str] = {
    "auto": "; where they do not pay they stop.",
    "ngram": ". They go on also where they do not pay.",
    "model": ". They go on also where they do not pay.",
    "off": ".",
}
PICKED = "A small model with the same vocabulary guesses the next tokens, and the model checks them all at once."
HOLDS = "Nothing is computed again: it holds from this chat's next answer on."


class DraftFields:
    """`engine` holds the draft model that is being chosen, `chat` what drafts."""

    def __init__(self, engine: EngineDraft, chat: ChatDraft) -> None:
        self._engine = engine
        self._chat = chat

    @property
    def changed(self) -> bool:
        """Whether one of them is another choice than the present one."""
        started, config = self._engine.started, self._engine.config
        return started.draft_path != config.draft_path or self.mode_changed

    @property
    def mode_changed(self) -> bool:
        """Whether something else is to draft."""
        return self._chat.own.draft != self._chat.now.own.draft

    def row(self, field: str) -> RowState:
        """A mode that needs a draft model says so where there is none."""
        if field == DRAFT_MODEL:
            return RowState(self._name(), self._brief(), walkable=bool(self._engine.config.model_path))
        mode, own = self._chat.draft, self._chat.is_own(field)
        default = f"default {self._chat.default(field)}" if own else ""
        said = f"without effect: {NONE}" if mode == "model" and not self._engine.config.draft_path else MODES[mode]
        return RowState(mode, " · ".join(filter(None, (default, said))), own=own)

    def step(self, step: int) -> None:
        """Another mode that can be had; the draft model is picked from a list."""
        modes = [mode for mode in DRAFT_MODES if mode != "model" or self._engine.config.draft_path]
        now = self._chat.draft
        at = modes.index(now) if now in modes else -1 if step > 0 else 0
        self._chat.choose(DRAFT.name, modes[(at + step) % len(modes)])

    def take(self, path: str | None) -> None:
        """The draft model that was picked, None for none. In a mode in which it would not draft, it may from now on."""
        self._engine.choose_draft(path)
        if path is not None and self._chat.draft in ("off", "ngram"):
            self._chat.choose(DRAFT.name, "auto")

    def detail(self, field: str) -> str:
        """What it does, and how the last answer went; or what it takes, and why it is not in use."""
        if field == DRAFT_MODEL:
            return "\n".join(filter(None, (self._takes() or PICKED, self._refused())))
        said = f"{LOSSLESS}{MEASURED[self._chat.draft]}"
        left_out = "" if self._engine.config.draft_path else f"not model: {NONE}, see below"
        return "\n".join(filter(None, (left_out, said, self._seen(), self._chat.own_words(DRAFT))))

    def _name(self) -> str:
        path, facts = self._engine.config.draft_path, self._engine.draft_facts
        if path is None:
            return NO_DRAFT_MODEL
        return facts.model.name if facts is not None and str(facts.model.path) == path else Path(path).stem

    def _brief(self) -> str:
        path, mode = self._engine.config.draft_path, self._chat.draft
        if path is None:
            return "a small one that guesses ahead"
        if mode in ("off", "ngram"):
            return f"without effect: {DRAFT.label} is {mode}"
        return "" if not self._bytes else f"takes {size_text(self._bytes)}"

    @property
    def _bytes(self) -> int:
        """All that it takes, as far as that is known."""
        plan = self._engine.situation().plan if self._engine.facts is not None else None
        return plan.chosen.draft_bytes if plan is not None else 0

    def _takes(self) -> str:
        facts = self._engine.draft_facts
        if not self._bytes or facts is None or facts.subject is None:
            return ""
        plan = self._engine.situation().plan
        assert plan is not None
        weights, cache = facts.subject.size, plan.chosen.draft_kv_bytes
        parts = f"weights {size_text(weights)}, KV {size_text(cache)}"
        return f"It takes about {size_text(self._bytes)} beside the model: {parts}, the rest to compute."

    def _refused(self) -> str:
        """Why the draft model that is chosen is not in use, or cannot be."""
        engine = self._engine
        path, facts = engine.config.draft_path, engine.draft_facts
        if path is None:
            return ""
        if engine.ready is not None and engine.ready.draft is None and engine.config == engine.started:
            return next((note for note in engine.ready.notes if note.startswith("draft model")), "")
        return facts.problem if facts is not None and str(facts.model.path) == path else ""

    def _seen(self) -> str:
        usage = last_usage(self._chat.now.messages)
        said = [each for each in (draft_words(usage), usage.draft_note or "") if each]
        return f"The last answer: {'; '.join(said)}." if said else ""


def still_drafts(model: ModelFacts, draft: ModelFacts | None) -> bool:
    """Whether a draft model that was chosen for another model can stay beside this one."""
    if draft is None or draft.subject is None or model.subject is None:
        return False
    smaller = draft.subject.size <= QUANTIZED_SHARE * model.subject.size
    return smaller and difference(model.subject.header, draft.subject.header) is None
