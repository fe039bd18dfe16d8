"""The real engine over a store that is damaged or taken away: it lives, and answers as without faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny
from driver import Driver
from fault_campaign import CHAT, CONFIG, SHORT, Campaign
from page_mutations import MUTATIONS

pytestmark = pytest.mark.usefixtures("engines_by_fork")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """With Q4_1 weights, see `fault_campaign`."""
    return tiny.build("llama", tmp_path, weights="q4_1", name="small")


def test_a_campaign_of_damaged_pages(tmp_path: Path, model: Path) -> None:
    """`benchmarks/faults.py` does the same 500 times, with the built-in model."""
    campaign = Campaign(tmp_path, model)
    campaign.run(2 * len(MUTATIONS))
    assert campaign.wrong == []
    assert set(campaign.rounds) == set(MUTATIONS)
    assert campaign.store.damaged == 0


def test_the_store_is_removed_and_its_index_deleted_while_the_engine_runs(tmp_path: Path, model: Path) -> None:
    chat = Driver.start(tmp_path, model, **CONFIG)
    try:
        chat.ready()
        chat.ask(CHAT, sampling=SHORT)
        pid = chat.engine.pid
        shutil.rmtree(tmp_path / "kv")
        assert chat.ask("And then?", sampling=SHORT).finished.reason == "length"
        for file in (tmp_path / "kv").glob("index.db*"):
            file.unlink()
        answer = chat.ask("And then?", sampling=SHORT)
        assert answer.finished.reason == "length"
        assert answer.usage.resident > 0
        assert chat.engine.pid == pid
    finally:
        chat.engine.close()
