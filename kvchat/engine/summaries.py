"""What is asked for a summary of a chat's beginning, and what is made of the answer. Pure; must not run a model."""

from __future__ import annotations

import re

BEGUN = "Summary:"  # the answer begins so: small models then write one, and others do not reason first
_ASKED = (
    "Summarize our conversation up to here, so that it can go on without these messages. Keep names, numbers, facts, "
    "decisions, wishes of mine and open questions; also what an earlier summary says. Write at most {words} words, and "
    "nothing but the summary."
)
_WORDS = 0.6  # of a token
_SENTENCE = re.compile(r"[.!?。！？][\"')\]”’]*(?=\s|$)|\n")


def question(most: int) -> str:
    """The message that asks for a summary of at most so many tokens."""
    words = max(20, int(most * _WORDS) // 10 * 10)
    return _ASKED.format(words=words)


def summary_from(answer: str, *, whole: bool) -> str:
    """The summary in an answer. Not `whole`: it was cut off, and ends with its last whole sentence, if that is not in
    its first half."""
    text = answer.strip()
    if whole:
        return text
    ends = [found.end() for found in _SENTENCE.finditer(text)]
    return text[: ends[-1]].strip() if ends and ends[-1] > len(text) // 2 else text
