"""What is in the page store, as a person sees it: chains.

Owns the grouping of pages into chains; reads the index only, and changes nothing. Pages of another version of the
format, of which no tokens are known, are left out: `verify` counts them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.lineage import lineage
from kvchat.kv.namespace import Namespace
from kvchat.kv.rows import Row

SHORT_KEY = 12  # hex digits


@dataclass(frozen=True, slots=True)
class Chain:
    """A maximal run of pages without branching, so that pages which chats share are listed once.

    `chain` is the beginning of its first page's key, `parent` that of the chain from which it branches off, or with
    which it goes on after something was evicted (None: it begins a conversation, or what was before it is gone).
    `start` is the position of its first token, `hits` how often it was reused, `last_use` seconds since the epoch.
    `bytes` are those of pages and checkpoints, `checkpoint_bytes` those of its checkpoints (recurrent states) alone.
    `lineage`: the cache types from which its rows were transcoded, empty when all were computed. `draft`: only a draft
    model has had a use for it. `model` and the types are empty when nothing describes them.
    """

    chain: str
    parent: str | None
    model: str
    type_k: str
    type_v: str
    start: int
    tokens: int
    pages: int
    checkpoints: int
    bytes: int
    checkpoint_bytes: int
    last_use: float
    hits: int
    seconds_saved: float
    lineage: str
    draft: bool
    pinned: bool


@dataclass(frozen=True, slots=True)
class ChainPages:
    """A chain with its pages and its checkpoints in order, and what their namespace says."""

    chain: Chain
    pages: tuple[Row, ...]
    checkpoints: tuple[Row, ...]
    namespace: Namespace | None


def chains(path: Path) -> list[Chain]:
    """All chains of a page store, of all namespaces, the last used first."""
    return [found.chain for found in _all(path)]


def chain_pages(path: Path, prefix: str) -> ChainPages:
    """The chain whose name begins with `prefix`. Raises KvchatError when there is none, or more than one."""
    fitting = [found for found in _all(path) if prefix and found.pages[0].key.hex().startswith(prefix.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise KvchatError(f"there is no chain {prefix!r}", "`kvchat kv ls` lists them")
    names = ", ".join(found.chain.chain for found in fitting[:5])
    raise KvchatError(f"{len(fitting)} chains begin with {prefix!r}", f"say more of one: {names}")


def _all(path: Path) -> list[ChainPages]:
    if not path.is_dir():
        return []
    folder = PageFolder(path)
    with closing(PageIndex(folder)) as index:
        rows = [row for row in index.rows() if row.ids]
    namespaces = folder.namespaces()
    states: defaultdict[tuple[str, bytes], list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind == "checkpoint":
            states[row.namespace, row.parent].append(row)
    found = [
        _describe(run, _within(run, states), parent, namespaces.get(run[0].namespace))
        for run, parent in _runs([row for row in rows if row.kind == "page"])
    ]
    return sorted(found, key=lambda each: (-each.chain.last_use, each.chain.start, each.chain.chain))


def _runs(rows: Sequence[Row]) -> Iterator[tuple[list[Row], str | None]]:
    """Runs of pages, each with the name of the run from which it branches off, or goes on after an eviction."""
    children: defaultdict[tuple[str, bytes], list[Row]] = defaultdict(list)
    known = {(row.namespace, row.key) for row in rows}
    for row in rows:
        children[row.namespace, row.before].append(row)
    pending: list[tuple[Row, str | None]] = [(row, None) for row in rows if (row.namespace, row.before) not in known]
    while pending:
        row, parent = pending.pop()
        run = [row]
        while len(after := children[row.namespace, row.key]) == 1 and not after[0].after:
            row = after[0]
            run.append(row)
        yield run, parent
        pending += [(child, _name(run)) for child in after]


def _within(run: Sequence[Row], states: dict[tuple[str, bytes], list[Row]]) -> list[Row]:
    """The checkpoints within the pages of a run, taken out of `states`: where runs share one, it is listed once."""
    found = []
    for page in run:
        beside = states.get((page.namespace, page.parent), [])
        mine = [state for state in beside if page.ids.startswith(state.ids)]
        found += sorted(mine, key=lambda state: state.tokens)
        states[page.namespace, page.parent] = [state for state in beside if state not in mine]
    return found


def _name(run: Sequence[Row]) -> str:
    return run[0].key.hex()[:SHORT_KEY]


def _describe(run: Sequence[Row], states: Sequence[Row], parent: str | None, namespace: Namespace | None) -> ChainPages:
    every = (*run, *states)
    chain = Chain(
        chain=_name(run),
        parent=parent,
        model=namespace.model if namespace else "",
        type_k=namespace.type_k if namespace else "",
        type_v=namespace.type_v if namespace else "",
        start=run[0].position,
        tokens=sum(row.tokens for row in run),
        pages=len(run),
        checkpoints=len(states),
        bytes=sum(row.bytes for row in every),
        checkpoint_bytes=sum(row.bytes for row in states),
        last_use=max(row.last_use for row in every),
        hits=max(row.hits for row in every),
        seconds_saved=sum(row.seconds_saved for row in every),
        lineage=lineage((row.tag, row.tokens) for row in run),
        draft=all(row.draft for row in run),
        pinned=any(row.pinned for row in run),
    )
    return ChainPages(chain, tuple(run), tuple(states), namespace)
