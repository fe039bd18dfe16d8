"""Where rows come from, and how the tag of a page says it.

Owns the words. The *source* of a row that was computed in its cache is empty; that of a row that was transcoded names
the types that it had before, the last one last: "f16", "f16>q8_0". The tag of a page is the source of its rows or,
where they differ, its runs of rows: "f16:60,computed:68".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

COMPUTED = ""

_WORD = "computed"
_RUN = re.compile(r"([^:,]+):([0-9]{1,4})")


def tag_of(sources: Sequence[str]) -> str:
    """The tag of a page with rows of these sources; empty when all were computed."""
    runs = [(source, len(list(run))) for source, run in groupby(sources)]
    if len(runs) == 1:
        return runs[0][0]
    return ",".join(f"{source or _WORD}:{count}" for source, count in runs)


def sources_of(tag: str, rows: int) -> list[str]:
    """The source of each row of a page with this tag. One that `tag_of` never made is taken for a source."""
    runs = [_RUN.fullmatch(run) for run in tag.split(",")]
    found = [COMPUTED if run[1] == _WORD else run[1] for run in runs if run for _ in range(int(run[2]))]
    return found if all(runs) and len(found) == rows else [tag] * rows


def lineage(tags: Iterable[tuple[str, int]]) -> str:
    """The sources of pages, each given by its tag and number of rows, in words: "f16, computed"; empty when all rows
    were computed."""
    sources = (source for tag, rows in tags for source in (sources_of(tag, rows) if tag else [tag]))
    names = list(dict.fromkeys(source or _WORD for source in sources))
    return "" if names == [_WORD] else ", ".join(names)


def passed(source: str, form: str) -> str:
    """The source of a row after it was transcoded from `form` to another one. A type that it comes back to is named
    once, so that a source is never longer than there are types."""
    return ">".join([*(step for step in source.split(">") if step not in ("", form)), form])
