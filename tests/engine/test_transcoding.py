"""A chat whose cache type changes: its KV comes along, transcoded, and nothing of its past is computed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from driver import Driver

from kvchat.backend.protocol import Evicted, Warm, Warmed
from kvchat.backend.values import EngineConfig, Sampling
from kvchat.formats.gguf import read_header
from kvchat.kv.geometry import geometry
from kvchat.kv.overview import chain_pages, chains

LONG = "Tell me about the sea and the land. " * 20


def config(driver: Driver, **changes: object) -> EngineConfig:
    return replace(driver.engine.config, **changes)


def switch(driver: Driver, type_k: str, type_v: str | None = None, **changes: object) -> None:
    driver.engine.configure(config(driver, type_k=type_k, type_v=type_v or type_k, **changes))
    ready = driver.ready()
    assert (ready.cache.type_k, ready.cache.type_v) == (type_k, type_v or type_k)


def its_own(answer) -> int:
    """Tokens of the prompt that were not computed in a turn before: what is behind the last reply, and its last token,
    which was sampled and never decoded, or decoded for its logits."""
    return len(answer.segments[-1]) + 1


def test_a_chat_keeps_its_kv_through_four_types(start):
    driver = start()
    driver.ask(LONG)
    for kind, source in (("q8_0", "f16"), ("q4_0", "f16, q8_0"), ("f16", "q8_0, q4_0")):
        switch(driver, kind)
        answer = driver.ask("And then?")
        assert answer.usage.cut is None
        assert answer.usage.computed <= its_own(answer), kind
        assert answer.usage.pages == answer.usage.reused > 150
        assert answer.usage.transcoded == source
        again = driver.ask("And?")
        assert (again.usage.transcoded, again.usage.pages, again.usage.computed <= its_own(again)) == (None, 0, True)


def test_the_lineage_is_kept(start, tmp_path):
    """From f16 to q8_0, and in another process on to q4_0: the tags tell the way."""
    driver = start()
    driver.ask(LONG)
    switch(driver, "q8_0")
    driver.ask("And then?")
    driver.engine.close()
    tags = {page.tag for chain in chains(tmp_path / "kv") for page in chain_pages(tmp_path / "kv", chain.chain).pages}
    assert "" in tags
    assert "f16" in tags
    (mixed,) = (tag for tag in tags if "," in tag)
    assert mixed.startswith("f16:")
    assert ",computed:" in mixed


def test_what_was_transcoded_is_found_again_in_a_new_process(start):
    first = start()
    first.ask(LONG)
    switch(first, "q8_0")
    first.ask("And then?")
    first.engine.close()
    second = start(type_k="q8_0", type_v="q8_0")
    second.messages = first.messages
    answer = second.ask("And?")
    assert (answer.usage.cut, answer.usage.transcoded) == (None, None)
    assert answer.usage.computed <= its_own(answer)


@pytest.mark.parametrize(
    "kind", ["llama128", "deepseek2", "gemma3", "lfm2swa", "jamba", "mamba", "qwen3vl", "falcon-h1"]
)
def test_every_kind_of_memory(tmp_path, kind):
    model = tiny.build(kind, tmp_path)
    driver = Driver.start(tmp_path, model)
    try:
        driver.ready()
        driver.ask(LONG)
        for type_k, type_v in (("q8_0", "q8_0"), ("q4_0", "q4_0"), ("bf16", "bf16"), ("f16", "f16")):
            assert geometry(read_header(model)).refusal(type_k, type_v, "auto") is None
            switch(driver, type_k, type_v)
            answer = driver.ask("And then?")
            assert answer.usage.cut is None, type_k
            assert answer.usage.computed <= its_own(answer), type_k
            assert (answer.usage.transcoded is None) == (kind == "mamba")
    finally:
        driver.engine.close()


def pages_of(home: Path) -> dict[str, list[str]]:
    """Tags of all pages, by K type."""
    found: dict[str, list[str]] = {}
    for chain in chains(home / "kv"):
        found.setdefault(chain.type_k, []).extend(page.tag for page in chain_pages(home / "kv", chain.chain).pages)
    return found


def test_a_type_of_its_own_on_disk(start, tmp_path):
    """f16 in memory, q8_0 on disk: what lies there says so, takes its room, and is all that a restart needs."""
    first = start(kv_type_disk="q8_0")
    first.ask(LONG)
    told = first.ask("And then?")
    assert told.usage.transcoded is None  # it is resident, as it was computed
    first.engine.close()
    assert pages_of(tmp_path) == {"q8_0": ["f16", "f16"]}
    rows = sum(chain.bytes for chain in chains(tmp_path / "kv"))
    assert rows < 1.1 * told.usage.cells * 12240  # bytes of a token as q8_0, and headers

    again = start(kv_type_disk="q8_0")
    again.messages = first.messages
    answer = again.ask("And?")
    assert (answer.usage.cut, answer.usage.transcoded) == (None, "q8_0")
    assert answer.usage.transcoded_tokens == answer.usage.pages == answer.usage.reused
    assert answer.usage.computed <= its_own(answer)
    again.engine.close()
    assert set(pages_of(tmp_path)) == {"q8_0"}
    assert answer.usage.pages_saved <= 2  # what is new, and not what was restored


def test_many_restarts_leave_one_chain_on_disk(start, tmp_path):
    """The part-filled tail grows in place, however often it went out and in."""
    messages: list = []
    for _ in range(4):
        driver = start(kv_type_disk="q4_0")
        driver.messages = messages
        driver.ask("Go on, please.")
        driver.engine.close()
    (chain,) = chains(tmp_path / "kv")
    assert (chain.type_k, chain.lineage, chain.tokens) == ("q4_0", "f16", chain.tokens)
    assert chain.pages == -(-chain.tokens // 128)


def test_a_larger_type_on_disk_is_not_taken(start, tmp_path):
    driver = start(kv_type_disk="f16", type_k="q8_0", type_v="q8_0")
    driver.ask(LONG)
    driver.engine.close()
    assert pages_of(tmp_path) == {"q8_0": ["", ""]}


def test_pages_as_they_were_are_read_before_those_of_the_disk(start, tmp_path):
    first = start()
    first.ask(LONG)
    first.engine.close()
    second = start(kv_type_disk="q8_0")
    second.messages = first.messages
    answer = second.ask("And then?")
    assert (answer.usage.cut, answer.usage.transcoded) == (None, None)
    second.engine.close()
    assert set(pages_of(tmp_path)) == {"f16", "q8_0"}
    third = start(kv_type_disk="q8_0")
    third.messages = second.messages
    answer = third.ask("And?")
    assert answer.usage.transcoded == "q8_0"
    assert 0 < answer.usage.transcoded_tokens < answer.usage.pages
    assert answer.usage.computed <= its_own(answer)


@pytest.mark.parametrize("page", [0, 1])
def test_a_damaged_source_is_a_miss(start, tmp_path, page):
    driver = start()
    driver.ask(LONG)
    driver.engine.close()
    chain = chain_pages(tmp_path / "kv", chains(tmp_path / "kv")[0].chain)
    key = chain.pages[page].key.hex()
    (file,) = (tmp_path / "kv").glob(f"pages/*/*/{key}")
    raw = bytearray(file.read_bytes())
    raw[-1000] ^= 1
    file.write_bytes(raw)
    again = start(type_k="q8_0", type_v="q8_0")
    again.messages = driver.messages
    answer = again.ask("And then?")
    assert answer.usage.cut == "corrupt page"
    assert answer.usage.pages == page * 128
    assert not file.exists()
    assert answer.finished.failure is None
    assert again.ask("And?").usage.cut is None


def test_a_damaged_source_is_written_again_from_the_cells(start, tmp_path):
    """The tail is put once more when the type changes, and a put looks at what is there."""
    driver = start()
    assert driver.ask(LONG).usage.save_problem is None
    chain = chain_pages(tmp_path / "kv", chains(tmp_path / "kv")[0].chain)
    (file,) = (tmp_path / "kv").glob(f"pages/*/*/{chain.pages[-1].key.hex()}")
    file.write_bytes(file.read_bytes()[:-1])
    switch(driver, "q8_0")
    assert driver.ask("And then?").usage.cut is None


def test_what_was_not_saved_is_saved_before_the_type_changes(start, tmp_path):
    """The disk refused everything during the turn; it has room again when the type changes."""
    driver = start()
    first = driver.ask("Hello.")
    (space,) = (tmp_path / "kv" / "pages").iterdir()
    space.rename(tmp_path / "away")
    space.touch()  # a file where the folder of the namespace should be
    second = driver.ask(LONG)
    assert second.usage.save_problem is not None
    space.unlink()
    (tmp_path / "away").rename(space)
    switch(driver, "q8_0")
    answer = driver.ask("And then?")
    assert (answer.usage.cut, answer.usage.transcoded) == (None, "f16")
    assert answer.usage.computed <= its_own(answer)
    assert first.usage.cells < answer.usage.pages


def test_a_turn_that_keeps_nothing_is_not_saved_when_the_type_changes(start, tmp_path):
    driver = start()
    driver.ask(LONG, keep_kv=False)
    switch(driver, "q8_0")
    assert chains(tmp_path / "kv") == []


def test_warming_tells_where_it_came_from_and_so_does_the_turn(start):
    driver = start()
    driver.ask(LONG)
    ids = tuple(token for message in driver.messages for token in message.ids or ())
    switch(driver, "q8_0")
    driver.engine.warm(Warm("w", ids))
    warmed = driver.until(Warmed)[-1]
    assert (warmed.transcoded, warmed.transcoded_tokens) == ("f16", warmed.pages)
    answer = driver.ask("And then?")
    assert answer.usage.resident == answer.usage.reused
    assert (answer.usage.transcoded, answer.usage.transcoded_tokens) == ("f16", warmed.pages)
    assert driver.ask("And?").usage.transcoded is None


class Evicting:
    """A chat in a small context, in which the oldest turns leave."""

    def __init__(self, home: Path, model: Path, **config: object) -> None:
        self.home, self.model, self.config = home, model, config
        self.log: tuple = ()
        self.messages: list = []
        self.open()

    def open(self, **changes: object) -> None:
        self.config = {"context": 512} | self.config | changes
        self.driver = Driver.start(self.home, self.model, **self.config)
        self.driver.ready()
        self.driver.messages = self.messages

    def ask(self):
        answer = self.driver.ask(
            LONG[:140], overflow="shift", evictions=self.log, sampling=Sampling(temperature=0, max_tokens=24)
        )
        self.messages = self.driver.messages
        self.log += tuple(event.eviction for event in answer.events if isinstance(event, Evicted))
        assert answer.usage.cut is None
        assert answer.usage.computed <= its_own(answer)
        return answer

    def until_evicted(self, count: int) -> None:
        while len(self.log) < count:
            self.ask()

    def close(self) -> None:
        self.driver.engine.close()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("disk", ["same", "q5_1"])
@pytest.mark.parametrize("anew", [False, True], ids=["in place", "new process"])
def test_a_chat_that_lost_tokens_keeps_the_rest_through_all_types(tmp_path, kind, disk, anew):
    """Twice evicted in f16, and once more in each type that follows. What was computed behind an eviction lies in the
    type of then, and what came before it nowhere but in that from before."""
    chat = Evicting(tmp_path, tiny.build(kind, tmp_path), kv_type_disk=disk)
    try:
        chat.until_evicted(2)
        for number, next_kind in enumerate(("q8_0", "q4_0", "f16"), 3):
            if anew:
                chat.close()
                chat.open(type_k=next_kind, type_v=next_kind)
            else:
                switch(chat.driver, next_kind)
            answer = chat.ask()
            assert answer.usage.pages == answer.usage.reused > 200
            chat.until_evicted(number)
            chat.close()
            chat.open(type_k=next_kind, type_v=next_kind)
            chat.ask()
    finally:
        chat.close()
