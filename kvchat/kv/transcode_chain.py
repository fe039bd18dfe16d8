"""A chain of pages written once more in another cache type, beside the pages that there are.

Owns the walk along the chain and the tags of what is written; must not know engines. Pages that are there already are
left alone, so that a run that was stopped can be started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.page import PageHeader, chain_packed
from kvchat.formats.rows import Part
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.lineage import passed, sources_of, tag_of
from kvchat.kv.namespace import Namespace
from kvchat.kv.newpage import NewPage, NewRows
from kvchat.kv.pagefile import Wanted, opened, read_header, read_rows
from kvchat.kv.rows import Row, check_name
from kvchat.kv.store import PageStore
from kvchat.kv.transcode import Transcoder
from kvchat.kv.transcode_pages import page_as

_PARTS: dict[str, Part] = {"full": "full", "window": "window", "state": "state"}


@dataclass(frozen=True, slots=True)
class ChainWritten:
    """What came of it: `tokens` of the chain in `pages` pages, of which those that were not there yet, and the
    checkpoints among them, took `written_bytes` of the disk. `last`: the key of the last page."""

    tokens: int
    pages: int
    written: int
    written_bytes: int
    last: bytes


def transcode_chain(
    path: Path, budget: int, source: Namespace, last: bytes, target: Namespace, transcoder: Transcoder
) -> ChainWritten:
    """Write the chain that ends with page `last` of a namespace into another one. Raises KvchatError (FormatError,
    StoreUnwritable) when a page is missing, damaged or cannot be written; what was written before is sound."""
    folder = PageFolder(path)
    with closing(PageIndex(folder)) as index, closing(PageStore(path, target, budget)) as store:
        rows = _chain(index, source, last)
        key, written, size = target.root, 0, 0
        store.protect([row.key for row in rows])
        for row in rows:
            states = index.checkpoints(source.id, [(row.parent, row.ids)])
            for each in (row, *states):
                page = page_as(_read(folder, each, source, key, transcoder), transcoder)
                put = store.put(page)
                written, size = written + bool(put), size + put
            key = chain_packed(key, _tag(row, transcoder), row.ids)
    return ChainWritten(sum(row.tokens for row in rows), len(rows), written, size, key)


def _chain(index: PageIndex, source: Namespace, last: bytes) -> Sequence[Row]:
    """The pages from the beginning of the conversation to `last`."""
    rows: list[Row] = []
    key = last
    while key != source.root:
        row = index.get(source.id, key)
        if row is not None and row.after:
            raise KvchatError(
                "tokens were evicted in this chain, and the part before that has other rows",
                "its chat takes all of it along: open it and choose the type with /cache",
            )
        if row is None:
            raise KvchatError(
                "the beginning of this chain is not in the store any more",
                "without it the rest is of no use; its chat computes it again when it goes on",
            )
        rows.append(row)
        key = row.parent
    return rows[::-1]


def _read(folder: PageFolder, row: Row, source: Namespace, parent: bytes, transcoder: Transcoder) -> NewPage:
    try:
        with opened(folder.path(source.id, row.key)) as fd:
            header = read_header(fd)
            check_name(header, source.id, row.key)
            groups = tuple(_rows(fd, header, group.name) for group in header.groups)
    except FormatError as error:
        raise FormatError(f"a page of this chain is damaged: {error}", "`kvchat kv verify` moves it away") from error
    except OSError as error:
        raise KvchatError(f"a page of this chain cannot be read: {error.strerror}", "`kvchat kv verify`") from error
    tag = _tag(row, transcoder) if row.kind == "page" else ""
    return NewPage(parent, tag, header.ids, header.position, groups, header.labels, header.seconds, row.kind)


def _rows(fd: int, header: PageHeader, name: str) -> NewRows:
    group, _ = header.group(name)
    parts = tuple(np.empty(group.cells * row, np.uint8).data for row in group.rows)
    skip = group.start - header.position
    if group.cells:
        read_rows(fd, header, Wanted(name, skip, skip + group.cells, parts))
    return NewRows(_PARTS[name], group.shapes, group.cells, parts if group.cells else ())


def _tag(row: Row, transcoder: Transcoder) -> str:
    return tag_of([passed(source, transcoder.source.name) for source in sources_of(row.tag, row.tokens)])
