"""How often drafted tokens stand, learned per drafter and class of draft, and remembered with a chat.

Owns the counts and what is expected of a draft by them; pure. Must not know what a draft costs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kvchat.engine.draft_costs import MOST_TOKENS
from kvchat.engine.drafting import DrafterKind

_KEEP = 0.85  # of the old counts at every new draft: about the last ten count
_PRIOR = 2.0  # drafts that the expectation of a class is worth before there were any
_LATER = 0.75  # expected of a token whose drafted predecessors all stood
_FIRST: dict[DrafterKind, tuple[float, ...]] = {  # expected of the first token, by class
    "ngram": (0.2, 0.35, 0.5, 0.6, 0.75, 0.85),
    "model": (0.5, 0.7, 0.85),
}
ANY = -1  # the class of all drafts of a drafter together, for asking before the class is known
_FIRST_OF_ANY: dict[DrafterKind, float] = {"ngram": 0.4, "model": 0.65}
_REACH = {"ngram": (3, 3, 3, 4, 6, 8), "model": (3, 3, 4)}  # tokens of the first drafts, by class
_REACH_OF_ANY = 4
MOST = MOST_TOKENS - 1  # tokens of a draft
_MEMORY_VERSION = 1
_MOST_COUNT = 100.0
_LONGEST_PAIR = 64  # characters


@dataclass(slots=True)
class Odds:
    """Decayed counts: drafts, those whose first token stood, later tokens that were tried, those that stood. `reach`:
    tokens that the next draft may have: more after drafts that stood whole, fewer after others."""

    drafts: float = 0.0
    first: float = 0.0
    tried: float = 0.0
    stood: float = 0.0
    reach: int = 1

    def told(self) -> list[float]:
        return [*(round(each, 2) for each in (self.drafts, self.first, self.tried, self.stood)), self.reach]


class Acceptance:
    """The odds of one chat. Those of a draft model are those of one `pair`, see `Drafter`; empty: it is not known."""

    def __init__(self, pair: str = "") -> None:
        self._odds: dict[tuple[DrafterKind, int], Odds] = {}
        self._pair = pair

    def learn(self, kind: DrafterKind, trust: int, tokens: int, stood: int, *, ended: bool = False) -> None:
        """Of a draft of so many tokens the first `stood` stood. `ended`: the reply ended before the others were tried.
        A draft of no token, where one was asked for, is one whose first token did not stand."""
        for each in {trust, ANY}:
            _learn(self._odds.setdefault((kind, each), self._of(kind, each)), tokens, stood, ended=ended)

    def expected(self, kind: DrafterKind, trust: int, tokens: int) -> float:
        """Tokens that a decode with a draft of so many gives: the target's own one, and those that stand."""
        first, later = self._chances(kind, trust)
        return 1.0 + first * sum(later**n for n in range(tokens))

    def chance(self, kind: DrafterKind, trust: int) -> float:
        """How probable it is that the first token of a draft stands."""
        return self._chances(kind, trust)[0]

    def reach(self, kind: DrafterKind, trust: int) -> int:
        """Tokens that the next draft of a class may have."""
        return self._of(kind, trust).reach

    def evidence(self, kind: DrafterKind, trust: int) -> float:
        """Drafts of a class that were tried of late, a decayed count."""
        return self._of(kind, trust).drafts

    def _of(self, kind: DrafterKind, trust: int) -> Odds:
        reaches = _REACH[kind]
        first = _REACH_OF_ANY if trust == ANY else reaches[min(trust, len(reaches) - 1)]
        return self._odds.get((kind, trust)) or Odds(reach=first)

    def _chances(self, kind: DrafterKind, trust: int) -> tuple[float, float]:
        priors = _FIRST[kind]
        prior = _FIRST_OF_ANY[kind] if trust == ANY else priors[min(trust, len(priors) - 1)]
        odds = self._of(kind, trust)
        first = (odds.first + _PRIOR * prior) / (odds.drafts + _PRIOR)
        return first, (odds.stood + _PRIOR * max(_LATER, first)) / (odds.tried + _PRIOR)

    # ---------------------------------------------------------------- remembered with the chat

    def told(self) -> str | None:
        """What `recalled` reads; None when nothing was learned."""
        if not self._odds:
            return None
        odds = {f"{kind} {trust}": each.told() for (kind, trust), each in sorted(self._odds.items())}
        told: dict[str, object] = {"v": _MEMORY_VERSION, "odds": odds}
        if self._pair:
            told["pair"] = self._pair
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def recalled(cls, text: str | None, pair: str = "") -> Acceptance:
        """What another turn learned. Whatever is not in order is not known, nor is what was learned of another draft
        model than that of `pair`; without a pair it is kept as it is."""
        told = _told(text)
        odds, before = told.get("odds"), told.get("pair")
        before = before if isinstance(before, str) and len(before) <= _LONGEST_PAIR else ""
        made = cls(pair or before)
        for kind, first in _FIRST.items():
            if kind == "model" and before != made._pair:
                continue
            for trust in (ANY, *range(len(first))):
                entry = _read(odds.get(f"{kind} {trust}")) if isinstance(odds, dict) else None
                if entry is not None:
                    made._odds[kind, trust] = entry
        return made


def _learn(odds: Odds, tokens: int, stood: int, *, ended: bool) -> None:
    if ended and not stood:
        return
    for name in ("drafts", "first", "tried", "stood"):
        setattr(odds, name, getattr(odds, name) * _KEEP)
    failed = not ended and stood < tokens
    odds.drafts += 1
    odds.first += stood > 0
    odds.stood += max(0, stood - 1)
    odds.tried += max(0, stood - 1) + (failed and stood > 0)
    if failed or not tokens:
        odds.reach = max(1, min(odds.reach, stood + 1))
    elif stood == tokens:
        odds.reach = min(MOST, odds.reach + tokens)


def _told(text: str | None) -> dict[str, object]:
    try:
        told = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) and told.get("v") == _MEMORY_VERSION else {}


def _read(entry: object) -> Odds | None:
    if not isinstance(entry, list) or len(entry) != 5:
        return None
    if not all(type(each) in (int, float) and 0 <= each <= _MOST_COUNT for each in entry):
        return None
    drafts, first, tried, stood, reach = entry
    if first > drafts or stood > tried:
        return None
    return Odds(float(drafts), float(first), float(tried), float(stood), max(1, min(MOST, int(reach))))
