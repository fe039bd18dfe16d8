"""Chains as a person sees them, and the check of the whole store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kv_pages import SECONDS, Disk, page, page_files, put_chat, restore

from kvchat.errors import KvchatError
from kvchat.formats.page import chain_evict
from kvchat.kv.overview import chain_pages, chains
from kvchat.kv.verify import VerifyReport, verify

SYSTEM = list(range(600))  # a system prompt of 600 tokens: four full pages and 88 more
FIRST = [*SYSTEM, *[7] * 30]
SECOND = [*SYSTEM, *[8] * 200]


def test_no_store_no_chains(tmp_path: Path) -> None:
    assert chains(tmp_path / "kv") == []
    assert verify(tmp_path / "kv") == VerifyReport()
    assert not (tmp_path / "kv").exists()


def test_one_chat_is_one_chain(disk: Disk) -> None:
    keys = put_chat(disk.store(), FIRST)
    (chain,) = chains(disk.folder)
    assert chain.chain == keys[0].hex()[:12]
    assert (chain.parent, chain.start, chain.tokens, chain.pages) == (None, 0, 630, 5)
    assert (chain.model, chain.type_k, chain.type_v) == ("Tiny", "f16", "f16")
    assert (chain.hits, chain.seconds_saved, chain.pinned) == (0, 0.0, False)
    assert chain.bytes == sum(file.stat().st_size for file in page_files(disk.folder))


def test_shared_pages_are_listed_once(disk: Disk) -> None:
    store = disk.store()
    first, second = put_chat(store, FIRST), put_chat(store, SECOND)
    found = {chain.chain: chain for chain in chains(disk.folder)}
    assert {(name, chain.parent, chain.start, chain.tokens, chain.pages) for name, chain in found.items()} == {
        (first[0].hex()[:12], None, 0, 512, 4),
        (first[4].hex()[:12], first[0].hex()[:12], 512, 118, 1),
        (second[4].hex()[:12], first[0].hex()[:12], 512, 288, 3),
    }
    assert sum(chain.pages for chain in found.values()) == len(page_files(disk.folder))


def test_use_is_counted(disk: Disk) -> None:
    store = disk.store()
    put_chat(store, FIRST)
    for _ in range(3):
        store.used(store.match(FIRST).hits)
    (chain,) = chains(disk.folder)
    assert chain.hits == 3
    assert chain.seconds_saved == pytest.approx(3 * 5 * SECONDS)


def test_the_last_used_comes_first(disk: Disk) -> None:
    store = disk.store()
    one, two = put_chat(store, [1, 2, 3]), put_chat(store, [4, 5])
    store.used(store.match([1, 2, 3]).hits)
    assert [chain.chain for chain in chains(disk.folder)] == [one[0].hex()[:12], two[0].hex()[:12]]


def test_namespaces_are_kept_apart(disk: Disk) -> None:
    put_chat(disk.store(), FIRST)
    put_chat(disk.store(type_k="q8_0", model="Other"), FIRST)
    assert {(chain.model, chain.type_k) for chain in chains(disk.folder)} == {("Tiny", "f16"), ("Other", "q8_0")}


def test_pages_whose_past_is_gone_are_listed(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, FIRST)
    store.put(page(chain_evict(keys[-1], [(0, 5)]), [1, 2], 630))
    [file.unlink() for file in page_files(disk.folder) if file.name == keys[1].hex()]
    (disk.folder / "pages" / store.namespace.id / "namespace.json").unlink()
    assert verify(disk.folder).stale == 1
    found = chains(disk.folder)
    assert sorted((chain.start, chain.tokens) for chain in found) == [(0, 128), (256, 374), (630, 2)]
    assert {(chain.parent, chain.model) for chain in found} == {(None, "")}


def test_a_chain_by_the_beginning_of_its_name(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, FIRST)
    found = chain_pages(disk.folder, keys[0].hex()[:6].upper())
    assert [row.key for row in found.pages] == keys
    assert found.namespace == store.namespace
    for wrong in ("", "zz", keys[1].hex()):
        with pytest.raises(KvchatError) as caught:
            chain_pages(disk.folder, wrong)
        assert caught.value.hint
    for number in range(17):  # two of these begin with the same digit
        put_chat(store, [10_000 + number])
    digits = [chain.chain[0] for chain in chains(disk.folder)]
    with pytest.raises(KvchatError, match="chains begin with"):
        chain_pages(disk.folder, max(digits, key=digits.count))


# ------------------------------------------------------------------ verify


def test_a_sound_store_verifies(disk: Disk) -> None:
    put_chat(disk.store(), FIRST)
    put_chat(disk.store(type_v="q8_0"), SECOND)
    files = page_files(disk.folder)
    assert verify(disk.folder) == VerifyReport(pages=12, bytes=sum(file.stat().st_size for file in files))
    assert page_files(disk.folder) == files


def test_everything_that_is_wrong_is_found(disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, FIRST)
    files = {file.name: file for file in page_files(disk.folder)}
    flipped, gone, unknown = (files[keys[number].hex()] for number in (1, 2, 4))
    raw = bytearray(flipped.read_bytes())
    raw[-1] ^= 1
    flipped.write_bytes(raw)
    gone.unlink()
    store._index.remove([(store.namespace.id, keys[4])])
    (flipped.parent / ("0" * 64)).write_bytes(b"not in its own folder, so it is nobody's page")
    stranger = unknown.with_name(unknown.name[:2] + "0" * 62)
    stranger.write_bytes(unknown.read_bytes())  # under a name that is not its own
    unknown.with_name(unknown.name[:2] + "1" * 62).mkdir()
    report = verify(disk.folder)
    assert (report.pages, report.damaged, report.stale, report.added) == (3, 3, 1, 1)
    assert len(list((disk.folder / "damaged").iterdir())) == 3
    assert restore(store, FIRST) == 128
    again = verify(disk.folder)
    assert (again.pages, again.damaged, again.stale, again.added) == (3, 0, 0, 0)


def test_a_page_of_another_namespace_is_found(disk: Disk) -> None:
    put_chat(disk.store(), [1, 2, 3])
    (file,) = page_files(disk.folder)
    other = disk.store(type_k="q8_0")
    put_chat(other, [9])
    target = disk.folder / "pages" / other.namespace.id / file.name[:2] / file.name
    target.parent.mkdir(exist_ok=True)
    file.rename(target)
    report = verify(disk.folder)
    assert (report.pages, report.damaged, report.stale) == (1, 1, 1)


def test_what_cannot_be_opened_stays(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    put_chat(disk.store(), [1, 2, 3])
    real = os.open

    def refuse(path: Path, *rest: int) -> int:
        if len(Path(path).name) == 64:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    report = verify(disk.folder)
    assert (report.pages, report.unreadable, report.damaged) == (0, 1, 0)
    assert len(page_files(disk.folder)) == 1
