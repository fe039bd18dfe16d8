"""The environment of the processes that compute. Owns what is added to that of the app; starts nothing."""

from __future__ import annotations

import os

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def environment() -> dict[str, str]:
    """numpy's products of matrices in one thread: with more, of which each waits for the others in a loop, turning the
    rows of a cache takes a hundred times as long while other programs are busy. What a person has set stays."""
    return _ONE_THREAD | os.environ
