"""Matching, reading, writing."""

from __future__ import annotations

import random
import stat
from dataclasses import replace

import numpy as np
import pytest
from kv_pages import SECONDS, SHAPES, TOKEN_BYTES, Disk, all_rows, page, page_files, put_chat, read, restore

from kvchat.formats.blob import BlobBuffer, PartCells
from kvchat.formats.page import chain_evict, chain_tokens
from kvchat.formats.rows import PartShape
from kvchat.formats.state import Layout, parse
from kvchat.kv.elsewhere import match_as, reason_elsewhere
from kvchat.kv.namespace import loads
from kvchat.kv.store import PAGE_TOKENS, PageMissing, Wanted

CHAT = list(range(1000, 1300))  # two full pages and a tail of 44


def test_nothing_is_there_at_first(disk: Disk) -> None:
    store = disk.store()
    assert store.match(CHAT).tokens == 0
    assert store.match([]).hits == ()


@pytest.mark.parametrize("length", [1, 127, 128, 129, 256, 300])
def test_a_chat_comes_back(disk: Disk, length: int) -> None:
    put_chat(disk.store(), CHAT[:length])
    assert restore(disk.store(), CHAT[:length]) == length  # another store, as after a restart
    assert restore(disk.store(), [*CHAT[:length], 7, 8, 9]) == length


@pytest.mark.parametrize("wanted", [1, 60, 127, 128, 129, 200, 256, 257, 299])
def test_a_part_of_a_chat_comes_back(disk: Disk, wanted: int) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    assert restore(store, CHAT[:wanted]) == wanted


@pytest.mark.parametrize("edit", [0, 1, 63, 127, 128, 200, 255, 256, 280, 299])
def test_reuse_ends_at_the_edited_token(disk: Disk, edit: int) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    edited = [*CHAT[:edit], 5, *CHAT[edit + 1 :]]
    assert restore(store, edited) == edit


def test_hits_say_where_they_are(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    match = store.match([*CHAT[:290], 1])
    assert [(hit.key, hit.start, hit.rows, hit.take, hit.seconds) for hit in match.hits] == [
        (keys[0], 0, 128, 128, SECONDS),
        (keys[1], 128, 128, 128, SECONDS),
        (keys[2], 256, 44, 34, SECONDS),
    ]


def test_the_best_child_is_taken(disk: Disk) -> None:
    store = disk.store()
    first = CHAT[:128]
    for after in ([1, 2, 3, 4, 5, 6], [1, 2, 9, 9], [8]):
        put_chat(store, first + after)
    assert store.match([*first, 1, 2, 3, 4, 7]).tokens == 128 + 4
    assert store.match([*first, 1, 2, 9]).tokens == 128 + 3
    assert store.match([*first, 3]).tokens == 128


def test_computed_rows_win_over_tagged_ones(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    store.put(page(root, CHAT[:128], 0, tag="f16"))
    tagged = store.match(CHAT[:130])
    assert [hit.tag for hit in tagged.hits] == ["f16"]
    store.put(page(tagged.hits[0].key, CHAT[128:256], 128))  # computed after tagged rows: a key of its own
    assert [hit.tag for hit in store.match(CHAT[:256]).hits] == ["f16", ""]
    store.put(page(root, CHAT[:128], 0))
    assert [hit.tag for hit in store.match(CHAT[:256]).hits] == [""]
    assert store.match(CHAT[:100]).hits[0].tag == ""


def test_history_after_an_eviction_is_found_from_there_only(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT[:128])
    evicted = chain_evict(keys[0], [(10, 20)])
    store.put(page(evicted, [5, 6, 7], 128))
    assert store.match([*CHAT[:128], 5, 6, 7]).tokens == 128
    match = store.match([5, 6, 7, 8], parent=evicted)
    assert match.tokens == 3
    assert match.hits[0].start == 0


def test_skip_leaves_out_the_first_rows(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    hit = store.match(CHAT[:100]).hits[0]
    for skip in (0, 1, 99):
        assert read(store, hit, skip) == all_rows(CHAT[skip:100])


@pytest.mark.parametrize("v_trans", [False, True])
def test_pages_fill_a_blob(disk: Disk, v_trans: bool) -> None:
    """The whole way: pages -> one state blob -> rows, with the first tokens resident already."""
    store = disk.store()
    put_chat(store, CHAT)
    have, wanted = 50, CHAT[:290]
    blob = BlobBuffer({"full": PartCells(PartShape(SHAPES["full"], v_trans), range(have, len(wanted)))})
    for hit in store.match(wanted).hits:
        skip = max(0, have - hit.start)
        views = blob.views("full", hit.start + skip - have, hit.take - skip)
        store.read(hit, [Wanted("full", skip, hit.take, views)])
    state = parse(blob.finish(), Layout(("full",)))["full"]
    assert state.positions.tolist() == list(range(have, 290))
    assert [part.tobytes() for part in state.payload()] == all_rows(wanted[have:])


def test_prefix_property(disk: Disk) -> None:
    """Whatever was put, a match is as long as the longest common prefix with any of it."""
    source = random.Random(11)
    store = disk.store()
    chats: list[list[int]] = [[]]
    for _ in range(40):
        base = source.choice(chats)
        chat = base[: source.randint(0, len(base))] + [source.randint(0, 3) for _ in range(source.randint(1, 200))]
        put_chat(store, chat)
        chats.append(chat)
    for _ in range(60):
        base = source.choice(chats)
        wanted = base[: source.randint(0, len(base))] + [source.randint(0, 3) for _ in range(source.randint(0, 50))]
        longest = max(
            next((i for i, (a, b) in enumerate(zip(chat, wanted, strict=False)) if a != b), min(len(chat), len(wanted)))
            for chat in chats
        )
        assert restore(store, wanted) == longest


# ------------------------------------------------------------------ put


def test_put_counts_the_bytes_of_the_file(disk: Disk) -> None:
    store = disk.store()
    new = page(store.namespace.root, CHAT[:128], 0)
    written = store.put(new)
    (file,) = page_files(disk.folder)
    assert written == file.stat().st_size
    assert 0 < written - new.payload_bytes < 2048
    assert new.payload_bytes == 128 * TOKEN_BYTES == 128 * 20


def test_what_is_there_is_not_written_again(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    assert store.put(page(root, CHAT[:100], 0)) > 0
    assert store.put(page(root, CHAT[:100], 0)) == 0
    assert store.put(page(root, CHAT[:60], 0)) == 0  # a page begins with it
    assert disk.store().put(page(root, CHAT[:100], 0)) == 0
    assert len(page_files(disk.folder)) == 1


def test_a_growing_tail_replaces_itself(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    for length in (10, 50, 128):
        store.put(page(root, CHAT[:length], 0))
        assert len(page_files(disk.folder)) == 1
        assert restore(store, CHAT) == length


def test_tails_of_other_histories_stay(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    store.put(page(root, [1, 2, 3], 0))
    store.put(page(root, [1, 2, 4, 5], 0))  # differs within the tail
    store.put(page(root, [1, 2, 3, 4], 0, tag="f16"))  # another tag
    store.put(page(chain_tokens(root, "", [9]), [1, 2, 3, 4], 1))  # another parent
    assert len(page_files(disk.folder)) == 4


def test_a_tail_that_something_follows_stays(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    store.put(page(root, [1, 2, 3], 0))
    store.put(page(chain_tokens(root, "", [1, 2, 3]), [4], 3))
    store.put(page(root, [1, 2, 3, 9], 0))
    assert len(page_files(disk.folder)) == 3


def test_the_record_of_use_goes_on_with_a_growing_tail(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    store.put(page(root, CHAT[:10], 0))
    store.used(store.match(CHAT[:5]).hits)  # half of the rows: half of the seconds
    store.put(page(root, CHAT[:20], 0))
    (row,) = store._index.rows()
    assert (row.hits, row.seconds_saved) == (1, SECONDS / 2)


def test_a_page_whose_file_is_gone_is_written_again(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    store.put(page(root, CHAT[:100], 0))
    page_files(disk.folder)[0].unlink()
    assert store.put(page(root, CHAT[:60], 0)) > 0
    assert restore(store, CHAT) == 60


def test_wrong_sizes_are_refused(disk: Disk) -> None:
    store = disk.store()
    root = store.namespace.root
    good = page(root, [2, 3], 0, window=2)
    full, window = good.groups
    *most, last = full.parts
    for groups in (
        page(root, [1, 2, 3], 0).groups,  # three cells of two tokens
        (replace(full, cells=1), window),
        (replace(full, parts=tuple(most)), window),
        (replace(full, parts=(*most, last[1:])), replace(window, parts=(*window.parts, last[:1]))),  # the sum is right
    ):
        with pytest.raises(ValueError):
            store.put(replace(good, groups=groups))
    with pytest.raises(ValueError):
        store.put(replace(good, ids=(), groups=()))
    assert page_files(disk.folder) == []
    assert store.put(good) > 0


def test_files_are_private(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    assert stat.S_IMODE(disk.folder.stat().st_mode) == 0o700
    for path in disk.folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_namespace_is_spelled_out_beside_the_pages(disk: Disk) -> None:
    store = disk.store(model="Tiny")
    put_chat(store, CHAT)
    file = disk.folder / "pages" / store.namespace.id / "namespace.json"
    assert loads(file.read_bytes()) == store.namespace
    file.write_bytes(b"nonsense")
    store.put(page(store.namespace.root, [1], 0))
    assert loads(file.read_bytes()) == store.namespace


def test_another_namespace_is_a_miss(disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    assert disk.store(type_k="q8_0").match(CHAT).tokens == 0
    assert disk.store(model="renamed").match(CHAT).tokens == 300


def test_two_namespaces_live_side_by_side(disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    put_chat(disk.store(type_k="q8_0"), CHAT[:130])
    assert restore(disk.store(), CHAT) == 300
    assert restore(disk.store(type_k="q8_0"), CHAT) == 130


def test_a_file_that_vanished_is_a_miss(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    match = store.match(CHAT)
    for file in page_files(disk.folder):
        file.unlink()
    with pytest.raises(PageMissing):
        read(store, match.hits[1])
    assert store.match(CHAT).tokens == 128  # the index still believes in the first
    with pytest.raises(PageMissing):
        read(store, match.hits[0])
    assert store.match(CHAT).tokens == 0
    assert not (disk.folder / "damaged").exists()


def test_a_folder_deleted_meanwhile_is_made_again(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    for path in sorted(disk.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    disk.folder.rmdir()
    assert store.match(CHAT).tokens == 0
    put_chat(store, CHAT)
    assert restore(disk.store(), CHAT) == 300


def test_numpy_ids_match_too(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    assert store.match(np.asarray(CHAT, np.int32).tolist()).tokens == 300
    assert PAGE_TOKENS == 128


def test_what_another_configuration_would_find(disk: Disk) -> None:
    ids = list(range(300))
    other = disk.store(type_k="q8_0")
    put_chat(other, ids)
    store = disk.store()
    put_chat(store, ids[:40])
    assert match_as(store, other.namespace, [*ids[:290], 7]) == 290
    assert match_as(store, store.namespace, ids) == 40
    assert match_as(store, disk.store(type_k="q4_0").namespace, ids) == 0
    assert store.match(ids).tokens == 40


def test_pages_of_another_configuration_are_named_as_the_reason(disk: Disk) -> None:
    ids = list(range(300))
    put_chat(disk.store(type_k="q8_0", type_v="q8_0"), ids)
    put_chat(disk.store(backend_version="0.1"), list(range(200)))
    store = disk.store()
    assert reason_elsewhere(store, ids, 0) == "cache type"
    assert reason_elsewhere(disk.store(type_k="q8_0", type_v="q8_0", backend_version="9"), ids, 250) == "version"
    adapted, turned = disk.store(lora="ab@1"), disk.store(rope=(("factors", "fixed"), ("freq_scale", 0.5)))
    for own in (adapted, turned):
        assert reason_elsewhere(own, ids, 0) == ("adapter" if own is adapted else "positions")
    put_chat(adapted, list(range(250)))
    assert reason_elsewhere(disk.store(), ids, 240) == "cache type"
    assert reason_elsewhere(store, ids, 300) is None
    assert reason_elsewhere(disk.store(fingerprint="cd" * 16), ids, 0) is None
