"""What every page of the settings is, and those that are about the open chat: sampling and history.

A page owns what is being chosen on it until it is applied or thrown away, and says how its fields look; it must not
know keys or widgets, and changes nothing outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from textual.content import Content

from kvchat.backend.protocol import Ready
from kvchat.backend.values import DraftMode, History, OverflowPolicy, Sampling
from kvchat.chats.types import Message
from kvchat.conversation import Defaults, Own
from kvchat.conversation.overflow_words import POLICIES, impossible
from kvchat.ui.history_words import history_words
from kvchat.ui.sampling_fields import DRAFT, FIELDS, HISTORY, OVERFLOW, SAMPLING, ChatField
from kvchat.ui.settings_row import RowState
from kvchat.ui.settings_words import EffectKind

NOTHING = "Applying changes nothing."
GIVES_BACK = "backspace gives it back"
NAMED = (HISTORY.name, DRAFT.name, OVERFLOW.name)  # what is no value of Sampling


class Page:
    """Fields that are shown together. What a subclass does not say, a page does not have."""

    NAME = ""

    def __init__(self, labels: dict[str, tuple[str, str]]) -> None:
        """`labels`: the whole and the short one of each field, in the order of the page."""
        self.labels = labels
        self.fields = tuple(labels)

    @property
    def changed(self) -> bool:
        """Whether something on it is another choice than the present one."""
        raise NotImplementedError

    def row(self, field: str) -> RowState:
        """How it looks while it is not selected."""
        raise NotImplementedError

    def step(self, field: str, step: int) -> None:
        """Another value, as far as one can be had."""
        raise NotImplementedError

    def line(self, field: str) -> str | None:
        """What stands in the line when the field is to be typed; None: it cannot be."""
        raise NotImplementedError

    def take(self, field: str, text: str) -> None:
        """The value that was typed. Raises BadValue."""
        raise NotImplementedError

    def give_back(self, field: str) -> bool:  # noqa: ARG002
        """The default in place of what is the chat's own; False: there is nothing to give back."""
        return False

    def detail(self, field: str) -> str:
        """Sentences about a field: what it does, or costs."""
        raise NotImplementedError

    def meters(self, width: int) -> Content:  # noqa: ARG002
        """What it takes, drawn."""
        return Content("")

    def effect(self) -> tuple[str, EffectKind]:
        """What applying does to the open chat."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ChatNow:
    """The open chat as it is: what it has of its own, the defaults for the rest, its messages."""

    own: Own = field(default_factory=Own)
    defaults: Defaults = field(default_factory=Defaults)
    messages: Sequence[Message] = ()


class ChatDraft:
    """What the chat is to have of its own. `own` is changed until it is applied."""

    def __init__(self, now: ChatNow) -> None:
        self.now = now
        self.own = now.own

    @property
    def changed(self) -> bool:
        """Whether it is another choice than the present one."""
        return self.own != self.now.own

    @property
    def sampling(self) -> Sampling:
        """The defaults, with the chat's own values in their place."""
        return replace(self.now.defaults.sampling, **self.own.sampling)

    @property
    def history(self) -> History:
        """The chat's own way, else the default."""
        return self.own.history or self.now.defaults.history

    @property
    def draft(self) -> DraftMode:
        """The chat's own, else the default."""
        return self.own.draft or self.now.defaults.draft

    @property
    def overflow(self) -> OverflowPolicy:
        """The chat's own, else the default."""
        return self.own.overflow or self.now.defaults.overflow

    def value(self, name: str) -> Any:
        """What holds."""
        return getattr(self if name in NAMED else self.sampling, name)

    def default(self, name: str) -> Any:
        """What holds where the chat has nothing of its own."""
        defaults = self.now.defaults
        return getattr(defaults if name in NAMED else defaults.sampling, name)

    def is_own(self, name: str) -> bool:
        """Whether the chat has its own value."""
        return _has(self.own, name)

    def choose(self, name: str, value: Any) -> None:
        """The chat's own value from now on; the default is none, unless it was the chat's own already."""
        if value == self.default(name) and not _has(self.now.own, name):
            self.give_back(name)
        elif name in NAMED:
            self.own = replace(self.own, **{name: value})
        else:
            self.own = replace(self.own, sampling={**self.own.sampling, name: value})

    def give_back(self, name: str) -> None:
        """The default from now on."""
        if name in NAMED:
            nothing: dict[str, Any] = {name: None}
            self.own = replace(self.own, **nothing)
        else:
            kept = {other: value for other, value in self.own.sampling.items() if other != name}
            self.own = replace(self.own, sampling=kept)

    def own_words(self, field: ChatField) -> str:
        """Of a value that is the chat's own: that it is, and what the default would be."""
        if not self.is_own(field.name):
            return ""
        return f"● is this chat's own; the default is {field.text(self.default(field.name))}, {GIVES_BACK}."


class ChatPage(Page):
    """Fields of a chat."""

    def __init__(self, draft: ChatDraft, fields: Sequence[ChatField]) -> None:
        super().__init__({each.name: (each.label, each.short) for each in fields})
        self.draft = draft

    @property
    def changed(self) -> bool:
        """Whether the chat is to have something else of its own."""
        return any(self._differs(field) for field in self.fields)

    def row(self, field: str) -> RowState:
        """What the chat has of its own is marked."""
        known, value, own = FIELDS[field], self.draft.value(field), self.draft.is_own(field)
        default = f"default {known.text(self.draft.default(field))}" if own else ""
        note = " · ".join(filter(None, (default, known.brief(self.draft.sampling))))
        return RowState(known.text(value), note, walkable=known.walkable(value), own=own)

    def step(self, field: str, step: int) -> None:
        """Another value."""
        self.draft.choose(field, FIELDS[field].stepped(self.draft.value(field), step))

    def line(self, field: str) -> str | None:
        """All values can be typed but names."""
        return FIELDS[field].typed(self.draft.value(field)) if field not in NAMED else None

    def take(self, field: str, text: str) -> None:
        """The value that was typed."""
        self.draft.choose(field, FIELDS[field].read(text))

    def give_back(self, field: str) -> bool:
        """The default."""
        own = self.draft.is_own(field)
        self.draft.give_back(field)
        return own

    def _differs(self, field: str) -> bool:
        now, draft = self.draft.now.own, self.draft
        own = draft.is_own(field)
        if own != _has(now, field):
            return True
        return own and draft.value(field) != (getattr(now, field) if field in NAMED else now.sampling[field])


class SamplingPage(ChatPage):
    """How answers are drawn."""

    NAME = "Sampling"

    def __init__(self, draft: ChatDraft) -> None:
        super().__init__(draft, SAMPLING)

    def detail(self, field: str) -> str:
        """What it does."""
        return "\n".join(filter(None, (FIELDS[field].meaning, self.draft.own_words(FIELDS[field]))))

    def effect(self) -> tuple[str, EffectKind]:
        """It costs nothing."""
        if not self.changed:
            return NOTHING, "none"
        return "Nothing is computed again: this chat's next answer is drawn so.", "change"


class HistoryPage(ChatPage):
    """What becomes of the past of the chat, and what happens when it fills the context."""

    NAME = "History"

    def __init__(self, draft: ChatDraft, ready: Ready | None) -> None:
        super().__init__(draft, (HISTORY, OVERFLOW))
        self._ready = ready

    def _cannot(self, policy: OverflowPolicy) -> str:
        """Why the running model cannot have a policy."""
        return impossible(policy, self._ready) if self._ready is not None else ""

    @property
    def _others(self) -> bool:
        """Whether there is anything but stop."""
        return not all(self._cannot(policy) for policy in POLICIES if policy != "stop")

    def row(self, field: str) -> RowState:
        """What a policy does stands beside it; where there is none but stop, it cannot be walked."""
        state = super().row(field)
        if field != OVERFLOW.name:
            return state
        problem = self._cannot(self.draft.overflow) or ("" if self._others else self._cannot("summarize"))
        if problem:
            return replace(state, note=f"without effect: {problem}", walkable=self._others)
        return replace(state, note=" · ".join(filter(None, (state.note, POLICIES[self.draft.overflow]))))

    def step(self, field: str, step: int) -> None:
        """Another value, where it would have an effect."""
        if field != OVERFLOW.name:
            super().step(field, step)
            return
        for _ in POLICIES:
            if self._others:
                super().step(field, step)
            if not self._cannot(self.draft.overflow):
                return

    def detail(self, field: str) -> str:
        """The way, and what the template was seen to do; what each policy does."""
        if field == OVERFLOW.name:
            ways = [f"{policy}: {meaning}" for policy, meaning in POLICIES.items()]
            problem = self._cannot("shift")
            stops = f"With this model {'only stop or summarize' if self._others else 'always stop'}: {problem}."
            return "\n".join(filter(None, (stops if problem else "", *ways, self.draft.own_words(OVERFLOW))))
        said = history_words(self.draft.history, self._ready, self.draft.now.messages)
        return "\n".join(filter(None, (said, self.draft.own_words(HISTORY))))

    def effect(self) -> tuple[str, EffectKind]:
        """It holds from the next turn on."""
        own, now, defaults = self.draft.own, self.draft.now.own, self.draft.now.defaults
        same = (own.history, own.overflow) == (now.history, now.overflow)
        if self.draft.history == (now.history or defaults.history):
            if same:
                return NOTHING, "none"
            if self.draft.overflow == (now.overflow or defaults.overflow):
                return "It stays as it is, and follows the default from now on.", "change"
            return "Nothing is computed again: it holds when the context is full.", "change"
        if self.draft.history == "append":
            return "From the next turn on what was rendered stays, and only what is new is computed.", "change"
        return (
            "From the next turn on the chat is rendered again; from the first token that is another one then, it is "
            "computed again.",
            "change",
        )


def _has(own: Own, name: str) -> bool:
    return getattr(own, name) is not None if name in NAMED else name in own.sampling
