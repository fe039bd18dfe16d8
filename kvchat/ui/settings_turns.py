"""The page of how turns are computed: how many at once, what goes first, what is read ahead. A part of the engine's
configuration that has a page of its own; see `EnginePage`.
"""

from __future__ import annotations

from kvchat.ui.settings_engine import EnginePage
from kvchat.ui.settings_fields import TURN_FIELDS


class TurnsPage(EnginePage):
    """What holds for turns, and not for the model."""

    NAME = "Turns"
    FIELDS = TURN_FIELDS
    DRAFTS = False
