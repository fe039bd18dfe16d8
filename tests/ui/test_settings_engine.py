"""What the settings say about the store, against what a real engine does with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tiny
from driver import GREEDY, Driver
from kv_pages import page_files

from kvchat.backend.protocol import Preview, Previewed
from kvchat.ui.sampling_fields import FIELDS
from kvchat.ui.settings_store import store_use

LONG = "Tell me about letters, reports and the like. " * 5


def test_memory_only_and_back(home: Path, tmp_path: Path) -> None:
    """Without the disk the context is built empty and nothing is written; with it again, what was written before the
    change comes back. The preview says so beforehand."""
    driver = Driver.start(home, tiny.build("llama", tmp_path))
    try:
        driver.ready()
        driver.ask(LONG)
        ids = tuple(token for message in driver.messages for token in message.ids or ())
        on_disk = driver.engine.config
        in_memory = replace(on_disk, kv_folder=None)
        driver.engine.preview(Preview("p", ids, in_memory))
        previewed = driver.until(Previewed)[-1]
        assert isinstance(previewed, Previewed)
        assert (previewed.tokens, previewed.restored) == (len(ids), 0)
        driver.engine.configure(in_memory)
        driver.ready()
        files, used = set(page_files(home / "kv")), store_use(home / "kv").used
        assert used == sum(file.stat().st_size for file in files) > 0
        usage = driver.ask(LONG).usage
        assert (usage.reused, usage.pages_saved) == (0, 0)
        usage = driver.ask(LONG).usage
        assert usage.reused == usage.resident > 0  # what is in memory is reused as always
        assert set(page_files(home / "kv")) == files
        driver.engine.configure(on_disk)
        driver.ready()
        assert driver.ask(LONG).usage.pages >= len(ids) - 1
    finally:
        driver.engine.close()


def test_a_smaller_budget_is_kept(home: Path, tmp_path: Path) -> None:
    """A second chat of the same size takes the room of the first."""
    driver = Driver.start(home, tiny.build("llama", tmp_path))
    try:
        driver.ready()
        driver.ask(LONG)
        config = driver.engine.config
        driver.engine.configure(replace(config, kv_budget=1))  # what waits to be written is written before
        driver.ready()
        before = store_use(home / "kv").used
        driver.engine.configure(replace(config, kv_budget=before))
        driver.ready()
        driver.messages.clear()
        driver.ask("Another chat. " + LONG)
        driver.engine.configure(config)
        driver.ready()
        assert 0 < store_use(home / "kv").used <= before
    finally:
        driver.engine.close()


def test_the_ends_of_the_scales_are_taken(home: Path, tmp_path: Path) -> None:
    """Every value that the arrow keys lead to can be sampled with."""
    driver = Driver.start(home, tiny.build("llama", tmp_path))
    sampling = replace(GREEDY, temperature=0.8, max_tokens=2, repeat_penalty=1.1)
    try:
        driver.ready()
        for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n"):
            steps = FIELDS[name].steps
            for value in (steps[0], steps[-1]):
                driver.messages.clear()
                answer = driver.ask("Hi", sampling=replace(sampling, **{name: value}))
                assert answer.finished.reason in ("stop", "length"), (name, value)
    finally:
        driver.engine.close()
