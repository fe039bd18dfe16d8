"""Small pages whose every row says which token, layer and part it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvchat.formats.page import chain_tokens
from kvchat.formats.state import LayerShape
from kvchat.kv.namespace import Namespace
from kvchat.kv.store import PAGE_TOKENS, Hit, NewPage, PageStore

LAYERS = (LayerShape(1, 6, 1, 4), LayerShape(1, 8, 1, 2))
ROWS = (6, 8, 4, 2)  # bytes of a row in each part of the payload: K, K, V, V
TOKEN_BYTES = sum(ROWS)
LABELS = {"flash_attention": "off"}
SECONDS = 2.0


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


def rows(ids: Sequence[int], part: int) -> bytes:
    """Rows of these tokens in one part of the payload."""
    numbers = np.asarray(ids, np.int64)[:, None] * 13 + part * 5 + np.arange(ROWS[part])
    return (numbers % 251).astype(np.uint8).tobytes()


def page(parent: bytes, ids: Sequence[int], position: int, *, tag: str = "", seconds: float = SECONDS) -> NewPage:
    parts = tuple(memoryview(rows(ids, part)) for part in range(len(ROWS)))
    return NewPage(parent, tag, tuple(ids), position, LAYERS, parts, LABELS, seconds)


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


def read(store: PageStore, hit: Hit, skip: int = 0) -> list[bytes]:
    buffers = [np.zeros((hit.take - skip) * row, np.uint8) for row in ROWS]
    store.read(hit, skip, [buffer.data for buffer in buffers])
    return [buffer.tobytes() for buffer in buffers]


def restore(store: PageStore, ids: Sequence[int]) -> int:
    """Match and read everything; asserts that each row is that of its token. Returns the matched tokens."""
    match = store.match(ids)
    for hit in match.hits:
        wanted = ids[hit.start : hit.start + hit.take]
        assert read(store, hit) == [rows(wanted, part) for part in range(len(ROWS))]
    return match.tokens


def page_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "pages").rglob("*") if path.is_file() and len(path.name) == 64)


@dataclass(frozen=True)
class Disk:
    """A page store folder that does not exist yet."""

    folder: Path

    def store(self, budget: int = 2**30, **changes: object) -> PageStore:
        return PageStore(self.folder, namespace(**changes), budget)
