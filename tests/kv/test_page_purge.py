"""Which pages go with a history, and that none of their bytes is left."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from kv_pages import namespace, page, put_chat, put_state
from traces import traces

from kvchat.formats.page import chain_evict, chain_tokens, pack_ids
from kvchat.formats.past import Eviction, Past
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.problems import StoreUnwritable
from kvchat.kv.purge import Purged, purge
from kvchat.kv.store import PAGE_TOKENS, PageStore

SYSTEM = list(range(1000, 1000 + PAGE_TOKENS))
MINE = list(range(20_000, 20_300))
THEIRS = list(range(30_000, 30_200))


def store(path: Path, **changes: object) -> PageStore:
    return PageStore(path, namespace(**changes), 1 << 30)


def keys(path: Path) -> set[bytes]:
    with closing(PageIndex(PageFolder(path))) as index:
        return {row.key for row in index.rows()}


def needles(ids: list[int]) -> list[bytes]:
    """Four tokens in a row are no chance."""
    return [pack_ids(ids[at : at + 4]) for at in range(0, len(ids) - 3, 16)]


def test_what_is_shared_stays_and_no_id_of_the_rest_is_left(tmp_path: Path) -> None:
    with closing(store(tmp_path)) as pages:
        mine, theirs = put_chat(pages, SYSTEM + MINE), put_chat(pages, SYSTEM + THEIRS)
    with closing(store(tmp_path, type_k="q8_0")) as other:
        elsewhere = put_chat(other, SYSTEM + MINE)
    purged = purge(tmp_path, [Past(SYSTEM + MINE)], [Past(SYSTEM + THEIRS)])
    assert mine[0] in theirs
    assert keys(tmp_path) == {*theirs, elsewhere[0]}  # the system prompt is theirs in that type, too
    assert purged.pages == len(mine) - 1 + len(elsewhere) - 1
    assert traces([tmp_path], needles(MINE)) == set()
    assert traces([tmp_path], needles(THEIRS)) != set()


def test_a_page_that_is_shared_in_part_goes(tmp_path: Path) -> None:
    """The other one reads the few tokens that it had in it again."""
    with closing(store(tmp_path)) as pages:
        put_chat(pages, SYSTEM[:40] + MINE)
        theirs = put_chat(pages, SYSTEM[:40] + THEIRS)
    purge(tmp_path, [Past(SYSTEM[:40] + MINE)], [Past(SYSTEM[:40] + THEIRS)])
    assert keys(tmp_path) == set(theirs)


def test_a_copy_keeps_all(tmp_path: Path) -> None:
    with closing(store(tmp_path)) as pages:
        mine = put_chat(pages, SYSTEM + MINE)
    assert purge(tmp_path, [Past(SYSTEM + MINE)], [Past(SYSTEM + MINE)]) == Purged()
    assert keys(tmp_path) == set(mine)


def test_a_copy_that_went_on_keeps_its_own_beginning(tmp_path: Path) -> None:
    with closing(store(tmp_path)) as pages:
        before = put_chat(pages, SYSTEM + MINE[:100])
        after = put_chat(pages, SYSTEM + MINE)
    purge(tmp_path, [Past(SYSTEM + MINE)], [Past(SYSTEM + MINE[:100])])
    assert keys(tmp_path) == {after[0]}
    assert before[0] == after[0]


def test_what_goes_on_behind_a_history_that_stays_is_its_own(tmp_path: Path) -> None:
    """An answer that was killed: its tokens are not known to the chat."""
    with closing(store(tmp_path)) as pages:
        theirs = put_chat(pages, SYSTEM + THEIRS)
        put_chat(pages, SYSTEM + MINE)
    purge(tmp_path, [Past(SYSTEM + MINE)], [Past(SYSTEM + THEIRS[:20])])
    assert keys(tmp_path) == set(theirs)


def test_what_nobody_accounts_for_goes(tmp_path: Path) -> None:
    """The chat was killed before its tokens were known."""
    with closing(store(tmp_path)) as pages:
        put_chat(pages, SYSTEM + MINE)
        theirs = put_chat(pages, SYSTEM + THEIRS)
    purge(tmp_path, [], [Past(SYSTEM + THEIRS)])
    assert keys(tmp_path) == set(theirs)
    assert traces([tmp_path], needles(MINE)) == set()


def test_checkpoints_go_and_stay_with_their_pages(tmp_path: Path) -> None:
    with closing(store(tmp_path)) as pages:
        for ids in (SYSTEM + MINE, SYSTEM + THEIRS):
            put_chat(pages, ids)
            put_state(pages, ids)
        put_state(pages, SYSTEM)
    before = keys(tmp_path)
    purge(tmp_path, [Past(SYSTEM + MINE)], [Past(SYSTEM + THEIRS)])
    with closing(PageIndex(PageFolder(tmp_path))) as index:
        kinds = [row.kind for row in index.rows()]
    assert (kinds.count("page"), kinds.count("checkpoint")) == (3, 2)
    assert keys(tmp_path) < before


def test_what_comes_after_an_eviction(tmp_path: Path) -> None:
    gone = Eviction(PAGE_TOKENS, ((10, 60),))
    with closing(store(tmp_path)) as pages:
        (first,) = put_chat(pages, SYSTEM)
        for ids in (MINE[:50], THEIRS[:50]):
            parent = chain_evict(first, gone.ranges)
            pages.put(page(parent, ids, PAGE_TOKENS, after=first))
    purge(tmp_path, [Past(SYSTEM + MINE[:50], (gone,))], [Past(SYSTEM + THEIRS[:50], (gone,))])
    assert keys(tmp_path) == {first, chain_tokens(chain_evict(first, gone.ranges), "", THEIRS[:50])}


def test_pinned_pages_stay(tmp_path: Path) -> None:
    with closing(store(tmp_path)) as pages:
        mine = put_chat(pages, SYSTEM + MINE)
        pages.pin("01P", mine[:1], PAGE_TOKENS)
    purge(tmp_path, [Past(SYSTEM + MINE)], [])
    assert keys(tmp_path) == {mine[0]}


def test_a_page_that_the_index_lacks_goes(tmp_path: Path) -> None:
    """Its writer was killed between the file and the index."""
    with closing(store(tmp_path)) as pages:
        mine, theirs = put_chat(pages, MINE), put_chat(pages, THEIRS)
    with closing(PageIndex(PageFolder(tmp_path))) as index:
        index.remove([(row.namespace, row.key) for row in index.rows()])
    assert purge(tmp_path, [Past(MINE)], [Past(THEIRS)]).pages == len(mine)
    assert traces([tmp_path], needles(MINE)) == set()
    assert keys(tmp_path) == set(theirs)


def test_damaged_files_go(tmp_path: Path) -> None:
    with closing(store(tmp_path)) as pages:
        put_chat(pages, MINE)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "x").write_bytes(pack_ids(MINE))
    assert purge(tmp_path, [], []).damaged == 1
    assert traces([tmp_path], needles(MINE)) == set()


def test_there_may_be_no_store(tmp_path: Path) -> None:
    assert purge(tmp_path / "kv", [Past(MINE)], []) == Purged()
    assert not (tmp_path / "kv").exists()


def test_what_cannot_be_deleted_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(store(tmp_path)) as pages:
        put_chat(pages, MINE)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreUnwritable, match="could not be deleted"):
        purge(tmp_path, [Past(MINE)], [])
    monkeypatch.undo()
    assert keys(tmp_path)


def test_an_index_that_is_read_elsewhere_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.kv.database.BUSY_SECONDS", 0.1)
    with closing(store(tmp_path)) as pages:
        put_chat(pages, MINE)
    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM pages").fetchall()
        with pytest.raises(StoreUnwritable, match="could not be deleted: ") as caught:
            purge(tmp_path, [Past(MINE)], [])
        assert "is not saved" not in caught.value.message
    assert purge(tmp_path, [Past(MINE)], []).pages == 0  # they were gone already; now their ids are, too
    assert traces([tmp_path], needles(MINE)) == set()
