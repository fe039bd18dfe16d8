"""Where the messages lie in a rendered conversation, and the ids of what lies between the replies.

Owns rendering with slots (numbers in place of messages), the text before, between and behind the replies ("gaps"), and
their tokenization. Must not decide which ids of the past are kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count, pairwise
from typing import Protocol

from kvchat.engine.template import ChatTemplate, Turn
from kvchat.errors import KvchatError

Parts = list[str | int]  # text of the template, and the indices of turns whose text stands there


class Tokenizer(Protocol):
    """What a vocabulary must offer. `bos` is None and `bos_text` "" where there is no such token."""

    @property
    def bos(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def bos_text(self) -> str: ...
    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """The ids of `text`, without BOS. `special`: texts of control tokens become these tokens."""
        ...


def render_gaps(
    template: ChatTemplate, turns: Sequence[Turn], hidden: Collection[int], replies: Sequence[int], clock: float
) -> list[Parts] | None:
    """What stands before, between and behind the `replies`, with a slot in place of the text of each turn in `hidden`.

    A slot is a long number that no turn holds: trimming, letter case and searching for words leave it alone. None if
    the template refuses such a conversation, or does not show each reply once and in order.
    """
    texts = "\n".join(turn.text for turn in turns)
    seed = next(number for number in count(731946285017) if str(number) not in texts)
    slotted = [Turn(turn.role, f"{seed}{i:06d}") if i in hidden else turn for i, turn in enumerate(turns)]
    try:
        text = template.render(slotted, clock)
    except KvchatError:
        return None  # it may take the conversation as it is
    pieces = re.split(rf"{seed}(\d{{6}})", text)
    parts: Parts = [int(piece) if i % 2 else piece for i, piece in enumerate(pieces)]
    at = [i for i, part in enumerate(parts) if isinstance(part, int) and part in replies]
    if [parts[i] for i in at] != list(replies):
        return None
    return [parts[start + 1 : end] for start, end in pairwise([-1, *at, len(parts)])]


def locate(
    text: str, gaps: Sequence[Parts], turns: Sequence[Turn], replies: Sequence[int]
) -> list[tuple[str, str]] | None:
    """Each gap as it stands in `text`, the conversation rendered without slots, with the text of the reply behind it.

    A template that looks into a reply can change what it puts before it: a gap is only held to what it has up to the
    end of the person's words. None if even that is not there.
    """
    *inner, final = ["".join(map(str, parts)) for parts in gaps]
    found: list[tuple[str, str]] = []
    at = 0
    for number, (gap, reply) in enumerate(zip(inner, replies, strict=True)):
        firm = gap[: _end_of(turns[reply - 1], gap)] if reply else gap
        start = _find(text, firm, at, turns[replies[number - 1]].text) if number else 0
        if not text.startswith(firm, start) or start < at:
            return None
        if number:
            found[-1] = (found[-1][0], text[at:start])
        at = _end(text, start, gap, len(firm), turns[reply].text.strip())
        found.append((text[start:at], ""))
    start = len(text) - len(final)
    if not text.endswith(final) or start < at:
        return None
    if found:
        found[-1] = (found[-1][0], text[at:start])
    return [*found, (final, "")]


def _end(text: str, start: int, gap: str, firm: int, reply: str) -> int:
    """Where a gap ends that begins at `start`. What it shares with `text` in its last part may be the reply's."""
    shared = _shared(gap[firm:], text[start + firm : start + len(gap)])
    end = start + firm + shared
    if firm + shared == len(gap):
        return end
    at = text.rfind(reply, start + firm, end + len(reply))
    return at if at >= 0 else end


def _shared(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _end_of(turn: Turn, gap: str) -> int:
    at = gap.rfind(turn.text.strip())
    return at + len(turn.text.strip()) if at >= 0 else len(gap)


def _find(text: str, firm: str, at: int, reply: str) -> int:
    """Where a gap begins: right behind the reply, if this is there as it is, else where it is found next, else -1."""
    for form in (reply, reply.strip(), reply.rstrip(), reply.lstrip()):
        if text.startswith(form + firm, at):
            return at + len(form)
    return text.find(firm, at)


class GapTokenizer:
    """Tokenizes the gaps of one conversation. Texts of messages in them cannot become control tokens."""

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        turns: Sequence[Turn],
        clock: float,
        replies: Sequence[int],
        new: Collection[int],
    ) -> None:
        """`replies`: the turns that the gaps lie between. `new`: the turns whose text can be in a gap."""
        self._tokenizer = tokenizer
        self._texts = {i: turns[i].text for i in new if self.imitates(turns[i].text)}
        self._gaps: list[Parts] | None = None
        if self._texts:
            self._gaps = render_gaps(template, turns, {*replies, *self._texts}, replies, clock)

    def imitates(self, text: str) -> bool:
        """Whether a text holds what would be read as a control token."""
        return self._tokenizer.tokenize(text, special=True) != self._tokenizer.tokenize(text, special=False)

    def ids(self, text: str, gap: int) -> list[int]:
        """The ids of `text`, which is gap number `gap` with the texts of the messages in it."""
        pieces = self._pieces(text, gap)
        ids, printed = self._begin(pieces[0][0]) if gap == 0 else ([], 0)
        for piece, special in pieces:
            ids += self._tokenizer.tokenize(piece[printed:], special=special)
            printed = 0
        return ids

    def foreign(self, text: str, source: str) -> list[int]:
        """The ids of a rendered text that comes from a message with the text `source`."""
        return self._tokenizer.tokenize(text, special=not self.imitates(source))

    def reply(self, text: str) -> list[int]:
        """The ids of a reply that has none yet."""
        return self._tokenizer.tokenize(text, special=False)

    def _begin(self, text: str) -> tuple[list[int], int]:
        """Exactly one BOS: the template's, which prints so many characters, else the one that the vocabulary wants."""
        bos, printed = self._tokenizer.bos, self._tokenizer.bos_text
        if bos is None:
            return [], 0
        if printed and text.startswith(printed):
            times = next(n for n in count(1) if not text.startswith(printed, n * len(printed)))
            return [bos], times * len(printed)
        if printed and text.lstrip().startswith(printed):
            return [], 0
        return [bos] if self._tokenizer.add_bos else [], 0

    def _pieces(self, text: str, gap: int) -> list[tuple[str, bool]]:
        """What is tokenized by itself, and whether control tokens are read in it. The first is text of the template."""
        if not self._texts:
            return [(text, True)]
        if self._gaps is None:
            return [(text, False)]
        parts = self._gaps[gap]
        if not any(isinstance(part, int) for part in parts):
            return [(text, text == "".join(map(str, parts)))]
        return _fill(parts, text, self._texts)


def _fill(parts: Parts, text: str, contents: Mapping[int, str]) -> list[tuple[str, bool]]:
    """Puts the texts of messages into their slots, with the outer white space that they have in `text`.

    Where the parts do not fit to `text` (the template looks into the message), the parts count.
    """
    pieces: list[tuple[str, bool]] = []
    at = 0
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        piece = part if isinstance(part, str) else _as_rendered(contents[part], text, at, after)
        pieces.append((piece, isinstance(part, str)))
        at += len(piece)
    return pieces


def _as_rendered(content: str, text: str, at: int, after: str | int) -> str:
    behind = after if isinstance(after, str) else ""
    forms = (content, content.strip(), content.rstrip(), content.lstrip())
    return next((form for form in forms if text.startswith(form + behind, at)), content)
