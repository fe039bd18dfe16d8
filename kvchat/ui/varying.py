"""What varies near the start of a system prompt. Pure; must not change the prompt.

All that stands behind the first different token of a prompt is computed again, the whole chat included.
"""

from __future__ import annotations

import re

BELONGS = "What varies belongs at the end: all that stands behind it, the chat too, is computed again when it changes."
LEAST_BEHIND = 60  # characters; what varies may stand at the end, with a sentence or so behind it
_MONTHS = "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
_MONTHS += "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
_CLOCK = "date|time|datetime|timestamp|now|today|day|weekday"
_WORDS = f"{_CLOCK}|user|username|name|location|weather|uuid|session"
_KINDS: tuple[tuple[str, str], ...] = (
    ("a placeholder", r"\{\{[^{}\n]{1,80}\}\}|\$\{[^{}\n]{1,80}\}"),
    ("a placeholder", rf"\{{(?:[a-z]+[_-])?(?:{_WORDS})(?:[_-][a-z]+)?\}}"),
    ("a placeholder", rf"[<\[](?:current[ _-]?)?(?:{_CLOCK})[>\]]"),
    ("a date", r"\b(?:19|20)\d\d[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])\b"),
    ("a date", r"\b(?:0?[1-9]|[12]\d|3[01])[./](?:0?[1-9]|1[0-2])[./](?:(?:19|20)\d\d|\d\d)\b"),
    ("a date", rf"\b(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\.? (?:of )?(?:{_MONTHS})\.?,? (?:19|20)\d\d\b"),
    ("a date", rf"\b(?:{_MONTHS})\.? (?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?,? (?:19|20)\d\d\b"),
    ("a date", r"(?:19|20)\d\d\s?年\s?\d{1,2}\s?月\s?\d{1,2}\s?日|(?:19|20)\d\d년\s?\d{1,2}월\s?\d{1,2}일"),
    ("a time", r"\b(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\d:])(?:\s?[ap]\.?m\b\.?)?"),
    ("a time", r"\b(?:1[0-2]|[1-9])\s?[ap]\.?m\b"),
)
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)


def varying_part(system: str) -> tuple[str, str] | None:
    """The first thing in a system prompt that will be another one another day, with what kind of thing it is: `("a
    date", "2026-11-29")`. None where there is none, or so little behind it that it costs nothing."""
    text = system.rstrip()
    found = [(match.start(), match.end(), kind) for kind, pattern in _PATTERNS if (match := pattern.search(text))]
    if not found:
        return None
    start, end, kind = min(found)
    return (kind, text[start:end]) if len(text) - end >= LEAST_BEHIND else None


def hint_on(system: str) -> str:
    """What to tell whoever set such a system prompt; "" where there is nothing to say."""
    found = varying_part(system)
    if found is None:
        return ""
    kind, text = found
    return f"The system prompt holds {kind} ({text}) before its end. {BELONGS}"
