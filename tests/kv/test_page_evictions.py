"""Histories with evictions in the page store: what came after one is found under all that came before it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from kv_pages import Disk, all_rows, page, page_files, read

from kvchat.formats.page import chain_evict, chain_tokens
from kvchat.formats.past import Eviction, count, dead, live, pages
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.overview import chains
from kvchat.kv.store import PAGE_TOKENS, PageStore
from kvchat.kv.verify import verify

IDS = list(range(1000, 1700))
FIRST = Eviction(300, ((4, 150),))
SECOND = Eviction(500, ((150, 290), (310, 320)))


def put_history(
    store: PageStore,
    ids: Sequence[int],
    log: Sequence[Eviction] = (),
    *,
    without: Sequence[int] = (),
    tag: str = "",
    window: int | None = None,
) -> list[bytes]:
    """Write a history, but not the pages of these numbers; the keys of its pages."""
    keys: list[bytes] = []
    parent = store.namespace.root
    for number, (start, end) in enumerate(pages(len(ids), log, PAGE_TOKENS)):
        after = parent if any(eviction.at == start for eviction in log) else b""
        for eviction in log:
            if eviction.at == start:
                parent = chain_evict(parent, eviction.ranges)
        if number not in without:
            rows = None if window is None else min(window, end - start)
            store.put(page(parent, ids[start:end], start, tag=tag, window=rows, after=after))
        parent = chain_tokens(parent, tag, ids[start:end])
        keys.append(parent)
    return keys


def found(store: PageStore, ids: Sequence[int], log: Sequence[Eviction] = ()) -> int:
    """How many tokens are found; asserts that every live one has its rows."""
    match = store.match(ids, evictions=log)
    there = [at for hit in match.hits for at in range(hit.start, hit.start + hit.take)]
    wanted = [at for start, end in live(0, match.tokens, dead(log, match.tokens)) for at in range(start, end)]
    assert set(wanted) <= set(there)
    for hit in match.hits:
        assert read(store, hit) == all_rows(ids[hit.start : hit.start + hit.take])
    return match.tokens


def test_a_history_is_found_as_it_was(disk: Disk) -> None:
    put_history(disk.store(), IDS, [FIRST, SECOND])
    store = disk.store()
    assert found(store, IDS, [FIRST, SECOND]) == 700
    assert found(store, IDS[:420], [FIRST]) == 420
    assert verify(disk.folder).damaged == 0


def test_where_logs_differ_nothing_more_is_shared(disk: Disk) -> None:
    """What is computed after an eviction saw other tokens than what is computed without it."""
    store = disk.store()
    put_history(store, IDS, [FIRST, SECOND])
    assert found(store, IDS) == 300
    assert found(store, IDS, [FIRST]) == 500
    assert found(store, IDS, [SECOND]) == 300
    assert found(store, IDS, [Eviction(300, ((4, 149),)), SECOND]) == 300
    assert found(store, IDS, [Eviction(300, ((4, 100), (100, 150)))]) == 300
    assert found(store, IDS, [Eviction(299, ((4, 150),))]) == 299


def test_equal_kept_text_and_other_evicted_text_share_nothing_after_the_eviction(disk: Disk) -> None:
    """Not even the same ids at the same positions: their keys and values saw what is gone now."""
    store = disk.store()
    other = [*IDS[:4], *(token + 5000 for token in IDS[4:150]), *IDS[150:]]
    for one, two in ((IDS, other), (other, IDS)):
        kept = [one[at] for start, end in live(0, 700, dead([FIRST], 700)) for at in range(start, end)]
        assert kept == [two[at] for start, end in live(0, 700, dead([FIRST], 700)) for at in range(start, end)]
    mine, theirs = put_history(store, IDS, [FIRST]), put_history(store, other, [FIRST])
    assert not set(mine) & set(theirs)
    assert found(store, IDS, [FIRST]) == found(store, other, [FIRST]) == 700
    third = [*IDS[:4], *(token + 9000 for token in IDS[4:150]), *IDS[150:]]
    assert found(store, third, [FIRST]) == 4
    shifted = [*IDS[:4], *IDS[150:]]  # the same text, without ever having had the rest
    assert found(store, shifted) == 4


def test_a_missing_page_of_which_nothing_is_live_is_not_missed(disk: Disk) -> None:
    log = [Eviction(300, ((0, 256),))]
    keys = put_history(disk.store(), IDS, log, without=[0, 1])
    store = disk.store()
    match = store.match(IDS, evictions=log)
    assert match.tokens == 700
    assert [hit.key for hit in match.hits] == keys[2:]


@pytest.mark.parametrize("lost", [0, 2, 3])
def test_a_missing_page_with_a_live_token_ends_the_match(disk: Disk, lost: int) -> None:
    """Of the second one nothing is left, but only when there are 300 tokens: a match that ends before that needs it."""
    log = [Eviction(300, ((4, 256),))]
    put_history(disk.store(), IDS, log, without=[1, lost])
    assert found(disk.store(), IDS, log) == {0: 0, 2: 128, 3: 300}[lost]


def test_a_page_that_is_gone_before_its_eviction_is_missed(disk: Disk) -> None:
    """Up to the eviction all of it is wanted: a history that ends there has lost nothing yet."""
    put_history(disk.store(), IDS, [Eviction(300, ((0, 256),))], without=[1])
    store = disk.store()
    assert found(store, IDS[:299], [Eviction(300, ((0, 256),))]) == 128
    assert found(store, IDS[:300], [Eviction(300, ((0, 256),))]) == 300


def test_tags_are_followed_through_an_eviction(disk: Disk) -> None:
    store = disk.store()
    put_history(store, IDS, [FIRST], tag="q8_0")
    assert found(store, IDS, [FIRST]) == 700
    assert {hit.tag for hit in store.match(IDS, evictions=[FIRST]).hits} == {"q8_0"}
    put_history(store, IDS, [FIRST])
    assert {hit.tag for hit in store.match(IDS, evictions=[FIRST]).hits} == {""}


def test_of_a_window_only_what_the_next_token_looks_back_at_is_wanted(disk: Disk) -> None:
    """The pages before and after the eviction have the rows of their last 50 tokens."""
    put_history(disk.store(), IDS[:360], [FIRST], window=50)
    match = disk.store().match(IDS[:360], evictions=[FIRST])
    assert [(hit.start, hit.take, hit.complete) for hit in match.hits][-2:] == [(256, 44, 44), (300, 60, 50)]
    assert match.usable(51) == 360
    assert match.usable(52) == 300


def test_chains_go_on_through_evictions(disk: Disk) -> None:
    """Listed apart, since other tokens are live in them, and each with the one that it goes on from; also when the
    index was lost."""
    keys = put_history(disk.store(), IDS, [FIRST, SECOND])
    for _ in range(2):
        found = {chain.chain: chain for chain in chains(disk.folder)}
        names = [keys[number].hex()[:12] for number in (0, 3, 5)]
        assert {(name, chain.parent, chain.start, chain.tokens) for name, chain in found.items()} == {
            (names[0], None, 0, 300),
            (names[1], names[0], 300, 200),
            (names[2], names[1], 500, 200),
        }
        disk.store().close()
        (disk.folder / "index.db").unlink()


def test_when_the_store_is_full_what_came_after_an_eviction_goes_before_what_it_needs(disk: Disk) -> None:
    store = disk.store()
    keys = put_history(store, IDS[:400], [FIRST])
    index = PageIndex(PageFolder(disk.folder))
    assert [row.key for row in index.leaves(9)] == [keys[3]]
    assert [row.after for row in index.rows()] == [b"", b"", b"", keys[2]]
    index.close()
    longer = page(keys[1], [*IDS[256:300], *range(40)], 256)  # another chat, in which nothing was evicted there
    store.put(longer)
    assert found(store, IDS[:400], [FIRST]) == 400
    assert keys[2].hex() in {file.name for file in page_files(disk.folder)}


def test_what_was_computed_after_an_eviction_is_told_from_what_is_missing(disk: Disk) -> None:
    store = disk.store()
    put_history(store, IDS, [FIRST, SECOND])
    for log, told in (([], True), ([FIRST], True), ([FIRST, SECOND], False), ([SECOND], True)):
        assert store.goes_on_evicted(store.match(IDS, evictions=log), IDS) == told
    other = [*IDS[:300], *range(200)]
    assert not store.goes_on_evicted(store.match(other), other)
    assert not store.goes_on_evicted(store.match(IDS[:299]), IDS[:299])


def test_condemned_is_what_came_after_an_eviction_too(disk: Disk) -> None:
    store = disk.store()
    put_history(store, IDS, [FIRST, SECOND])
    store.condemn(IDS[:420], evictions=[FIRST])
    assert found(store, IDS, [FIRST, SECOND]) < 420


@pytest.mark.parametrize("seed", range(20))
def test_any_history_is_found_to_its_end_and_no_other_one(disk: Disk, seed: int) -> None:
    """And of another one, with the same ids, what came before the logs differ."""
    rng, log, length = random.Random(seed), [], 0
    while length < 500:
        length += rng.randrange(20, 200)
        free = [part for part in live(4, length - 1, dead(log, length)) if part[1] - part[0] > 3]
        parts = sorted(rng.sample(free, min(len(free), rng.randrange(1, 3))))
        log.append(Eviction(length, tuple((start + 1, rng.randrange(start + 2, end)) for start, end in parts)))
    length += rng.randrange(1, 150)
    ids = [rng.randrange(9) for _ in range(length)]
    store = disk.store()
    put_history(store, ids, log)
    assert found(store, ids, log) == length
    assert count(dead(log, length)) == sum(each.tokens for each in log)
    number = rng.randrange(len(log))
    assert found(store, ids, log[:number]) == log[number].at
    end = rng.randrange(1, length)
    assert found(store, ids[:end], [each for each in log if each.at <= end]) == end
