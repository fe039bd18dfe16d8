"""Pages of models with a sliding window: two groups of layers, and rows of the window that may be missing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kv_pages import (
    BUFFERS,
    TOKEN_BYTES,
    WINDOW_BYTES,
    Disk,
    all_rows,
    new_rows,
    page,
    page_files,
    read,
)

from kvchat.formats.page import chain_tokens, pack_ids
from kvchat.formats.rows import Part
from kvchat.kv.store import PAGE_TOKENS, Hit, Match, NewPage, PageDamaged, PageStore, Wanted
from kvchat.kv.verify import verify

CHAT = list(range(1000, 1300))  # two full pages and a tail of 44
GROUPS: list[Part] = ["full", "window"]


def put_windows(store: PageStore, ids: list[int], windows: list[int]) -> list[bytes]:
    """Write a history, with so many rows of the window in each page; the keys of its pages."""
    keys: list[bytes] = []
    parent = store.namespace.root
    for number, start in enumerate(range(0, len(ids), PAGE_TOKENS)):
        piece = ids[start : start + PAGE_TOKENS]
        store.put(page(parent, piece, start, window=windows[number]))
        parent = chain_tokens(parent, "", piece)
        keys.append(parent)
    return keys


def views(part: Part, count: int) -> list[memoryview]:
    return [memoryview(bytearray(count * row)) for row in BUFFERS[part]]


def completes(disk: Disk) -> list[int]:
    return [row.complete for row in disk.rows()]


# ------------------------------------------------------------------ groups


def test_rows_of_both_groups_come_back(disk: Disk) -> None:
    put_windows(disk.store(), CHAT, [128, 50, 44])
    store = disk.store()
    match = store.match(CHAT)
    assert [(hit.take, hit.complete) for hit in match.hits] == [(128, 128), (128, 50), (44, 44)]
    for hit in match.hits:
        ids = CHAT[hit.start : hit.start + hit.take]
        first = hit.rows - hit.complete
        assert read(store, hit) == all_rows(ids)
        assert read(store, hit, first, "window") == all_rows(ids[first:], "window")
        full, window = views("full", 7), views("window", 9)
        store.read(hit, [Wanted("window", 35 + first, 44 + first, window)] if first else [])
        store.read(hit, [Wanted("full", 20, 27, full), Wanted("window", hit.take - 9, hit.take, window)])
        assert [bytes(view) for view in full] == all_rows(ids[20:27])
        assert [bytes(view) for view in window] == all_rows(ids[-9:], "window")


def test_sizes_are_those_of_the_rows_that_are_there(disk: Disk) -> None:
    new = page(disk.store().namespace.root, CHAT[:100], 0, window=30)
    assert new.payload_bytes == 100 * TOKEN_BYTES + 30 * WINDOW_BYTES == 100 * 20 + 30 * 8
    written = disk.store().put(new)
    (file,) = page_files(disk.folder)
    assert file.stat().st_size == written
    assert file.read_bytes()[-new.payload_bytes :] == b"".join(
        [*all_rows(CHAT[:100]), *all_rows(CHAT[70:100], "window")]
    )


def test_rows_that_the_page_does_not_have(disk: Disk) -> None:
    """Wanted of a page that has fewer: nobody asks for them who has read the index."""
    for skip, take, part in ((97, 128, "window"), (0, 30, "window"), (128, 129, "window"), (0, 129, "full")):
        store = disk.store()
        put_windows(store, CHAT[:128], [30])
        hit = store.match(CHAT[:128]).hits[0]
        with pytest.raises(PageDamaged):
            store.read(hit, [Wanted(part, skip, take, views(part, take - skip))])  # type: ignore[arg-type]


def test_a_group_that_the_page_does_not_have(disk: Disk) -> None:
    store = disk.store()
    store.put(page(store.namespace.root, CHAT[:128], 0))
    hit = store.match(CHAT[:128]).hits[0]
    with pytest.raises(PageDamaged):
        read(store, hit, 0, "window")


def flip(file: Path, offset: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[offset] ^= 0x10
    file.write_bytes(raw)


@pytest.mark.parametrize("damaged", GROUPS)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_group_is_read_without_the_other(disk: Disk, damaged: Part, where: str) -> None:
    store = disk.store()
    put_windows(store, CHAT[:128], [60])
    (file,) = page_files(disk.folder)
    sizes = {"full": 128 * TOKEN_BYTES, "window": 60 * WINDOW_BYTES}
    start = file.stat().st_size - sizes["window"] - (sizes["full"] if damaged == "full" else 0)
    flip(file, start + {"first": 0, "middle": sizes[damaged] // 2, "last": sizes[damaged] - 1}[where])
    hit = store.match(CHAT[:128]).hits[0]
    if damaged == "full":
        assert read(store, hit, 68, "window") == all_rows(CHAT[68:128], "window")
        assert read(store, hit, 100, "window") == all_rows(CHAT[100:128], "window")
    else:
        assert read(store, hit) == all_rows(CHAT[:128])
        assert read(store, hit, 100) == all_rows(CHAT[100:128])
    with pytest.raises(PageDamaged):
        read(store, hit, 127, damaged)
    assert page_files(disk.folder) == []
    assert store.match(CHAT[:128]).tokens == 0


@pytest.mark.parametrize("damaged", GROUPS)
def test_verify_reads_both_groups(disk: Disk, damaged: Part) -> None:
    put_windows(disk.store(), CHAT[:128], [60])
    assert (verify(disk.folder).pages, verify(disk.folder).damaged) == (1, 0)
    (file,) = page_files(disk.folder)
    flip(file, file.stat().st_size - 1 - (60 * WINDOW_BYTES if damaged == "full" else 0))
    assert (verify(disk.folder).pages, verify(disk.folder).damaged) == (0, 0)
    assert len(list((disk.folder / "damaged").iterdir())) == 1


@pytest.mark.parametrize("damaged", GROUPS)
def test_a_put_reads_both_groups_of_what_is_there(disk: Disk, damaged: Part) -> None:
    put_windows(disk.store(), CHAT[:128], [60])
    (file,) = page_files(disk.folder)
    flip(file, file.stat().st_size - 1 - (60 * WINDOW_BYTES if damaged == "full" else 0))
    store = disk.store()
    assert store.put(page(store.namespace.root, CHAT[:128], 0, window=60)) > 0
    hit = store.match(CHAT[:128]).hits[0]
    assert read(store, hit) == all_rows(CHAT[:128])
    assert read(store, hit, 68, "window") == all_rows(CHAT[68:128], "window")


# ------------------------------------------------------------------ usable


def hit_of(start: int, rows: int, take: int, complete: int) -> Hit:
    return Hit(bytes(32), bytes(32), "", b"", start, rows, take, 0.0, complete)


def most(match: Match, window: int, longest: int | None = None) -> int:
    """The same by looking at every row; `longest`: no more tokens than that."""
    there = {
        at
        for hit in match.hits
        for at in range(hit.start, hit.start + hit.take)
        if at >= hit.start + hit.rows - hit.complete
    }
    lookback = max(0, window - 1)
    start = match.tokens if longest is None else longest
    return next(end for end in range(start, -1, -1) if there.issuperset(range(max(0, end - lookback), end)))


def test_usable_by_hand() -> None:
    whole = hit_of(0, 128, 128, 128)
    assert Match().usable(8) == 0
    assert Match((whole,), 128).usable(8) == 128
    # rows of the window from token 118 on: enough for 10 tokens back, not for 11
    gap = Match((hit_of(0, 128, 128, 10),), 128)
    assert [gap.usable(window) for window in (0, 1, 2, 11, 12, 500)] == [128, 128, 128, 128, 0, 0]
    # the window reaches into the page before, which is whole
    after = Match((whole, hit_of(128, 44, 44, 5)), 172)
    assert [after.usable(window) for window in (6, 7, 500)] == [172, 128, 128]
    # of a page that is used in part, its last rows do not count
    part = Match((whole, hit_of(128, 128, 20, 64)), 148)
    assert [part.usable(window) for window in (0, 2)] == [148, 128]
    # a gap further back matters only if the window reaches it
    before = Match((hit_of(0, 128, 128, 28), whole_at(128)), 256)
    assert [before.usable(window) for window in (157, 158)] == [256, 0]


def whole_at(start: int) -> Hit:
    return hit_of(start, 128, 128, 128)


def test_usable_is_the_most_that_finds_its_window() -> None:
    source = random.Random(17)
    seen = set()
    for _ in range(4000):
        size = source.choice((1, 2, 5, 8))
        hits, at = [], 0
        for _ in range(source.randint(0, 5)):
            hits.append(hit_of(at, size, size, source.choice((size, size, source.randint(0, size)))))
            at += size
        if hits and source.random() < 0.6:  # the last page is used in part
            last = hits.pop()
            take = source.randint(1, size)
            hits.append(hit_of(last.start, size, take, last.complete))
            at = last.start + take
        match = Match(tuple(hits), at)
        window = source.choice((0, 1, 2, 3, 4, 6, 9, 14, 50))
        assert match.usable(window) == most(match, window), (match, window)
        ends = [end for end in range(at + 2) if match.reaches(end, window)]
        assert ends == [end for end in range(at + 1) if most(match, window, end) == end], (match, window)
        seen.add((match.usable(window) < at, match.usable(window) > 0))
    assert seen == {(False, False), (False, True), (True, False), (True, True)}


def test_what_is_usable_can_be_read(disk: Disk) -> None:
    source = random.Random(23)
    store = disk.store()
    for number in range(12):
        ids = [*range(number * 1000, number * 1000 + source.randint(1, 520))]
        tokens = [min(PAGE_TOKENS, len(ids) - start) for start in range(0, len(ids), PAGE_TOKENS)]
        put_windows(store, ids, [source.choice((count, source.randint(0, count))) for count in tokens])
        for window in (0, 2, 40, 129, 200):
            match = store.match(ids[: source.randint(1, len(ids))])
            end = match.usable(window)
            assert end == most(match, window)
            for hit in match.hits:
                low, high = max(hit.start, end - window + 1), min(hit.start + hit.take, end)
                if window and low < high:
                    found = views("window", high - low)
                    store.read(hit, [Wanted("window", low - hit.start, high - hit.start, found)])
                    assert [bytes(view) for view in found] == all_rows(ids[low:high], "window")


# ------------------------------------------------------------------ put


def tail(store: PageStore, length: int, window: int) -> NewPage:
    return page(store.namespace.root, CHAT[:length], 0, window=window)


def test_an_incomplete_page_gives_way_to_a_complete_one(disk: Disk) -> None:
    store = disk.store()
    assert store.put(tail(store, 128, 40)) > 0
    store.used(store.match(CHAT[:128]).hits)
    assert store.put(tail(store, 128, 39)) == 0
    assert store.put(tail(store, 128, 40)) == 0
    assert completes(disk) == [40]
    for window in (41, 128):
        assert store.put(tail(store, 128, window)) > 0
        assert completes(disk) == [window]
        hit = store.match(CHAT[:128]).hits[0]
        assert read(store, hit, 128 - window, "window") == all_rows(CHAT[128 - window : 128], "window")
    for window in (0, 40, 127, 128):
        assert store.put(tail(store, 128, window)) == 0
    assert len(page_files(disk.folder)) == 1
    (row,) = store._index.rows()
    assert (row.hits, row.complete) == (1, 128)
    assert verify(disk.folder).corrected == 0


def test_the_page_that_gives_way_makes_room(disk: Disk, tmp_path: Path) -> None:
    """The disk holds one of them, and the open chat has it."""
    measure = Disk(tmp_path / "measure").store()
    store = disk.store(budget=measure.put(tail(measure, 128, 128)) + 100)
    assert store.put(tail(store, 128, 64)) > 0
    store.protect([store.match(CHAT[:128]).hits[0].key])
    assert store.put(tail(store, 128, 128)) > 0
    assert completes(disk) == [128]


def test_a_growing_tail_gives_way_when_no_row_is_lost(disk: Disk) -> None:
    store = disk.store()
    store.put(tail(store, 50, 20))  # 30 tokens lack their rows
    assert store.put(tail(store, 60, 30)) > 0  # the same 30
    assert completes(disk) == [30]
    assert store.put(tail(store, 70, 69)) > 0  # one
    assert completes(disk) == [69]
    assert store.put(tail(store, 80, 70)) > 0  # ten: that of 70 tokens has rows that this one lacks
    assert sorted(completes(disk)) == [69, 70]
    assert store.match(CHAT[:70]).usable(60) == 70
    assert store.match(CHAT[:80]).usable(60) == 80
    assert store.put(tail(store, 128, 128)) > 0
    assert completes(disk) == [128]


def test_a_longer_page_with_fewer_rows_does_not_stand_for_a_shorter_one(disk: Disk) -> None:
    store = disk.store()
    store.put(tail(store, 128, 30))
    assert store.put(tail(store, 50, 50)) > 0
    assert sorted(completes(disk)) == [30, 50]
    assert store.match(CHAT[:50]).usable(10) == 50
    store.put(tail(store, 128, 128))
    assert completes(disk) == [128]
    assert store.put(tail(store, 50, 50)) == 0


def test_a_page_without_any_row_of_the_window(disk: Disk) -> None:
    store = disk.store()
    put_windows(store, CHAT, [0, 0, 44])
    assert [hit.complete for hit in store.match(CHAT).hits] == [0, 0, 44]
    assert [store.match(CHAT).usable(window) for window in (0, 1, 2, 45, 46)] == [300, 300, 300, 300, 0]
    assert read(store, store.match(CHAT).hits[0]) == all_rows(CHAT[:128])


def test_rows_for_more_tokens_than_the_page_has_are_refused(disk: Disk) -> None:
    store = disk.store()
    good = tail(store, 50, 50)
    more = new_rows("window", CHAT[:51], 51)
    with pytest.raises(ValueError):
        store.put(NewPage(good.parent, "", good.ids, 0, (good.groups[0], more), {}, 0.0))
    assert page_files(disk.folder) == []


def test_an_index_rebuilt_from_the_files_knows_what_is_missing(disk: Disk) -> None:
    store = disk.store()
    put_windows(store, CHAT, [128, 50, 3])
    before = store._index.rows()
    store.close()
    for path in disk.folder.glob("index*"):
        path.unlink()
    assert completes(disk) == [128, 50, 3]
    after = disk.store()._index.rows()
    assert [row.facts for row in after] == [row.facts for row in before]
    assert [row.ids for row in after] == [pack_ids(CHAT[at : at + 128]) for at in (0, 128, 256)]
    assert verify(disk.folder).corrected == 0
