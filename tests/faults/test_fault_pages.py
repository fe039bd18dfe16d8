"""500 damaged pages: each is noticed, none gives a row that is not the right one, and the store heals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kv_pages import Disk, page_files, put_chat, read, restore
from page_mutations import MUTATIONS, Mutation

from kvchat.kv.store import PageDamaged, PageMissing, PageStore
from kvchat.kv.verify import VerifyReport, verify

CHAT = list(range(500, 800))
OTHERS = list(range(300))
ROUNDS = 504 // len(MUTATIONS)


def prepared(disk: Disk) -> list[Path]:
    """A store with the chat, another chat, and both as another model and another cache type saw them; its files."""
    for changes in ({}, {"type_k": "bf16"}, {"fingerprint": "cd" * 16}):
        with closing(disk.store(**changes)) as store:
            put_chat(store, CHAT)
            put_chat(store, OTHERS)
    return page_files(disk.folder)


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_detected(disk: Disk, name: str) -> None:
    everything = prepared(disk)
    rng = random.Random(name)
    store = disk.store()
    keys = put_chat(store, CHAT)
    for number in range(ROUNDS):
        index = number % len(keys)
        path = disk.file_of(store.namespace.id, keys[index])
        sound = path.read_bytes()
        MUTATIONS[name](rng, path, everything)
        assert path.read_bytes() != sound
        with pytest.raises(PageDamaged):
            read(store, store.match(CHAT).hits[index])
        assert restore(store, CHAT) == 128 * index  # what was before it is whole
        assert not path.exists()
        put_chat(store, CHAT)
        assert restore(store, CHAT) == len(CHAT)


@pytest.mark.parametrize("name", MUTATIONS)
def test_verify_finds_them_too(disk: Disk, name: str) -> None:
    everything = prepared(disk)
    rng = random.Random(name)
    victims = rng.sample(everything, 6)
    sound = {path: path.read_bytes() for path in everything}
    for path in victims:
        MUTATIONS[name](rng, path, everything)
    changed = [path for path in everything if path.read_bytes() != sound[path]]
    assert verify(disk.folder).damaged == len(changed) == 6
    clean = verify(disk.folder)
    assert clean == VerifyReport(pages=len(everything) - 6, bytes=clean.bytes)


def delete(file: Path) -> None:
    file.unlink()


def garble(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    rng = random.Random(len(raw))
    for _ in range(200):
        raw[rng.randrange(100, len(raw))] = rng.randrange(256)
    file.write_bytes(raw)


@pytest.mark.parametrize("index_fault", [delete, garble])
def test_damage_of_pages_and_index_at_once(disk: Disk, index_fault: Callable[[Path], None]) -> None:
    """Rounds of damage in a few pages and in the index, all under an open store: rows are right or missing."""
    everything = prepared(disk)
    contents = {path: path.read_bytes() for path in everything}
    rng = random.Random(5)
    store = disk.store()
    seen: Counter[int] = Counter()
    for _ in range(20):
        sound = [path for path in everything if path.exists() and path.read_bytes() == contents[path]]
        for path in rng.sample(sound, 3):
            mutation: Mutation = rng.choice(list(MUTATIONS.values()))
            mutation(rng, path, everything)
        index_fault(disk.folder / "index.db")
        seen[usable(store)] += 1
        put_chat(store, CHAT)
        assert usable(store) == len(CHAT)
    assert len(seen) > 1, "the damage never met the chat"


def usable(store: PageStore) -> int:
    """How many leading tokens come back, after as many misses as there are."""
    for _ in range(10):
        try:
            return restore(store, CHAT)
        except (PageDamaged, PageMissing):
            continue
    raise AssertionError("a page stays bad for ever")
