"""Whether to draft, and how many tokens: from how often drafts stand, and what checking them costs on this machine.

Owns the account that keeps losing drafts below a share of the decode time. Pure: it is told tokens and seconds, and
must not measure, draft or decode.

A draft of k tokens pays when the tokens that it is expected to give, over the cost of its decode relative to a plain
one, are more than one. Classes of drafts that do not pay are not used; a lookup, which costs nothing, is then watched
instead: what the model says next tells whether it would have stood. What costs time is tried again only as far as the
account allows. It is kept twice, for the session and for the turn, so that a short reply does not pay for what a long
one had saved up.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.engine.acceptance import ANY, Acceptance
from kvchat.engine.draft_costs import MOST_TOKENS, CostCurve, PlainStep
from kvchat.engine.drafting import DrafterKind

_PAYS = 1.03  # tokens per cost from which on a draft is used
_SURE = 1.2  # and from which on, with _EVIDENCE, its risk does not count
_EVIDENCE = 4.0  # drafts
_RIGHT = 0.75  # of first tokens that are right
_SHARE = 0.015  # of the decode time of a session may be lost
_TURN_SHARE = 0.025  # and of that of a turn
_FIRST_CREDIT = 0.25  # plain steps that a session may lose at its beginning
_TURN_CREDIT = 0.6  # and a turn, of what the session has: less than 3 % of 30 tokens
_MOST_CREDIT = 8.0  # plain steps that are saved up for later losses
_PROOF = 3.0  # plain steps that watched drafts would have gained: then the account is out of debt
_PLAIN_EVERY = 48  # verifications: then a plain step shows what it costs at the depth reached
_FIRST_TOKEN = 0.5  # a draft model reads what was said since, and so its first token takes so much more than others
_HORIZON = 24  # drafts whose gain may pay for reading what a draft model has not read
_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """One verification. Of `tokens` drafted ones the first `stood` stood. `seconds`: the decode, `beside`: what else it
    took. `ended`: the reply ended before the other tokens were tried."""

    tokens: int
    stood: int
    seconds: float
    beside: float = 0.0
    ended: bool = False


class DraftControl:
    """The control of one session. `begin` opens a turn."""

    def __init__(self, costs: CostCurve) -> None:
        self.costs = costs
        self.plain = PlainStep()
        self._credit: float | None = None  # seconds that may be lost now; None: no plain step was measured yet
        self._shown = 0.0  # plain steps that watched drafts would have gained
        self._extra = 0.0  # plain steps that a draft costs beside its decode: copies, tokens that are decoded again
        self._token_seconds: dict[DrafterKind, float] = {}  # that drafting one token more takes
        self.begin(None, forced=False)

    def begin(self, memory: str | None, *, forced: bool, pair: str = "", share: float = 0.0) -> None:
        """A turn begins. `memory`: what an earlier turn of the chat told. `forced`: drafts are wanted whether they pay
        or not; only their length is chosen. `pair`, `share`: those of the draft model, see
        `Drafter`."""
        self._forced = forced
        self._share = share
        self.acceptance = Acceptance.recalled(memory, pair)
        self._fresh = True
        self._spent = 0.0  # seconds of all steps of the turn
        self._gained = 0.0  # seconds that they would have taken more without drafts, negative for a loss
        self.checked = 0  # drafts that were checked in this turn

    # ---------------------------------------------------------------- questions

    @property
    def wants_plain(self) -> bool:
        """Whether a step without a draft is due, for its time."""
        return self._fresh or not self.plain.seconds or self.plain.age >= _PLAIN_EVERY

    def length(self, kind: DrafterKind, trust: int, most: int, *, drafted: bool = False) -> int:
        """Tokens of a draft that are worth it, at most `most`; 0: none. `trust` ANY: before it is drafted. `drafted`:
        what drafting took is spent already, and was allowed with what checking may cost."""
        if most < 1:
            return 0
        each = 0.0 if drafted else self._each(kind)
        reach = min(most, self.acceptance.reach(kind, trust))
        if kind == "model" and kind not in self._token_seconds:
            reach = 1  # what drafting takes is not known
        rates = {k: self._rate(kind, trust, k, each) for k in range(1, reach + 1)}
        best = max(rates, key=lambda k: rates[k])
        if self._forced:
            return best
        if kind == "model" and drafted:
            return best if rates[best] >= _PAYS else 0
        known, chance = self.acceptance.evidence(kind, trust) >= _EVIDENCE, self.acceptance.chance(kind, trust)
        if rates[best] < _PAYS:  # what is right so often is checked now and then: the cost may be another by now
            return 1 if (each or (known and chance >= _RIGHT)) and self._allows(self._risk(1, each)) else 0
        if rates[best] >= _SURE and known and self._credit is not None:
            return best if self._credit > 0 or self._proven() else 0
        # A lookup is watched for nothing until it is known; a draft model that is never used would never be.
        doubt = 1.0 if kind == "ngram" else 1.0 - chance
        return next(
            (k for k in range(best, 0, -1) if rates[k] >= _PAYS and self._allows(doubt * self._risk(k, each))), 0
        )

    @property
    def reading(self) -> float:
        """Seconds that reading a token of the past takes a draft model of which nothing is known: as if it were as
        large as the model, and read as many tokens at once as the cost curve knows."""
        return self.plain.seconds * self.costs.at(MOST_TOKENS) / MOST_TOKENS

    def may_catch_up(self, seconds: float) -> bool:
        """Whether a draft model may take so long, on the person's time, for bringing back and reading the past."""
        if self._forced:
            return True
        if not self.plain.seconds:
            return False
        cost = seconds / self.plain.seconds
        if self._allows(cost):
            return True
        rate = max(self._rate("model", ANY, k, self._each("model")) for k in (1, 2, 4))
        proven = self.acceptance.evidence("model", ANY) >= _EVIDENCE
        drafts = min(_HORIZON, self._spent / self.plain.seconds)  # a reply goes on about as long as it is by now
        return proven and cost <= drafts * (rate - 1.0)

    def believes_in(self, kind: DrafterKind) -> bool:
        """Whether drafts of this kind are thought to pay, by what is known."""
        each = self._each(kind)
        return self._forced or max(self._rate(kind, ANY, k, each) for k in (1, 2, 4, 8)) >= _PAYS

    @property
    def speedup(self) -> float:
        """Decode speed of the turn so far against plain decoding; 0: not known."""
        if not self.checked or not self.plain.seconds or self._spent <= 0:
            return 0.0
        return max(0.0, self._spent + self._gained) / self._spent

    # ---------------------------------------------------------------- measurements

    def plain_step(self, seconds: float) -> None:
        """A step without a draft."""
        self.plain.learn(seconds, first=self._fresh)
        self._fresh = False
        if self._credit is None:
            self._credit = _FIRST_CREDIT * seconds
        self._book(seconds, 0.0)

    def verified(self, kind: DrafterKind, trust: int, outcome: Outcome) -> None:
        """A draft was checked."""
        self.checked += 1
        self.acceptance.learn(kind, trust, outcome.tokens, outcome.stood, ended=outcome.ended)
        plain = self.plain.seconds
        self.plain.age += 1
        if not plain:
            return
        seconds = outcome.seconds + outcome.beside
        self.costs.learn(1 + outcome.tokens, outcome.seconds / plain)
        self._extra += _WEIGHT * (min(outcome.beside / plain, _MOST_CREDIT) - self._extra)
        self._book(seconds, (1 + outcome.stood) * plain - seconds)

    def repeated(self, seconds: float) -> None:
        """A decode of one new token, and of others that the last draft had taken from the cells with it."""
        plain = self.plain.seconds
        if plain:
            self._extra += _WEIGHT * min(max(0.0, seconds / plain - 1.0), _MOST_CREDIT)
            self._book(seconds, plain - seconds)

    def watched(self, kind: DrafterKind, trust: int, tokens: int, stood: int) -> None:
        """A draft was not used, and this is how many of its tokens came."""
        self.acceptance.learn(kind, trust, tokens, stood)
        gain = 1 + stood - self.costs.at(1 + tokens) - self._extra
        self._shown = max(0.0, self._shown + gain)

    def spent(self, seconds: float) -> None:
        """Time that drafts took otherwise."""
        self._book(seconds, -seconds)

    def drafted(self, kind: DrafterKind, tokens: int, seconds: float) -> None:
        """Drafting so many tokens took so long; none: nothing was found."""
        self._book(seconds, -seconds)
        each = seconds / (max(tokens, 1) + _FIRST_TOKEN)
        before = self._token_seconds.get(kind, each)
        self._token_seconds[kind] = before + _WEIGHT * (each - before)
        if not tokens and kind == "model":
            self.acceptance.learn(kind, ANY, 0, 0)

    # ---------------------------------------------------------------- the account

    def _book(self, seconds: float, gain: float) -> None:
        self._spent += seconds
        self._gained += gain
        if self._credit is not None:
            most = _MOST_CREDIT * self.plain.seconds
            self._credit = min(most, self._credit + _SHARE * seconds + gain)

    def _allows(self, risk: float) -> bool:
        """Whether so many plain steps may be lost."""
        if self._credit is None:
            return False
        turn = max(_TURN_CREDIT * self.plain.seconds, _TURN_SHARE * self._spent) + self._gained
        return risk * self.plain.seconds <= min(self._credit, turn) or self._proven()

    def _proven(self) -> bool:
        if self._shown < _PROOF or self._credit is None:
            return False
        self._shown = 0.0
        self._credit = max(self._credit, self.plain.seconds)
        return True

    def _risk(self, tokens: int, each: float) -> float:
        """Plain steps that a draft costs if nothing of it stands."""
        return self.costs.at(1 + tokens) - 1.0 + self._extra + each * (tokens + _FIRST_TOKEN)

    def _rate(self, kind: DrafterKind, trust: int, tokens: int, each: float) -> float:
        cost = self.costs.at(1 + tokens) + self._extra + each * (tokens + _FIRST_TOKEN)
        return self.acceptance.expected(kind, trust, tokens) / cost

    def _each(self, kind: DrafterKind) -> float:
        """Plain steps that drafting one token more takes."""
        if not self.plain.seconds or kind == "ngram":
            return 0.0
        return self._token_seconds.get(kind, self._share * self.plain.seconds) / self.plain.seconds
