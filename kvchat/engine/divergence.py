"""How far one set of logits is from another: divergence, agreement, perplexity. Pure; must not run a model.

Logarithms are natural, divergences in nats. Kullback-Leibler divergence as in llama.cpp's `perplexity --kl-divergence`:
of the tested distribution from the reference, `sum(p * (log p - log q))`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_ROWS = 16  # positions at a time: the vocabulary in float64 is large
_TINY = 1e-12  # of a probability that is told as 0


@dataclass(frozen=True, slots=True)
class Differences:
    """Of each position, float64 (positions,): the divergence `kl`, whether the likeliest token is the `same` (0 or 1),
    and the negative log likelihood of the token that follows, by the reference and by what was tested; NaN where none
    follows."""

    kl: Values
    same: Values
    reference_nll: Values
    nll: Values

    def __len__(self) -> int:
        return len(self.kl)


def differences(reference: Logits, tested: Logits, following: Sequence[int]) -> Differences:
    """Compare logits (positions, vocabulary) position by position. `following`: the next token of each position, one
    fewer where the text ends."""
    parts = []
    for start in range(0, len(reference), _ROWS):
        stop = min(start + _ROWS, len(reference))
        log_p, log_q = log_softmax(reference[start:stop]), log_softmax(tested[start:stop])
        part = np.full((4, stop - start), np.nan)
        part[0] = np.maximum(np.sum(np.exp(log_p) * (log_p - log_q), axis=1), 0.0)  # rounding can make it negative
        part[1] = np.argmax(log_p, axis=1) == np.argmax(log_q, axis=1)
        ids = np.asarray(following[start:stop], np.intp)
        rows = np.arange(len(ids))
        part[2, : len(ids)] = -log_p[rows, ids]
        part[3, : len(ids)] = -log_q[rows, ids]
        parts.append(part)
    return Differences(*(np.concatenate(parts, axis=1) if parts else np.empty((4, 0))))


def joined(parts: Sequence[Differences]) -> Differences:
    """Differences of consecutive positions as one."""
    names = ("kl", "same", "reference_nll", "nll")
    return Differences(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def log_softmax(logits: npt.NDArray[np.floating]) -> Values:
    """Log probabilities along the last axis."""
    values = logits.astype(np.float64)
    values -= np.max(values, axis=-1, keepdims=True)
    values -= np.log(np.sum(np.exp(values), axis=-1, keepdims=True))
    return values


# ------------------------------------------------------------------ of the likeliest tokens only


def likeliest(logits: Logits, count: int) -> dict[int, float]:
    """Log probabilities of the `count` likeliest tokens of one position, the likeliest first."""
    log_p = log_softmax(logits)
    count = min(count, len(log_p))
    best = np.argpartition(-log_p, count - 1)[:count]
    best = best[np.argsort(-log_p[best], kind="stable")]
    return {int(token): float(log_p[token]) for token in best}


def coarse_divergence(kept: Mapping[int, float], logits: Logits) -> float:
    """Divergence of a distribution of which only the likeliest tokens were kept, all others being one event: at most
    that of the whole one."""
    log_q = log_softmax(logits)
    tokens = np.fromiter(kept, np.intp, len(kept))
    log_p = np.fromiter(kept.values(), np.float64, len(kept))
    p, q = np.exp(log_p), np.exp(log_q[tokens])
    divergence = float(np.sum(p * (log_p - log_q[tokens])))
    rest_p, rest_q = max(1.0 - float(p.sum()), 0.0), max(1.0 - float(q.sum()), _TINY)
    if rest_p > _TINY:
        divergence += rest_p * float(np.log(rest_p / rest_q))
    return max(divergence, 0.0)
