"""Pinned prefixes in the page store: what is never evicted, what survives a lost index, what comes after."""

from __future__ import annotations

import json
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from kv_pages import Disk, namespace, page, page_files, put_chat, put_state, restore, state_ends

from kvchat.formats.page import chain_tokens, checkpoint_key, pack_ids
from kvchat.formats.past import Past
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.pinned import held, unpin
from kvchat.kv.pins import Pin, PinFolder
from kvchat.kv.purge import purge
from kvchat.kv.store import PAGE_TOKENS, PageStore, StoreUnwritable
from kvchat.kv.verify import verify

PREFIX = [*range(1000, 1000 + 2 * PAGE_TOKENS + 40)]  # two full pages and a tail
NAME = "01PREFIX"


def pinned_store(disk: Disk, budget: int = 2**30) -> tuple[PageStore, list[bytes]]:
    store = disk.store(budget)
    keys = put_chat(store, PREFIX)
    store.pin(NAME, keys, len(PREFIX))
    return store, keys


def lose_index(disk: Disk) -> None:
    for file in disk.folder.glob("index.db*"):
        file.unlink()


def pinned(disk: Disk) -> set[bytes]:
    return {row.key for row in disk.rows() if row.pinned}


def test_what_is_pinned_is_known_by_its_pages(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, PREFIX)
    sizes = sum(file.stat().st_size for file in page_files(disk.folder))
    assert store.pin(NAME, keys, len(PREFIX)) == sizes
    (found,) = held(disk.folder)
    assert found.pin == Pin(NAME, store.namespace.id, len(PREFIX), tuple(keys))
    assert (found.namespace, found.pages, found.bytes, found.missing) == (namespace(), 3, sizes, 0)
    assert pinned(disk) == set(keys)


def test_the_file_is_private_and_has_no_ids_and_no_text(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    (file,) = (disk.folder / "pins").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.name == f"{NAME}-{store.namespace.id}.json"
    assert json.loads(file.read_bytes()) == {"tokens": len(PREFIX), "keys": [key.hex() for key in keys]}


def test_a_budget_without_room_leaves_what_is_pinned(disk: Disk) -> None:
    """Other chats push each other out, and are refused when nothing else is left."""
    _, keys = pinned_store(disk)
    used = sum(file.stat().st_size for file in page_files(disk.folder))
    size = max(file.stat().st_size for file in page_files(disk.folder))
    store = disk.store(budget=used + 2 * size)
    for number in (1, 2, 3):
        put_chat(store, [number] * PAGE_TOKENS)
    assert restore(store, PREFIX) == len(PREFIX)
    full = disk.store(budget=used)
    with pytest.raises(StoreUnwritable, match="may not be deleted"):
        put_chat(full, [4] * PAGE_TOKENS)
    assert restore(full, PREFIX) == len(PREFIX)
    assert pinned(disk) == set(keys)


def test_a_lost_index_is_filled_with_the_pins(disk: Disk) -> None:
    _, keys = pinned_store(disk)
    put_chat(disk.store(), [7] * PAGE_TOKENS)
    lose_index(disk)
    assert pinned(disk) == set(keys)
    verify(disk.folder)
    assert pinned(disk) == set(keys)


def test_files_that_went_or_came_by_another_way_count_from_the_next_check_on(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    (file,) = (disk.folder / "pins").iterdir()
    saved = file.read_bytes()
    file.unlink()
    assert pinned(disk) == set(keys)
    verify(disk.folder)
    assert pinned(disk) == set()
    file.write_bytes(saved)
    verify(disk.folder)
    assert pinned(disk) == set(keys)
    store.close()


def test_the_tail_stays_when_a_chat_goes_on_behind_it(disk: Disk) -> None:
    """Else its page would be that of the chat, which may be deleted, and would hold the chat's words."""
    store, keys = pinned_store(disk)
    first, second = [*PREFIX, 1, 2, 3], [*PREFIX, 4, 5, 6]
    put_chat(store, first)
    put_chat(store, [*first, 7, 8])
    put_chat(store, second)
    assert [restore(store, ids) for ids in (PREFIX, [*first, 7, 8], second)] == [296, 301, 299]
    assert pinned(disk) == set(keys)
    tails = [row.tokens for row in disk.rows() if row.position == 2 * PAGE_TOKENS]
    assert sorted(tails) == [40, 43, 45]


def test_a_tail_that_a_chat_has_already_is_a_page_of_its_own_when_it_is_to_be_pinned(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, [*PREFIX, 1, 2, 3])
    keys, parent = [], store.namespace.root
    for start in range(0, len(PREFIX), PAGE_TOKENS):
        ids = PREFIX[start : start + PAGE_TOKENS]
        new = page(parent, ids, start)
        assert store.put(new) == 0
        store.put(replace(new, apart=True))
        parent = chain_tokens(parent, "", ids)
        keys.append(parent)
    assert store.put(replace(new, apart=True)) == 0
    store.pin(NAME, keys, len(PREFIX))
    assert pinned(disk) == set(keys)
    assert len(disk.rows()) == 4


def test_pages_that_are_not_there_cannot_be_pinned(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, PREFIX)
    with pytest.raises(StoreUnwritable, match="gone"):
        store.pin(NAME, [*keys, bytes(32)], len(PREFIX))
    assert (held(disk.folder), pinned(disk)) == ([], set())


def test_a_pin_that_the_index_cannot_keep_is_none(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    store = disk.store()
    keys = put_chat(store, PREFIX)

    def refuse(*_: object) -> None:
        raise StoreUnwritable("full", "")

    monkeypatch.setattr(PageIndex, "pin", refuse)
    with pytest.raises(StoreUnwritable):
        store.pin(NAME, keys, len(PREFIX))
    assert held(disk.folder) == []


def test_computing_again_lets_go_what_was_pinned_before_in_the_namespace(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    other = put_chat(store, [*PREFIX[:PAGE_TOKENS], *range(50)])
    store.pin(NAME, other, PAGE_TOKENS + 50)
    assert pinned(disk) == set(other)
    assert len(held(disk.folder)) == 1
    elsewhere = disk.store(type_k="q8_0", type_v="q8_0")
    elsewhere.pin(NAME, put_chat(elsewhere, PREFIX), len(PREFIX))
    assert len(held(disk.folder)) == 2
    assert set(other) < pinned(disk)
    assert keys[2] not in pinned(disk)


def test_a_chat_that_is_purged_leaves_its_prefix(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    chat = [*PREFIX, *range(200)]
    put_chat(store, chat)
    purge(disk.folder, [Past(chat)], [])
    assert {row.key for row in disk.rows()} == set(keys)
    assert restore(disk.store(), chat) == len(PREFIX)


def test_two_prefixes_can_have_pages_in_common(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    longer = [*PREFIX[: 2 * PAGE_TOKENS], *range(60)]
    more = put_chat(store, longer)
    store.pin("01OTHER", more, len(longer))
    assert unpin(disk.folder, NAME) == 1
    assert pinned(disk) == set(more)
    assert keys[:2] == more[:2]
    assert unpin(disk.folder, NAME) == 0


def test_what_is_unpinned_goes_like_anything_else(disk: Disk) -> None:
    pinned_store(disk)
    used = sum(file.stat().st_size for file in page_files(disk.folder))
    assert unpin(disk.folder, NAME) == 1
    assert (held(disk.folder), pinned(disk), list((disk.folder / "pins").iterdir())) == ([], set(), [])
    store = disk.store(budget=used)
    put_chat(store, [4] * 2 * PAGE_TOKENS)
    assert restore(store, PREFIX) < len(PREFIX)
    assert restore(store, [4] * 2 * PAGE_TOKENS) == 2 * PAGE_TOKENS


def test_only_the_namespaces_that_are_named_are_unpinned(disk: Disk) -> None:
    store, _ = pinned_store(disk)
    other = disk.store(type_k="q8_0", type_v="q8_0")
    keys = put_chat(other, PREFIX)
    other.pin(NAME, keys, len(PREFIX))
    assert unpin(disk.folder, NAME, frozenset({store.namespace.id})) == 1
    assert pinned(disk) == set(keys)


def test_a_tail_that_nothing_needs_any_more_is_deleted(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    put_chat(store, [*PREFIX, 1, 2, 3])
    unpin(disk.folder, NAME)
    assert keys[2] not in {row.key for row in disk.rows()}
    assert restore(store, [*PREFIX, 1, 2, 3]) == 299


def test_a_checkpoint_is_pinned_with_its_pages(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, PREFIX)
    put_state(store, PREFIX)
    state = checkpoint_key(keys[1], pack_ids(PREFIX[2 * PAGE_TOKENS :]))
    store.pin(NAME, [*keys, state], len(PREFIX))
    store.drop(store.checkpoints(store.match(PREFIX)))
    assert state_ends(store, PREFIX) == [len(PREFIX)]
    unpin(disk.folder, NAME)
    store.drop(store.checkpoints(store.match(PREFIX)))
    assert state_ends(store, PREFIX) == []


def test_a_page_that_is_lost_is_told_and_pinned_again_when_it_comes_back(disk: Disk) -> None:
    store, keys = pinned_store(disk)
    raw = bytearray(disk.file(keys[1]).read_bytes())
    raw[-1] ^= 1
    disk.file(keys[1]).write_bytes(raw)
    assert verify(disk.folder).damaged == 1
    (found,) = held(disk.folder)
    assert (found.pages, found.missing) == (2, 1)
    put_chat(store, PREFIX)
    (found,) = held(disk.folder)
    assert (found.pages, found.missing) == (3, 0)
    assert pinned(disk) == set(keys)


def test_what_is_refuted_goes_though_it_is_pinned(disk: Disk) -> None:
    store, _ = pinned_store(disk)
    assert store.condemn(PREFIX) == 3
    (found,) = held(disk.folder)
    assert (found.pages, found.missing) == (0, 3)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"tokens": 1, "keys": ["00"]}', b'{"tokens": "x", "keys": []}', b"\xff"]
)
def test_a_file_that_is_no_pin_is_left_alone(disk: Disk, text: bytes) -> None:
    pinned_store(disk)
    (disk.folder / "pins" / f"01BAD-{'a' * 16}.json").write_bytes(text)
    (disk.folder / "pins" / "notes.txt").write_text("mine")
    lose_index(disk)
    assert [each.pin.prefix for each in held(disk.folder)] == [NAME]
    assert len(pinned(disk)) == 3


@pytest.mark.parametrize("prefix", ["../x", "a/b", "", "x" * 41, "a-b"])
def test_an_id_cannot_lead_out_of_the_folder(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot be the id"):
        PinFolder(tmp_path).write(Pin(prefix, "0" * 16, 1, (bytes(32),)))


def test_pinning_in_one_process_is_known_in_another(disk: Disk) -> None:
    with closing(PageIndex(PageFolder(disk.folder))) as other:
        _, keys = pinned_store(disk)
        assert {row.key for row in other.rows() if row.pinned} == set(keys)
        unpin(disk.folder, NAME)
        assert not any(row.pinned for row in other.rows())
