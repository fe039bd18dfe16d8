"""Pages of one history in several cache types: what one of them can lend to another."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from kv_pages import Disk, all_rows, namespace, page, page_files, put_chat, read
from kv_shapes import shape
from numpy_quants import NumpyQuants

from kvchat.errors import FormatError, KvchatError
from kvchat.formats.page import chain_evict, chain_tokens
from kvchat.formats.past import Eviction
from kvchat.formats.rows import LayerShape
from kvchat.kv.matching import Detour, Hit, Match
from kvchat.kv.namespace import Namespace
from kvchat.kv.newpage import NewPage, NewRows
from kvchat.kv.overview import chain_pages, chains
from kvchat.kv.store import PageDamaged, PageStore
from kvchat.kv.transcode import Transcoder, form_of
from kvchat.kv.transcode_chain import transcode_chain

CHAT = list(range(1000, 1400))
F16, Q8 = namespace(), namespace(type_k="q8_0", type_v="q8_0", rotation=True)


@pytest.fixture
def f16(disk: Disk) -> PageStore:
    return disk.store()


@pytest.fixture
def q8(disk: Disk) -> PageStore:
    return PageStore(disk.folder, Q8, 2**40)


# ------------------------------------------------------------------ which namespaces


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (Q8, True),
        (replace(F16, model="another name of the same weights"), True),
        (replace(F16, rope=F16.rope[::-1]), True),
        (replace(Q8, fingerprint="cd" * 16), False),
        (replace(Q8, rope=(("base", 10000.0), ("factors", "long"))), False),  # the context is larger now
        (replace(Q8, lora="x:1.0"), False),
        (replace(Q8, backend_version="0.3.37"), False),
        (replace(Q8, page_version=1), False),
    ],
)
def test_state_of_one_computation(other: Namespace, alike: bool) -> None:
    assert F16.alike(other) == other.alike(F16) == alike


def test_those_on_disk_and_not_its_own(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    for store in (f16, q8, PageStore(disk.folder, replace(Q8, lora="x:1.0"), 2**40)):
        put_chat(store, CHAT[:128])
    assert f16.elsewhere(F16) == [Q8]
    assert q8.elsewhere(Q8) == [F16]


# ------------------------------------------------------------------ pages of several, as one match


def test_what_another_holds_goes_on_where_the_own_ends(f16: PageStore, q8: PageStore) -> None:
    put_chat(f16, CHAT[:200])
    put_chat(q8, CHAT[:300])
    own = f16.match(CHAT)
    found = own.followed_by(f16.match_in(Q8, CHAT), Q8.id)
    assert [(hit.namespace, hit.first, hit.start + hit.take) for hit in found.hits] == [
        ("", 0, 128),
        ("", 128, 200),
        (Q8.id, 200, 256),
        (Q8.id, 256, 300),
    ]
    assert found.tokens == 300
    assert own.followed_by(f16.match_in(Q8, CHAT[:150]), Q8.id) == own


def test_rows_of_another_namespace_are_read_and_counted_there(f16: PageStore, q8: PageStore) -> None:
    put_chat(q8, CHAT[:300])
    found = Match().followed_by(f16.match_in(Q8, CHAT), Q8.id)
    assert read(f16, found.hits[1]) == all_rows(CHAT[128:256])
    f16.used(found.hits)
    assert [chain.hits for chain in chains(f16._path)] == [1]


def test_damage_in_another_namespace_is_dealt_with_there(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    put_chat(q8, CHAT[:300])
    hit = Match().followed_by(f16.match_in(Q8, CHAT), Q8.id).hits[1]
    (file,) = (path for path in page_files(disk.folder) if path.name == hit.key.hex())
    file.write_bytes(file.read_bytes()[:-1] + b"\x00")
    with pytest.raises(PageDamaged):
        read(f16, hit)
    assert not file.exists()
    assert f16.match_in(Q8, CHAT).tokens == q8.match(CHAT).tokens == 128


def rows_there(match: Match) -> dict[int, str]:
    """Of each token that has rows of a window the namespace that it is read from."""
    return {
        at: hit.namespace
        for hit in match.hits
        for at in range(hit.first, hit.start + hit.take)
        if at >= hit.start + hit.rows - hit.complete
    }


def test_any_pages_of_several_namespaces_tile_the_history() -> None:
    """Random chains, the later ones behind the usable part of the earlier: each token once, in order, and where a chat
    could go on before it still can."""
    source = random.Random(11)
    for _ in range(2000):
        window = source.choice((0, 3, 9))
        match, reach = Match(), 0
        for name in "abc"[: source.randint(1, 3)]:
            hits, at = [], 0
            for _ in range(source.randint(0, 4)):
                complete = 5 if source.random() < 0.8 else source.randint(0, 5)
                hits.append(Hit(bytes(32), bytes(32), "", b"", at, 5, 5, 0.0, complete))
                at += 5
            end = match.usable(window)
            wider = match.upto(end).followed_by(Match(tuple(hits), at), name)
            if wider.usable(window) > end:
                match, reach = wider, wider.usable(window)
        tokens = [at for hit in match.hits for at in range(hit.first, hit.start + hit.take)]
        assert tokens == list(range(match.tokens))
        needed = range(max(0, reach - max(0, window - 1)), reach) if window > 1 else ()
        assert rows_there(match).keys() >= set(needed)


# ------------------------------------------------------------------ what is there under a key


def test_around_pages_that_were_never_written(f16: PageStore, q8: PageStore) -> None:
    """f16 computed 300 tokens; some of them left, the type became q8_0, and 100 more came. What lies in q8_0 is behind
    the eviction, and bears the tags of rows that came from f16."""
    eviction = Eviction(300, ((4, 150),))
    put_chat(f16, CHAT[:300])
    parent = q8.namespace.root
    for start, end in ((0, 128), (128, 256), (256, 300)):
        parent = chain_tokens(parent, "f16", CHAT[start:end])
    q8.put(page(chain_evict(parent, eviction.ranges), CHAT[300:], 300))
    there = f16.match(CHAT, evictions=[eviction])
    assert there.tokens == 300
    hits = {hit.start: replace(hit, namespace=F16.id) for hit in there.hits}
    assert q8.match_in(Q8, CHAT, evictions=[eviction]).tokens == 0
    found = q8.match_in(Q8, CHAT, evictions=[eviction], detour=Detour(hits, ["f16"] * 300))
    assert [(hit.start, hit.take, hit.namespace) for hit in found.hits] == [
        (0, 128, F16.id),
        (128, 128, F16.id),
        (256, 44, F16.id),
        (300, 100, ""),
    ]
    other = Detour(hits, ["q4_0"] * 300)  # rows that came another way are other rows, and lead to nothing
    assert q8.match_in(Q8, CHAT, evictions=[eviction], detour=other) == Match()
    damaged = Detour({**hits, 128: replace(hits[128], ids=hits[0].ids)}, ["f16"] * 300)
    assert q8.match_in(Q8, CHAT, evictions=[eviction], detour=damaged) == Match()


def test_what_is_held(f16: PageStore) -> None:
    pages = list(zip(put_chat(f16, CHAT[:300]), (128, 256, 300), strict=True))
    assert f16.holds(pages, 300) == 3
    assert f16.holds([pages[0], (bytes(32), 256), *pages[1:]], 300) == 1
    assert f16.holds([], 0) == 0


def test_a_page_that_lacks_rows_of_its_window_is_put_again_when_it_is_computed(f16: PageStore) -> None:
    root = F16.root
    f16.put(page(root, CHAT[:128], 0, window=60))
    key = chain_tokens(root, "", CHAT[:128])
    assert f16.holds([(key, 128)], 128) == 1  # nothing of it is computed
    assert f16.holds([(key, 128)], 100) == 0


# ------------------------------------------------------------------ a chain in another type

ELEMENTS = 64
GEOMETRY = shape("llama", 1, 1, 1, ELEMENTS)


def real_rows(ids: list[int]) -> NewRows:
    source = np.random.default_rng(ids[0])
    parts = tuple(source.standard_normal((len(ids), ELEMENTS)).astype(np.float16).view(np.uint8) for _ in range(2))
    layer = LayerShape(1, 2 * ELEMENTS, 1, 2 * ELEMENTS)
    return NewRows("full", (layer,), len(ids), tuple(part.reshape(-1).data for part in parts))


def put_real(store: PageStore, ids: list[int]) -> list[bytes]:
    keys = [store.namespace.root]
    for at in range(0, len(ids), 128):
        some = ids[at : at + 128]
        store.put(NewPage(keys[-1], "", tuple(some), at, (real_rows(some),), {}, 1.0))
        keys.append(chain_tokens(keys[-1], "", some))
    return keys[1:]


def transcoder(source: Namespace = F16, target: Namespace = Q8) -> Transcoder:
    return Transcoder(NumpyQuants(), GEOMETRY, form_of(source), form_of(target))


def test_a_chain_once_more(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    keys = put_real(f16, CHAT[:300])
    done = transcode_chain(disk.folder, 2**40, F16, keys[-1], Q8, transcoder())
    assert (done.tokens, done.pages, done.written) == (300, 3, 3)
    match = q8.match(CHAT)
    assert ([hit.tag for hit in match.hits], match.tokens) == (["f16"] * 3, 300)
    assert match.hits[-1].key == done.last
    assert f16.match(CHAT).tokens == 300  # they are still there
    again = transcode_chain(disk.folder, 2**40, F16, keys[-1], Q8, transcoder())
    assert again == replace(done, written=0, written_bytes=0)


def test_the_way_goes_on(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    keys = put_real(f16, CHAT[:200])
    there = transcode_chain(disk.folder, 2**40, F16, keys[-1], Q8, transcoder())
    transcode_chain(disk.folder, 2**40, Q8, there.last, F16, transcoder(Q8, F16))
    tags = {chain.type_k: chain_pages(disk.folder, chain.chain).pages[0].tag for chain in chains(disk.folder)}
    found = {page.tag for chain in chains(disk.folder) for page in chain_pages(disk.folder, chain.chain).pages}
    assert (tags["q8_0"], found) == ("f16", {"", "f16", "f16>q8_0"})
    assert f16.match(CHAT).hits[0].tag == ""  # what was computed goes before what came back


def test_only_what_leads_to_the_page(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    first = put_real(f16, CHAT[:128])
    put_real(f16, [*CHAT[:128], 1, 2, 3])
    done = transcode_chain(disk.folder, 2**40, F16, first[-1], Q8, transcoder())
    assert (done.tokens, q8.match(CHAT).tokens) == (128, 128)


def test_a_beginning_that_is_gone(disk: Disk, f16: PageStore) -> None:
    keys = put_real(f16, CHAT[:300])
    (file,) = (path for path in page_files(disk.folder) if path.name == keys[0].hex())
    file.unlink()
    hit = f16.match(CHAT).hits[0]
    with pytest.raises(KvchatError):
        read(f16, hit)
    with pytest.raises(KvchatError, match="beginning of this chain"):
        transcode_chain(disk.folder, 2**40, F16, keys[-1], Q8, transcoder())


def test_a_chain_in_which_something_was_evicted_is_left_to_its_chat(disk: Disk, f16: PageStore) -> None:
    keys = put_real(f16, CHAT[:128])
    key = chain_evict(keys[-1], ((4, 100),))
    f16.put(page(key, CHAT[128:200], 128, after=keys[-1]))
    with pytest.raises(KvchatError, match="tokens were evicted"):
        transcode_chain(disk.folder, 2**40, F16, chain_tokens(key, "", CHAT[128:200]), Q8, transcoder())


def test_a_damaged_page_ends_it_and_what_is_before_it_stays(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    keys = put_real(f16, CHAT[:300])
    (file,) = (path for path in page_files(disk.folder) if path.name == keys[1].hex())
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FormatError, match="damaged"):
        transcode_chain(disk.folder, 2**40, F16, keys[-1], Q8, transcoder())
    assert q8.match(CHAT).tokens == 128


def test_a_full_store_keeps_the_source(disk: Disk, f16: PageStore, q8: PageStore) -> None:
    keys = put_real(f16, CHAT[:300])
    budget = sum(path.stat().st_size for path in page_files(disk.folder)) + 20_000
    with pytest.raises(KvchatError, match="budget"):
        transcode_chain(disk.folder, budget, F16, keys[-1], Q8, transcoder())
    assert f16.match(CHAT).tokens == 300
