"""Checkpoints: recurrent states beside the pages, found only where all tokens before them are the same."""

from __future__ import annotations

import random

import pytest
from kv_pages import (
    STATE_BYTES,
    Disk,
    checkpoint,
    empty_page,
    page,
    page_files,
    put_chat,
    put_state,
    put_states,
    restore,
    state_ends,
)

from kvchat.formats.page import chain_evict, chain_tokens, checkpoint_key
from kvchat.kv.overview import chain_pages, chains
from kvchat.kv.store import PAGE_TOKENS, Match, PageDamaged
from kvchat.kv.verify import verify

CHAT = list(range(1000, 1300))  # two full pages and a tail of 44
OTHER = [*CHAT[:200], *range(5000, 5100)]  # branches off within the second page


@pytest.mark.parametrize("end", [1, 127, 128, 129, 200, 256, 257, 300])
def test_a_state_comes_back(disk: Disk, end: int) -> None:
    put_chat(disk.store(), CHAT)
    put_state(disk.store(), CHAT[:end])
    store = disk.store()  # as after a restart
    assert state_ends(store, CHAT) == [end]
    (found,) = store.checkpoints(store.match(CHAT))
    size = disk.file(found.key).stat().st_size
    assert (found.bytes, found.rows, found.take) == (size, (end - 1) % 128 + 1, (end - 1) % 128 + 1)
    assert found.key == checkpoint_key(found.parent, found.ids)
    assert 0 < size - STATE_BYTES < 2048


def test_the_same_state_is_written_once(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    assert put_state(store, CHAT[:200]) > 0
    files = page_files(disk.folder)
    assert put_state(store, CHAT[:200]) == 0
    assert put_state(disk.store(), CHAT[:200]) == 0
    assert put_state(store, CHAT[:199]) > 0  # although one that goes on after it is there
    assert len(page_files(disk.folder)) == len(files) + 1


def test_states_come_in_the_order_of_their_tokens(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    order = [1, 60, 127, 128, 129, 200, 255, 256, 257, 290, 300]
    mixed = list(order)
    random.Random(3).shuffle(mixed)
    put_states(store, CHAT, mixed)
    assert state_ends(store, CHAT) == order


def test_only_within_what_was_matched(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, [100, 128, 150, 256, 280])
    for length, found in ((99, []), (100, [100]), (128, [100, 128]), (149, [100, 128]), (150, [100, 128, 150])):
        assert state_ends(store, CHAT[:length]) == found
        assert state_ends(store, [*CHAT[:length], 7]) == found
    assert state_ends(store, [*CHAT[:279], 7, 8]) == [100, 128, 150, 256]
    assert store.checkpoints(Match()) == []


def test_of_a_branch_only_what_it_shares(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_chat(store, OTHER)
    put_states(store, CHAT, [128, 180, 200, 201, 256, 300])
    put_states(store, OTHER, [200, 201, 256, 290])
    assert state_ends(store, CHAT) == [128, 180, 200, 201, 256, 300]
    assert state_ends(store, OTHER) == [128, 180, 200, 201, 256, 290]
    assert state_ends(store, CHAT[:200]) == [128, 180, 200]


def test_whatever_was_put_a_state_is_that_of_its_tokens(disk: Disk) -> None:
    source = random.Random(29)
    store = disk.store()
    chats: list[list[int]] = [[]]
    states = set()
    for _ in range(30):
        base = source.choice(chats)
        chat = base[: source.randint(0, len(base))] + [source.randint(0, 3) for _ in range(source.randint(1, 150))]
        put_chat(store, chat)
        chats.append(chat)
        for _ in range(2):
            end = source.randint(1, len(chat))
            put_state(store, chat[:end])
            states.add(tuple(chat[:end]))
    for _ in range(60):
        base = source.choice(chats)
        wanted = base[: source.randint(0, len(base))] + [source.randint(0, 3) for _ in range(source.randint(0, 9))]
        assert state_ends(store, wanted) == sorted(len(ids) for ids in states if tuple(wanted[: len(ids)]) == ids)


def test_a_growing_tail_keeps_its_states(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT[:140])
    put_state(store, CHAT[:140])
    assert state_ends(store, CHAT) == [140]
    put_chat(store, CHAT[:300])
    assert len(page_files(disk.folder)) == 3 + 1
    put_state(store, CHAT[:300])
    assert state_ends(store, CHAT) == [140, 300]


def test_a_state_without_its_page_is_not_found(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT[:128])
    put_states(store, CHAT, [60, 150])
    assert state_ends(store, CHAT) == [60]
    put_chat(store, CHAT)
    assert state_ends(store, CHAT) == [60, 150]


def test_a_state_is_no_page(disk: Disk) -> None:
    store = disk.store()
    put_state(store, CHAT[:100])
    assert store.match(CHAT).tokens == 0
    assert store.match(CHAT[:100]).tokens == 0
    assert store.put(page(store.namespace.root, CHAT[:60], 0)) > 0  # no page begins with it
    assert store.put(page(store.namespace.root, CHAT[:120], 0)) > 0
    assert restore(store, CHAT) == 120
    assert state_ends(store, CHAT) == [100]


def test_another_configuration_has_other_states(disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    put_chat(disk.store(type_k="q8_0"), CHAT)
    put_state(disk.store(), CHAT[:150])
    assert state_ends(disk.store(type_k="q8_0"), CHAT) == []
    assert state_ends(disk.store(), CHAT) == [150]


def test_states_after_an_eviction_are_found_from_there_only(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT[:128])
    evicted = chain_evict(keys[0], [(10, 20)])
    store.put(page(evicted, [5, 6, 7], 128))
    store.put(checkpoint([5, 6, 7], evicted))
    match = store.match([5, 6, 7, 8], parent=evicted)
    assert [each.end for each in store.checkpoints(match)] == [3]
    assert state_ends(store, [*CHAT[:128], 5, 6, 7]) == []


def test_pages_of_a_model_without_keys_and_values(disk: Disk) -> None:
    """They have no payload, and say which tokens the states come after."""
    store = disk.store()
    root = store.namespace.root
    assert store.put(empty_page(root, CHAT[:100], 0)) > 0
    assert store.put(empty_page(root, CHAT[:128], 0)) > 0
    assert store.put(empty_page(root, CHAT[:128], 0)) == 0
    store.put(empty_page(chain_tokens(root, "", CHAT[:128]), CHAT[128:150], 128))
    assert len(page_files(disk.folder)) == 2
    put_states(store, CHAT, [128, 149])
    for again in (store, disk.store()):
        match = again.match(CHAT)
        assert (match.tokens, match.usable(0)) == (150, 150)
        assert state_ends(again, CHAT) == [128, 149]
        for hit in match.hits:
            again.read(hit, [])
    report = verify(disk.folder)
    assert (report.pages, report.damaged, report.corrected) == (4, 0, 0)
    disk.file(match.hits[1].key).write_bytes(b"")
    with pytest.raises(PageDamaged):
        store.read(match.hits[1], [])
    assert state_ends(store, CHAT) == [128]


def test_use_is_counted(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_state(store, CHAT[:200])
    found = store.checkpoints(store.match(CHAT))
    store.used(found)
    store.used(found)
    assert [(row.kind, row.hits) for row in disk.rows() if row.hits] == [("checkpoint", 2)]


# ------------------------------------------------------------------ as a person sees them


def test_chains_count_their_states(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    put_states(store, CHAT, [290, 100, 200, 60, 7, 128, 33])
    store.used(store.checkpoints(store.match(CHAT))[:1])
    (chain,) = chains(disk.folder)
    assert (chain.pages, chain.tokens, chain.checkpoints, chain.hits) == (3, 300, 7, 1)
    states = [row for row in disk.rows() if row.kind == "checkpoint"]
    assert chain.checkpoint_bytes == sum(row.bytes for row in states)
    assert chain.bytes == sum(file.stat().st_size for file in page_files(disk.folder))
    found = chain_pages(disk.folder, keys[0].hex()[:8])
    assert [row.key for row in found.pages] == keys
    assert [row.position + row.tokens for row in found.checkpoints] == [7, 33, 60, 100, 128, 200, 290]


def test_states_that_chains_share_are_listed_once(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_chat(store, OTHER)
    put_states(store, CHAT, [100, 128, 180, 290])
    put_states(store, OTHER, [290])
    found = chains(disk.folder)
    assert sorted((chain.start, chain.pages) for chain in found) == [(0, 1), (128, 2), (128, 2)]
    assert [chain.checkpoints for chain in found if chain.start == 0] == [2]
    assert sorted(chain.checkpoints for chain in found if chain.start == 128) == [1, 2]  # that at 180 in one of them
    assert sum(chain.bytes for chain in found) == sum(file.stat().st_size for file in page_files(disk.folder))
    assert len(page_files(disk.folder)) == 5 + 5


def test_many_states_of_one_page(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, range(PAGE_TOKENS + 1, 2 * PAGE_TOKENS + 1))
    assert state_ends(store, CHAT) == list(range(129, 257))
    assert state_ends(store, OTHER) == list(range(129, 201))
    assert [chain.checkpoints for chain in chains(disk.folder)] == [128]
