"""What a chat can have of its own as fields: how a value is written, typed, walked, and what it does. Pure.

Owns the words. What may be typed is the answer of config_options; must not know widgets or chats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvchat.backend.values import DRAFT_MODES, OVERFLOW_POLICIES, Sampling
from kvchat.config_options import BY_KEY, BadValue

_STOP = re.compile(r'[\s,]*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"]+))\s*(?:,|$|(?=\s|"))')


@dataclass(frozen=True, slots=True)
class ChatField:
    """`name` is that in Sampling, or "history", "draft", "overflow"; `key` that in config.toml. `steps` are what the
    arrow keys walk. `words` are written in place of values of the settings file, and may be typed. `meaning`: what it
    does, in a sentence."""

    name: str
    key: str
    label: str
    short: str
    meaning: str
    steps: tuple[Any, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    brief: Callable[[Sampling], str] = lambda _: ""

    def text(self, value: object) -> str:
        """What stands in the field."""
        if self.name == "stop":
            return ", ".join(json.dumps(stop, ensure_ascii=False) for stop in _texts(value)) or "none"
        written = "-1" if value is None else str(value).removesuffix(".0")
        return {value: word for word, value in self.words.items()}.get(written, written)

    def typed(self, value: object) -> str:
        """What stands in the line when it is to be typed."""
        return "" if value in (None, ()) else self.text(value)

    def read(self, text: str) -> object:
        """The value that was typed. Raises BadValue."""
        text = text.strip()
        if self.name == "stop":
            return BY_KEY["stop"].read(stops_in(text))
        if not text and None in self.steps:  # as it is written where nothing is chosen, see `typed`
            return None
        return BY_KEY[self.key].read(self.words.get(text.lower(), text))

    def taken(self, value: object) -> object:
        """A value as a settings file has it. Raises BadValue."""
        return BY_KEY[self.key].read(value)

    def stepped(self, value: object, step: int) -> object:
        """The next value; from the last one on to the first."""
        values = self._values(value)
        return values[(values.index(value) + step) % len(values)]

    def walkable(self, value: object) -> bool:
        """Whether the arrow keys lead anywhere."""
        return len(self._values(value)) > 1

    def _values(self, now: object) -> list[Any]:
        if now in self.steps or not self.steps:
            return list(self.steps or (now,))
        return sorted({*self.steps, now}, key=lambda value: -1 if value is None else value)


def stops_in(text: str) -> list[str]:
    r"""The texts that end an answer: words, or texts in quotes with \n for a line break. Raises BadValue."""
    text = text.strip(" ,")
    if text.lower() in ("", "none"):
        return []
    found, at = [], 0
    while at < len(text):
        match = _STOP.match(text, at)
        if match is None:
            raise BadValue("a quote is not closed", 'write texts as "one", "two"')
        quoted = match["quoted"]
        try:
            found.append(match["bare"] if quoted is None else json.loads(f'"{quoted}"'))
        except ValueError:
            raise BadValue(f'"{quoted}" holds an escape that is none', r"there are \n, \t, \" and \\") from None
        at = match.end()
    return found


def _texts(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _greedy(sampling: Sampling) -> str:
    return "without effect: temperature 0" if sampling.temperature <= 0 else ""


def _draws(words: str) -> Callable[[Sampling], str]:
    """What has no effect where nothing is drawn."""
    return lambda sampling: _greedy(sampling) or words


TENTHS = tuple(round(step / 10, 1) for step in range(16))
SAMPLING: tuple[ChatField, ...] = (
    ChatField(
        "temperature",
        "temp",
        "Temperature",
        "Temp.",
        "How freely the next token is drawn: 0 always takes the likeliest, 0.8 is usual, above 1 it gets wild.",
        (*TENTHS, 2.0),
        brief=lambda sampling: "always the likeliest token" if sampling.temperature <= 0 else "0: the likeliest token",
    ),
    ChatField(
        "top_k",
        "top_k",
        "Top-k",
        "Top-k",
        "Only so many of the likeliest tokens can be drawn; off takes all.",
        (0, 10, 20, 40, 80, 200),
        {"off": "0"},
        _draws("of the likeliest tokens"),
    ),
    ChatField(
        "top_p",
        "top_p",
        "Top-p",
        "Top-p",
        "Only the likeliest tokens that together have this share can be drawn; off takes all.",
        (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0),
        {"off": "1"},
        _draws("share of the likeliest together"),
    ),
    ChatField(
        "min_p",
        "min_p",
        "Min-p",
        "Min-p",
        "Only tokens that are at least this share as likely as the likeliest can be drawn; off takes all.",
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2),
        {"off": "0"},
        _draws("share of the likeliest one"),
    ),
    ChatField(
        "repeat_penalty",
        "repeat_penalty",
        "Repeat penalty",
        "Penalty",
        "Makes tokens that stand a little before less likely; 1.1 is mild, much more breaks code and lists.",
        (1.0, 1.05, 1.1, 1.15, 1.2, 1.3),
        {"off": "1"},
    ),
    ChatField(
        "repeat_last_n",
        "repeat_last_n",
        "Penalty range",
        "Range",
        "For how many of the last tokens the penalty holds.",
        (0, 32, 64, 128, 256, 512, 1024),
        {"off": "0"},
        lambda sampling: "without effect: no penalty" if sampling.repeat_penalty == 1 else "last tokens",
    ),
    ChatField(
        "seed",
        "seed",
        "Seed",
        "Seed",
        "With a seed the same past gets the same answer on the same machine; drawn is another one each time.",
        (None,),
        {"drawn": "-1"},
        _draws("a number; drawn: another each time"),
    ),
    ChatField(
        "max_tokens",
        "predict",
        "Most tokens",
        "Most",
        "An answer ends after so many tokens, and /continue goes on; no limit is until the context is full.",
        (None, 128, 256, 512, 1024, 2048, 4096),
        {"no limit": "-1"},
        lambda sampling: "" if sampling.max_tokens is None else "of an answer",
    ),
    ChatField(
        "stop",
        "stop",
        "Stop strings",
        "Stop",
        r'An answer ends before one of these texts. Write them as "one", "two"; \n is a line break.',
        brief=lambda sampling: "" if sampling.stop else "texts that end an answer",
    ),
)
HISTORY = ChatField("history", "history", "History", "History", "", ("append", "exact"))
DRAFT = ChatField("draft", "draft", "Draft", "Draft", "", DRAFT_MODES)
OVERFLOW = ChatField("overflow", "overflow", "When full", "Full", "", OVERFLOW_POLICIES)
FIELDS = {each.name: each for each in (*SAMPLING, HISTORY, DRAFT, OVERFLOW)}


def sampling_words(values: Mapping[str, Any]) -> str:
    """Values of a chat's or a preset's own, in a line; "" for none."""
    return ", ".join(f"{each.label.lower()} {each.text(values[each.name])}" for each in SAMPLING if each.name in values)
