"""What is asked. Questions that a small model answers at length, so that every answer has as many tokens as it may."""

from __future__ import annotations

SYSTEM = (
    "You are a patient teacher. Explain things in whole sentences, one after another, from the beginning to the end. "
    "Begin with what everybody knows, then say what is behind it, and give an example from daily life. No lists, "
    "headings or tables. If you do not know something, say so. Never answer in less than ten sentences."
)
_THINGS = (
    "the tides of the sea",
    "the colours of leaves in autumn",
    "how bread rises",
    "why ice floats",
    "how a bicycle stays upright",
    "the phases of the moon",
    "how bees find their way",
    "why the sky is blue",
    "how glass is made",
    "the age of trees",
)
_WAYS = (
    "Tell me everything that you know about {}, and tell it as a long story for somebody who has never heard of it.",
    "Now explain {} once more, at length, but this time for an engineer who wants to know what happens step by step.",
    "Describe in many sentences how people in former times thought about {}, and what they did with what they knew.",
)


def question(turn: int) -> str:
    """The message of a turn, counted from 1; 30 of them differ, later ones say their number."""
    way, thing = divmod((turn - 1) % 30, len(_THINGS))
    asked = _WAYS[way].format(_THINGS[thing])
    return asked if turn <= 30 else f"{asked} This is question {turn}."


def long_system(tokens: int) -> str:
    """A system prompt of about so many tokens."""
    rules = (
        f"Rule {n}: of item {n} one says first what it is made of, and then where it is kept." for n in range(1000)
    )
    chosen = " ".join(rule for rule, _ in zip(rules, range(max(1, tokens // 24)), strict=False))
    return f"{SYSTEM} {chosen}"


def passage(tokens: int, number: int) -> str:
    """A message of about so many tokens, that begins like no other."""
    return f"{number}. " + " ".join(f"Item {i} of list {number} is a thing." for i in range(tokens // 11))


_NOTES = (
    "The ferry leaves the north pier at seven, at ten and at four. It carries twelve cars and eighty people, and takes "
    "forty minutes to the island. On the way back it stops at the lighthouse, where the keeper hands over the post. In "
    "winter the ferry at ten does not run, and when the wind comes from the east all of them wait until it has turned. "
    "Tickets are sold on board, dogs travel for nothing, and bicycles pay half of what a person pays."
)
TASKS = {
    "free": question(3),
    "quote": f"{_NOTES}\n\nRepeat the text above word for word.",
    "summarise": f"{_NOTES}\n\nWhat is this text about?",
}
