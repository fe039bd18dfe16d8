"""What several answers to one message differ in: a seed or a temperature each. Owns how that is asked for and drawn.

Pure but for the drawing of seeds. Must not know a conversation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvchat.backend.choices import MOST_PARALLEL
from kvchat.backend.values import Sampling
from kvchat.config_options import BY_KEY, LARGEST_SEED
from kvchat.config_values import BadValue
from kvchat.errors import KvchatError

USUAL = 3  # answers, when nobody says how many
DRAWN_SEEDS = 1_000_000  # a drawn seed is below: it is told, and somebody may type it
_KEYS = ("temp", "seed")
_FORMS = "such as 3, or 3 0.2 0.8 1.2 for a temperature each, or seed 7 8 for seeds"
SAME = "at temperature 0 all of them are the same; a temperature for each, or one above 0, makes them differ"


def differing(sampling: Sampling, count: int) -> tuple[Sampling, ...]:
    """So many, each with a seed of its own: that of `sampling` and those after it, or drawn ones. KvchatError when it
    cannot be so many."""
    if not 2 <= count <= MOST_PARALLEL:
        raise KvchatError(f"there cannot be {count} answers side by side", f"from 2 to {MOST_PARALLEL} can, {_FORMS}")
    if sampling.seed is None:
        seeds = random.SystemRandom().sample(range(DRAWN_SEEDS), count)
    else:
        seeds = [(sampling.seed + number) % (LARGEST_SEED + 1) for number in range(count)]
    return tuple(replace(sampling, seed=seed) for seed in seeds)


def wished(words: str, sampling: Sampling) -> tuple[Sampling, ...]:
    """What a person asked for after /alt: a number of answers, what they differ in, or both; "" for the usual number.
    KvchatError when it is none of these."""
    values = words.lower().split() or [str(USUAL)]
    count = None if values[0] in _KEYS else _count(values.pop(0))
    named = values.pop(0) if values and values[0] in _KEYS else None
    if not values and named is None:
        return differing(sampling, count or USUAL)
    if count is not None and len(values) != count:
        raise KvchatError(f"{count} answers, but {len(values)} values for them", f"one for each, {_FORMS}")
    key = named or ("temp" if any("." in value for value in values) else "seed")
    return _with(key, values, differing(sampling, len(values)), sampling)


def all_alike(samplings: Sequence[Sampling]) -> bool:
    """Whether there is nothing that could make them differ."""
    return all(sampling.temperature == 0 for sampling in samplings)


def label(sampling: Sampling, among: Sequence[Sampling]) -> str:
    """What is its own in this one of several, for a person."""
    warmth = f"temperature {sampling.temperature:g}"
    seed = "" if sampling.seed is None else f"seed {sampling.seed}"
    told = (warmth if len({each.temperature for each in among}) > 1 else "", seed)
    return ", ".join(part for part in told if part)


def _with(key: str, values: list[str], drawn: Sequence[Sampling], sampling: Sampling) -> tuple[Sampling, ...]:
    try:
        read: list[Any] = [BY_KEY[key].read(value) for value in values]
    except BadValue as bad:
        raise KvchatError(bad.problem, bad.hint) from None
    if key == "seed":
        return tuple(each if seed is None else replace(each, seed=seed) for each, seed in zip(drawn, read, strict=True))
    seeds = [sampling.seed if sampling.seed is not None else each.seed for each in drawn]  # a fair comparison
    return tuple(replace(sampling, temperature=each, seed=seed) for each, seed in zip(read, seeds, strict=True))


def _count(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 4):
        raise KvchatError(f"{word[:20]!r} is no number of answers", f"from 2 to {MOST_PARALLEL}, {_FORMS}")
    return int(word)
