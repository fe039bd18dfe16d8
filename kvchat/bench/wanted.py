"""What is to be measured, and how much of it: types, threads, depths, rounds; the sizes that suit a machine's speed.

Owns these choices. Must not measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvchat.backend.fidelity import Pair
from kvchat.errors import UsageError
from kvchat.kv.ledger import CELLS

PARTS = ("speed", "restore", "resume", "drafts", "memory", "fidelity")
USUAL = ("memory", "speed", "restore", "resume", "drafts")  # where nobody says which
PAIRS: tuple[Pair, ...] = (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))
DEPTHS, QUICK_DEPTHS = (0, 1024, 4096, 8192), (0, 1024)
ROUNDS, QUICK_ROUNDS, MOST_ROUNDS = 3, 2, 100
MOST_THREADS, DEEPEST = 1024, 1 << 20
_READING, _QUICK_READING = 150.0, 30.0  # seconds that reading a prompt once, to get to a depth, may take
_STEP = 128  # tokens; lengths are multiples of a page


@dataclass(frozen=True, slots=True)
class Wanted:
    """`threads` empty: those that the engine finds best. `depths` None: the usual ones, as far as they can be reached
    in reasonable time. `rounds`: how often each thing is measured."""

    parts: tuple[str, ...] = USUAL
    pairs: tuple[Pair, ...] = PAIRS
    threads: tuple[int, ...] = ()
    depths: tuple[int, ...] | None = None
    rounds: int = ROUNDS
    quick: bool = False

    def context(self, trained: int) -> int:
        """Tokens of a context for all of that, at most what the model was trained for; 0: that is not known."""
        deepest = max(self.depths or (QUICK_DEPTHS if self.quick else DEPTHS))
        needed = max(-(-(deepest + 512) // CELLS) * CELLS, 2560)
        return min(needed, trained or needed)

    def depths_within(self, context: int, tail: int, rate: float) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Depths behind which `tail` tokens fit into a context, at a prefill of `rate` tokens a second, and notes about
        what is left out."""
        room, notes, found = (context - tail) // _STEP * _STEP, [], []
        for depth in self.depths or (QUICK_DEPTHS if self.quick else DEPTHS):
            at = min(depth, max(0, room))
            if at < depth and at in found:
                notes.append(f"depth {depth:,} is left out: the context ends at {context:,} tokens")
                continue
            seconds = at / rate
            if self.depths is None and seconds > (_QUICK_READING if self.quick else _READING):
                notes.append(
                    f"depth {depth:,} is left out: reading so far would take about {seconds:,.0f} seconds here "
                    f"(--depths {depth} does it all the same)"
                )
                continue
            if at < depth:
                notes.append(f"depth {at:,} in place of {depth:,}: the context ends at {context:,} tokens")
            found.append(at)
        return tuple(found), tuple(notes)

    def chat_tokens(self, rate: float, context: int) -> int:
        """Tokens of a chat that is saved and restored: a few seconds of reading."""
        seconds, most = (3, 1024) if self.quick else (5, 2048)
        return _bounded(rate * seconds, 2 * _STEP, min(most, (context - 64) // _STEP * _STEP))

    def turn_tokens(self, rate: float, context: int, turns: int) -> int:
        """Tokens of each of so many turns, when a chat is also read from its beginning in every turn."""
        seconds = 12 if self.quick else 45
        return _bounded(rate * seconds / (turns * (turns + 1) / 2), 64, min(256, (context - 64) // (turns + 1)), 32)


def _bounded(value: float, least: int, most: int, step: int = _STEP) -> int:
    """`value` in whole steps, within bounds; the upper one counts more."""
    return max(1, min(max(int(value) // step * step, least), most))


def read_threads(text: str) -> tuple[int, ...]:
    """ "1,2" as numbers, "0", which is automatic, as none. UsageError."""
    return () if text.strip() == "0" else _numbers("--threads", text, 1, MOST_THREADS, "for example --threads 1,2")


def read_depths(text: str) -> tuple[int, ...]:
    """ "0,1024" as numbers, ascending. UsageError."""
    return tuple(sorted(_numbers("--depths", text, 0, DEEPEST, "for example --depths 0,1024")))


def read_rounds(text: str) -> int:
    """How often each thing is measured. UsageError."""
    found = _numbers("--repeat", text, 1, MOST_ROUNDS, "for example --repeat 5")
    if len(found) != 1:
        raise UsageError(f"--repeat {text!r}: this is one number", "for example --repeat 5")
    return found[0]


def _numbers(flag: str, text: str, least: int, most: int, hint: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 9 and least <= int(part) <= most for part in parts):
        raise UsageError(f"{flag} {text!r}: each is a number from {least} to {most:,}", hint)
    return tuple(dict.fromkeys(map(int, parts)))


def read_parts(words: Sequence[str]) -> tuple[str, ...]:
    """What to measure, in the usual order, without repetitions. UsageError: there is no such part."""
    for word in words:
        if word not in PARTS:
            raise UsageError(f"kvchat bench does not measure {word!r}", f"there are: {', '.join(PARTS)}")
    order = (*USUAL, *(part for part in PARTS if part not in USUAL))
    return tuple(part for part in order if part in words) if words else USUAL


def pair_name(pair: Pair) -> str:
    """ "q8_0", or "q8_0/q4_0" where K and V differ."""
    return pair[0] if pair[0] == pair[1] else f"{pair[0]}/{pair[1]}"
