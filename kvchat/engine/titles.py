"""What is asked for a title, and what is made of the answer. Pure; must not run a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvchat.backend.values import PromptMessage

MOST_TOKENS = 24
MOST_CHARACTERS = 60
_QUESTION = "Name the topic of this conversation in at most six words, for a list of conversations."
BEGUN = "Topic:"  # the answer begins so: small models then name it, and others do not reason first
_PARTS = {"user": 1200, "assistant": 600}  # characters of the first messages that are shown
_MARKS = re.compile(r"^(?:#+|[-*>]+|(?:title|topic)\s*:)\s*", re.IGNORECASE)
_OUTER = " \t\"'`*_“”‘’«»."


def question(messages: Sequence[PromptMessage]) -> str:
    """The message that asks for a title: the beginning of the conversation, and what is wanted."""
    shown = [message for message in messages if message.role in _PARTS][:2]
    parts = [f"{message.role.capitalize()}: {message.text[: _PARTS[message.role]]}" for message in shown]
    return "\n\n".join([_QUESTION, *parts])


def title_from(answer: str) -> str:
    """The title in an answer; "" where there is none: several lines are no title, nor is a sentence that goes on."""
    said = answer.strip()
    first = said.splitlines()[0] if said else ""
    title = _MARKS.sub("", _MARKS.sub("", first).strip(_OUTER)).strip(_OUTER)
    title = " ".join(title.split())
    if title.casefold() in _QUESTION.casefold():
        return ""
    return title if 1 < len(title) <= MOST_CHARACTERS and any(map(str.isalnum, title)) else ""
