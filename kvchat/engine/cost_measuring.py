"""What decoding several tokens at once costs against one, measured: the curve that drafts are judged by.

Owns the measurement, in a context of its own whose cells are faked as in `tuning`; must not decide when, or remember
the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from kvchat.backend.values import EngineConfig
from kvchat.engine.context import Aborted, Context
from kvchat.engine.draft_costs import MOST_TOKENS, complete
from kvchat.engine.model import Model
from kvchat.engine.tuning import Interrupted, Setting, deep_context
from kvchat.errors import KvchatError

SIZES = (1, 2, 4, 8, MOST_TOKENS)  # tokens of the decodes that are timed; in between lie straight lines
ROUNDS = 4  # the first one warms up
SECONDS = 3.0  # that all of it may take; one whole round is made in any case


def measure_costs(
    model: Model, config: EngineConfig, setting: Setting, wanted: Callable[[], bool]
) -> tuple[float, ...]:
    """c(1), c(2), ... as `draft_costs.complete` makes them; empty for an architecture whose cells cannot be faked.
    Raises Interrupted when `wanted` says so."""
    deadline = time.monotonic() + SECONDS
    try:
        context = deep_context(model, config, setting, wanted)
    except Aborted:
        raise Interrupted from None
    except KvchatError:
        return ()
    seconds: dict[int, list[float]] = {size: [] for size in SIZES}
    try:
        for turn in range(ROUNDS):
            if turn > 1 and time.monotonic() > deadline:
                break
            for size in SIZES:
                took = _decode(context, size, wanted)
                if turn:
                    seconds[size].append(took)
    except Aborted:
        raise Interrupted from None
    finally:
        context.close()
    plain = statistics.median(seconds[1])
    return complete({size: statistics.median(took) / plain for size, took in seconds.items() if size > 1})


def _decode(context: Context, size: int, wanted: Callable[[], bool]) -> float:
    """Seconds of one decode with the logits of all its tokens."""
    if wanted():
        raise Interrupted
    start = context.memory.length
    began = time.perf_counter()
    context.decode([0] * size, start, output=size)
    context.native.synchronize()
    took = time.perf_counter() - began
    context.memory.truncate(start)  # where it cannot be cut the depth grows a little
    return took
