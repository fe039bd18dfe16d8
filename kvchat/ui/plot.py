"""Line plots on the screen: those of `kvchat.plotting` in the colours of the theme. Owns no more than that."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kvchat import plotting
from kvchat.plotting import EDGE, LABEL, Run, Series

_STYLES = {EDGE: "$edge", LABEL: "$meta"}


def plot(series: Sequence[Series], width: int, height: int, last: int) -> list[Content]:
    """`height` lines of `width` cells: the series for x from 1 to `last`, above an axis with whole numbers."""
    return [Content.assemble(*map(_styled, line)) for line in plotting.plot(series, width, height, last)]


def _styled(run: Run) -> Content:
    text, style = run
    return Content.styled(text, _STYLES.get(style, style)) if style else Content(text)
