"""Sums over the page store, against the files on disk and what was put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from kv_pages import SECONDS, Disk, namespace, page_files, pin, put_chat, put_state

from kvchat.formats.past import Past
from kvchat.kv.totals import Kept, Sought, Totals, kept

SYSTEM = list(range(256))  # two full pages
FIRST = [*SYSTEM, *[7] * 30]
SECOND = [*SYSTEM, *[8] * 200]


def sought(ids: list[int], **changes: str) -> Sought:
    where = namespace(**changes)
    return Sought(where.fingerprint, where.type_k, where.type_v, Past(tuple(ids)))


def size_of(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def test_no_store_has_nothing_and_is_not_made(tmp_path: Path) -> None:
    assert kept(tmp_path / "kv", sought(FIRST)) == Kept()
    assert not (tmp_path / "kv").exists()


def test_shared_pages_count_once_in_all_and_for_each_chat(disk: Disk) -> None:
    """256 tokens are two pages of 128; 30 more are a third one, 200 more a full and a part-filled one."""
    store = disk.store()
    put_chat(store, FIRST)
    put_chat(store, SECOND)
    found = kept(disk.folder, sought(FIRST))
    assert (found.every.pages, found.history.pages, found.tokens) == (5, 3, 286)
    assert found.every.bytes == size_of(page_files(disk.folder))
    assert 0 < found.history.bytes < found.every.bytes
    assert kept(disk.folder, sought(SECOND)).history.pages == 4


def test_a_history_that_goes_on_elsewhere_is_held_as_far_as_it_is_the_same(disk: Disk) -> None:
    put_chat(disk.store(), FIRST)
    found = kept(disk.folder, sought([*SYSTEM, *[7] * 10, 9, 9]))
    assert (found.history.pages, found.tokens) == (3, 266)


def test_reuse_and_pins_are_counted(disk: Disk) -> None:
    """Two reuses of three pages each; the other chat shares the first two of these."""
    store = disk.store()
    keys = put_chat(store, FIRST)
    put_chat(store, SECOND)
    for _ in range(2):
        store.used(store.match(FIRST).hits)
    pin(store, keys[0])
    found = kept(disk.folder, sought(SECOND))
    assert (found.every.hits, found.history.hits) == (6, 4)
    assert found.every.seconds_saved == pytest.approx(6 * SECONDS)
    assert found.history.seconds_saved == pytest.approx(4 * SECONDS)
    assert (found.every.pinned, found.history.pinned) == (1, 1)


def test_checkpoints_within_the_history_count(disk: Disk) -> None:
    """Two states lie within the first history; a third one belongs to the other one only."""
    store = disk.store()
    put_chat(store, FIRST)
    put_chat(store, SECOND)
    for ids in (FIRST[:200], FIRST, SECOND):
        put_state(store, ids)
    found = kept(disk.folder, sought(FIRST))
    assert (found.every.checkpoints, found.history.checkpoints) == (3, 2)
    assert (found.every.pages, found.history.pages) == (5, 3)


def test_other_types_count_and_other_models_do_not(disk: Disk) -> None:
    put_chat(disk.store(type_k="q8_0", type_v="q8_0"), FIRST)
    assert kept(disk.folder, sought(FIRST)).tokens == 286  # they are transcoded
    assert kept(disk.folder, sought(FIRST, fingerprint="cd" * 16)).history == Totals()
    assert kept(disk.folder, sought(FIRST, fingerprint="cd" * 16)).every.pages == 3
    put_chat(disk.store(), FIRST[:200])
    assert kept(disk.folder, sought(FIRST)).history.pages == 3
    put_chat(disk.store(), FIRST)
    read_back = disk.store()
    read_back.used(read_back.match(FIRST).hits)
    assert kept(disk.folder, sought(FIRST)).history.hits == 3  # those of its own types


def test_of_several_versions_the_one_that_reaches_furthest_counts(disk: Disk) -> None:
    put_chat(disk.store(backend_version="0.3.35"), FIRST[:100])
    put_chat(disk.store(), FIRST)
    found = kept(disk.folder, sought(FIRST))
    assert (found.every.pages, found.history.pages, found.tokens) == (4, 3, 286)
