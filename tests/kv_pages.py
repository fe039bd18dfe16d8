"""Small pages whose every row says which token, layer and part it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kvchat.formats.page import chain_tokens, pack_ids
from kvchat.formats.rows import LayerShape, Part
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.namespace import Namespace
from kvchat.kv.rows import Row
from kvchat.kv.store import PAGE_TOKENS, Checkpoint, Hit, NewPage, NewRows, PageStore, Wanted

SHAPES: dict[Part, tuple[LayerShape, ...]] = {
    "full": (LayerShape(1, 6, 1, 4), LayerShape(1, 8, 1, 2)),
    "window": (LayerShape(1, 5, 1, 3),),
    "state": (LayerShape(0, 0, 0, 40), LayerShape(0, 12, 0, 8)),  # the first has no rolling part
}
BUFFERS: dict[Part, tuple[int, ...]] = {  # bytes of a row in each buffer of the payload: K, then V; R, then S
    "full": (6, 8, 4, 2),
    "window": (5, 3),
    "state": (12, 40, 8),
}
ROWS = BUFFERS["full"]
TOKEN_BYTES, WINDOW_BYTES, STATE_BYTES = (sum(sizes) for sizes in BUFFERS.values())
LABELS = {"flash_attention": "off"}
SECONDS = 2.0
SEEDS: dict[Part, int] = {"full": 0, "window": 97, "state": 181}


def namespace(**changes: object) -> Namespace:
    fields: dict[str, object] = {
        "fingerprint": "ab" * 16,
        "model": "Tiny",
        "lora": "",
        "rope": (("base", 10000.0), ("factors", "short")),
        "type_k": "f16",
        "type_v": "f16",
        "rotation": False,
        "backend_version": "0.3.36",
    }
    return Namespace(**(fields | changes))  # type: ignore[arg-type]


def rows(ids: Sequence[int], buffer: int, part: Part = "full") -> bytes:
    """Rows of these tokens in one buffer of the payload of a part."""
    numbers = np.asarray(ids, np.int64)[:, None] * 13 + buffer * 5 + SEEDS[part] + np.arange(BUFFERS[part][buffer])
    return (numbers % 251).astype(np.uint8).tobytes()


def all_rows(ids: Sequence[int], part: Part = "full") -> list[bytes]:
    return [rows(ids, buffer, part) for buffer in range(len(BUFFERS[part]))]


def new_rows(part: Part, ids: Sequence[int], cells: int) -> NewRows:
    """Rows of the last `cells` of these tokens."""
    parts = tuple(memoryview(raw) for raw in all_rows(ids[len(ids) - cells :], part))
    return NewRows(part, SHAPES[part], cells, parts)


def page(
    parent: bytes,
    ids: Sequence[int],
    position: int,
    *,
    tag: str = "",
    seconds: float = SECONDS,
    window: int | None = None,
    after: bytes = b"",
) -> NewPage:
    """A page of a model without a window; `window`: of one with a window, with its rows of the last so many tokens."""
    groups = [new_rows("full", ids, len(ids))]
    if window is not None:
        groups.append(new_rows("window", ids, window))
    return NewPage(parent, tag, tuple(ids), position, tuple(groups), LABELS, seconds, after=after)


def empty_page(parent: bytes, ids: Sequence[int], position: int) -> NewPage:
    """A page of a model without keys and values."""
    return NewPage(parent, "", tuple(ids), position, (), LABELS, SECONDS)


def state_after(ids: Sequence[int]) -> list[bytes]:
    """The recurrent state after a history: every token counts."""
    return all_rows([sum(number * token for number, token in enumerate(ids, 1))], "state")


def checkpoint(ids: Sequence[int], parent: bytes, seconds: float = 0.0) -> NewPage:
    """The state after the history `ids`, of which the tokens of the last page come after `parent`."""
    start = (len(ids) - 1) // PAGE_TOKENS * PAGE_TOKENS
    parts = tuple(memoryview(raw) for raw in state_after(ids))
    groups = (NewRows("state", SHAPES["state"], 1, parts),)
    return NewPage(parent, "", tuple(ids[start:]), start, groups, LABELS, seconds, "checkpoint")


def put_chat(store: PageStore, ids: Sequence[int]) -> list[bytes]:
    """Write a whole history, full pages and tail; the keys of its pages."""
    keys: list[bytes] = []
    parent = store.namespace.root
    for start in range(0, len(ids), PAGE_TOKENS):
        piece = ids[start : start + PAGE_TOKENS]
        store.put(page(parent, piece, start))
        parent = chain_tokens(parent, "", piece)
        keys.append(parent)
    return keys


def put_state(store: PageStore, ids: Sequence[int]) -> int:
    """Write the checkpoint at the end of a history whose pages have no tags."""
    parent = store.namespace.root
    for start in range(0, (len(ids) - 1) // PAGE_TOKENS * PAGE_TOKENS, PAGE_TOKENS):
        parent = chain_tokens(parent, "", ids[start : start + PAGE_TOKENS])
    return store.put(checkpoint(ids, parent))


def put_states(store: PageStore, ids: Sequence[int], ends: Sequence[int]) -> None:
    for end in ends:
        put_state(store, ids[:end])


def read(store: PageStore, hit: Hit, skip: int = 0, part: Part = "full") -> list[bytes]:
    buffers = [np.zeros((hit.take - skip) * row, np.uint8) for row in BUFFERS[part]]
    store.read(hit, [Wanted(part, skip, hit.take, [buffer.data for buffer in buffers])])
    return [buffer.tobytes() for buffer in buffers]


def read_state(store: PageStore, found: Checkpoint) -> list[bytes]:
    buffers = [bytearray(row) for row in BUFFERS["state"]]
    store.read(found, [Wanted("state", found.rows - 1, found.rows, [memoryview(buffer) for buffer in buffers])])
    return [bytes(buffer) for buffer in buffers]


def restore(store: PageStore, ids: Sequence[int]) -> int:
    """Match and read everything; asserts that each row is that of its token. Returns the matched tokens."""
    match = store.match(ids)
    for hit in match.hits:
        assert read(store, hit) == all_rows(ids[hit.start : hit.start + hit.take])
    return match.tokens


def state_ends(store: PageStore, ids: Sequence[int]) -> list[int]:
    """After how many of `ids` there is a checkpoint; asserts that each is the state after just these tokens."""
    found = store.checkpoints(store.match(ids))
    for each in found:
        assert read_state(store, each) == state_after(ids[: each.end])
        assert pack_ids(ids[: each.end]).endswith(each.ids)
    return [each.end for each in found]


def page_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "pages").rglob("*") if path.is_file() and len(path.name) == 64)


def pin(store: PageStore, key: bytes) -> None:
    row = store._index.get(store.namespace.id, key)
    assert row is not None
    store._index.remove([(row.namespace, row.key)])
    store._index.add(replace(row, pinned=True))


@dataclass(frozen=True)
class Disk:
    """A page store folder that does not exist yet."""

    folder: Path

    def store(self, budget: int = 2**30, *, draft: bool = False, **changes: object) -> PageStore:
        return PageStore(self.folder, namespace(**changes), budget, draft=draft)

    def rows(self) -> list[Row]:
        """What the index says."""
        with closing(PageIndex(PageFolder(self.folder))) as index:
            return index.rows()

    def file_of(self, namespace: str, key: bytes) -> Path:
        return PageFolder(self.folder).path(namespace, key)

    def file(self, key: bytes) -> Path:
        (found,) = [path for path in page_files(self.folder) if path.name == key.hex()]
        return found
