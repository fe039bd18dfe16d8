"""Which messages a summary shall take the place of, and what that costs. Pure arithmetic over what is counted; must not
ask a model or a disk.

The oldest whole turns go, so many that what stays takes a quarter of the context, if that can be; the last turn never
does. What the summary is made of must fit into the context beside the question for it and the summary itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.chats.types import Message
from kvchat.conversation.sight import Sight
from kvchat.errors import KvchatError

THRESHOLD = 0.75  # of the context in use, from which on a summary is made ahead of need
QUESTION = 112  # tokens that the question for a summary takes, at most
_STAYS = 4  # what stays takes this part of the context
_SHARE = 4  # a summary may have this part of the tokens that it takes the place of
_LEAST, _MOST = 48, 512  # tokens of a summary


@dataclass(frozen=True, slots=True)
class Choice:
    """The first `messages` of those that are read go, the last of them has the id `last`. They have `read` tokens in
    the context, of which `replaced` would be gone; the summary has `most` at most, and `stays` tokens come after it."""

    messages: int
    last: str
    read: int
    replaced: int
    stays: int
    most: int

    @property
    def again(self) -> int:
        """Tokens that are computed once more, at most: the summary, and what comes after it."""
        return self.read - self.replaced + self.most + self.stays


def choose(messages: Sequence[Message], sight: Sight, context: int) -> Choice | None:
    """What goes of the messages that are read, in a context of so many tokens. None: nothing that would help."""
    found: Choice | None = None
    for end in _ends(messages, sight):
        choice = _choice(messages, sight, end, context)
        if choice.read + QUESTION + choice.most > context:
            break
        if choice.replaced > choice.most:
            found = choice
        if choice.stays <= context // _STAYS:
            break
    return found


def obstacle(messages: Sequence[Message], sight: Sight, context: int) -> KvchatError:
    """Why `choose` finds nothing."""
    end = next(iter(_ends(messages, sight)), 0)
    choice = _choice(messages, sight, end, context) if end else None
    if choice is not None and choice.read + QUESTION + choice.most > context:
        return KvchatError(
            f"the oldest turn has {choice.read:,} tokens: the context has no room beside it for its summary",
            "another overflow policy, or a larger context, makes room",
        )
    return KvchatError("there is nothing that a summary could stand for", "the last turn always stays")


def _ends(messages: Sequence[Message], sight: Sight) -> list[int]:
    """After how many messages a turn ends, those that are counted, without the last turn."""
    questions = [number for number, message in enumerate(messages) if message.role == "user"]
    known = next((n for n, message in enumerate(messages) if message.id not in sight.messages), len(messages))
    return [n for n in questions if 0 < n <= known and messages[n - 1].role == "assistant"]


def _choice(messages: Sequence[Message], sight: Sight, end: int, context: int) -> Choice:
    seen = [sight.messages.get(message.id) for message in messages]
    live = [0 if each is None else each.live for each in seen]
    before = [each.live - each.kept for each, m in zip(seen[:end], messages, strict=False) if each and not m.pinned]
    replaced = sum(before) + (sight.summary.tokens if sight.summary is not None else 0)
    most = max(_LEAST, min(_MOST, replaced // _SHARE, context // 8))
    return Choice(end, messages[end - 1].id, sum(live[:end]), replaced, sum(live[end:]), most)
