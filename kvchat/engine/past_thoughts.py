"""Reasoning of earlier replies, which many templates drop from the conversation: where its tokens are, so that they can
leave the context without the reply being read again.

Owns what counts as such reasoning, and whether a template would drop it; must not evict. With history kept as it was
("append") this takes the place of rendering the conversation anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from kvchat.backend.values import PromptMessage
from kvchat.engine.template import ChatTemplate, Turn
from kvchat.errors import KvchatError
from kvchat.formats.page import digest, pack_ids
from kvchat.formats.past import Range
from kvchat.reasoning import LONGEST_TAG, Split, left_open, split, split_late

Piece = Callable[[int], bytes]

_MOST_BLOCKS = 10_000
_THOUGHT, _ANSWER, _NEXT = "58248265471", "58248265472", "58248265473"


class PastThoughts:
    """What one template does to the reasoning in the past, for a vocabulary that `piece` spells, control tokens too."""

    def __init__(self, template: ChatTemplate, piece: Piece) -> None:
        self._template = template
        self._piece = piece
        self._dropped: dict[tuple[str, str], bool] = {}
        self._blocks: dict[bytes, Range | None] = {}  # by reply: to spell all of a long chat takes a while

    def ranges(self, messages: Sequence[PromptMessage], segments: Sequence[Sequence[int]]) -> list[Range]:
        """Where in the joined `segments`, the ids of `messages`, the reasoning of replies lies that the template drops
        when another user turn follows."""
        found: list[Range] = []
        starts = list(accumulate(map(len, segments), initial=0))
        for number in range(1, len(messages) - 1):
            if messages[number].role == "assistant" and segments[number]:
                block = self._remembered(segments[number - 1], segments[number])
                if block is not None:
                    found.append((starts[number] + block[0], starts[number] + block[1]))
        return found

    def _remembered(self, before: Sequence[int], reply: Sequence[int]) -> Range | None:
        key = digest(pack_ids(before[-LONGEST_TAG:]), pack_ids(reply))
        if key not in self._blocks:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            self._blocks[key] = self._block(before, reply)
        return self._blocks[key]

    def _block(self, before: Sequence[int], reply: Sequence[int]) -> Range | None:
        """The tokens of the reasoning with its tags and the white space behind it, counted from the first of the reply;
        an opening tag at the end of the prompt lies before that. None: there is none, it never ended, nothing comes
        after it, or the template keeps it."""
        texts = [self._piece(token).decode("utf-8", "replace") for token in reply]
        text = "".join(texts)
        tail = b"".join(map(self._piece, before[-LONGEST_TAG:])).decode("utf-8", "replace")
        opened = left_open(tail) is not None
        part = split(text, opened=opened)
        if not part.end:
            part = split_late(text)
        if not part.ended or not part.answer or not self._drops(text, part):
            return None
        ends = list(accumulate(map(len, texts)))
        start = text.index(text.lstrip()[:1]) if part.start else 0
        first = next(number for number, end in enumerate(ends) if end > start)
        behind = text[part.answer :]
        words = part.answer + len(behind) - len(behind.lstrip())
        last = next((number for number, end in enumerate(ends) if end > words), len(ends))
        if ends[last - 1] < part.answer or last == len(ends):
            return None
        return (-self._opening_tokens(before) if opened else first), last

    def _opening_tokens(self, before: Sequence[int]) -> int:
        """How many of the last tokens of a prompt are the tag that it ends with."""
        tail = ""
        for count, token in enumerate(reversed(before), 1):
            tail = self._piece(token).decode("utf-8", "replace") + tail
            if left_open(tail) is not None:
                return count
        return 0

    def _drops(self, text: str, part: Split) -> bool:
        """Whether the template leaves out such a block in front of an answer."""
        tags = text[: part.start].strip(), text[part.end : part.answer]
        if tags not in self._dropped:
            reply = f"{tags[0]}\n{_THOUGHT}\n{tags[1]}\n\n{_ANSWER}"
            turns = Turn("user", _NEXT), Turn("assistant", reply), Turn("user", _NEXT)
            try:
                shown = self._template.render(turns, 0.0)
            except KvchatError:
                shown = _THOUGHT
            self._dropped[tags] = _THOUGHT not in shown and _ANSWER in shown
        return self._dropped[tags]
