"""A small deterministic vocabulary: bytes, some merges, control tokens, and a conversation that grows turn by turn."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvchat.backend.values import PromptMessage

BOS, EOS = "<s>", "</s>"
MERGES = (
    "Answer",
    "Question",
    "An",
    "er",
    "the",
    " the",
    "\n\n",
    ">\n",
    "us",
    "as",
    "is",
    " ",
    "?",
    "st",
    "tant",
    "user",
)
USER_DEFINED = ("<think>", "</think>")  # llama.cpp reads these in any text, also where control tokens are not read
WORDS = sorted((*USER_DEFINED, *MERGES), key=len, reverse=True)
PLAIN = re.compile(f"(?P<word>{'|'.join(map(re.escape, WORDS))})|.", re.DOTALL)
CONTROL = r"<s>|</s>|<\|[^<>|\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|<｜[^<>｜]{1,40}｜>"
WITH_CONTROL = re.compile(f"(?P<control>{CONTROL})|{PLAIN.pattern}", re.DOTALL)


@dataclass
class ToyVocabulary:
    """Greedy longest match over `MERGES`, bytes otherwise. Control tokens get ids as they are met."""

    bos: int | None = 1
    add_bos: bool = True
    bos_text: str = BOS
    control: dict[str, int] = field(default_factory=lambda: {BOS: 1, EOS: 2})

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        ids: list[int] = []
        for match in (WITH_CONTROL if special else PLAIN).finditer(text):
            piece = match[0]
            if match.lastgroup == "control":
                ids.append(self.control.setdefault(piece, 3000 + len(self.control)))
            elif match.lastgroup == "word":
                ids.append(2000 + WORDS.index(piece))
            else:
                ids += [1000 + byte for byte in piece.encode()]
        return ids

    def sampled(self, text: str) -> tuple[int, ...]:
        """Ids that a model might have chosen for `text`: other than those of `tokenize`."""
        return tuple(1000 + byte for byte in text.encode())

    def decode(self, ids: tuple[int, ...] | list[int]) -> str:
        names = {number: name for name, number in self.control.items()}
        pieces = [
            names[i].encode() if i in names else bytes([i - 1000]) if i < 2000 else WORDS[i - 2000].encode()
            for i in ids
        ]
        return b"".join(pieces).decode()


def with_ids(messages: list[PromptMessage], segments: tuple[tuple[int, ...], ...]) -> list[PromptMessage]:
    """The messages with the ids that a prompt gave them."""
    return [PromptMessage(m.role, m.text, ids) for m, ids in zip(messages, segments, strict=True)]
