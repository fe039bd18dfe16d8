"""What a chat can have of its own, as fields: how values are written, typed, walked, marked and given back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kv_shapes import header

from kvchat.backend.values import DISK_TYPES, EngineConfig, Sampling
from kvchat.config_options import BadValue
from kvchat.conversation import Defaults, Own
from kvchat.kv.geometry import geometry
from kvchat.kv.needs import Memory, Subject
from kvchat.library.find import ModelFile
from kvchat.ui.model_facts import ModelFacts
from kvchat.ui.sampling_fields import FIELDS, SAMPLING, sampling_words, stops_in
from kvchat.ui.settings_engine import EngineDraft, Machine
from kvchat.ui.settings_pages import NOTHING, ChatDraft, ChatNow, HistoryPage, SamplingPage
from kvchat.ui.settings_store import BUDGET, DISK, GIB, KEPT, StorePage, StoreUse, budget_text

# ------------------------------------------------------------------ one field


def test_all_of_sampling_can_be_set() -> None:
    assert {field.name for field in SAMPLING} == set(Sampling.__dataclass_fields__)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("temperature", 0.8, "0.8"),
        ("temperature", 1.0, "1"),
        ("temperature", 0.123456789, "0.123456789"),
        ("top_k", 0, "off"),
        ("top_k", 40, "40"),
        ("top_p", 1.0, "off"),
        ("min_p", 0.0, "off"),
        ("repeat_penalty", 1.0, "off"),
        ("repeat_penalty", 1.05, "1.05"),
        ("seed", None, "drawn"),
        ("seed", 0, "0"),
        ("max_tokens", None, "no limit"),
        ("max_tokens", 256, "256"),
        ("stop", (), "none"),
        ("stop", ("END", "\n\n", 'say "x"'), r'"END", "\n\n", "say \"x\""'),
        ("history", "append", "append"),
    ],
)
def test_what_stands_there_can_be_typed(name: str, value: Any, text: str) -> None:
    assert FIELDS[name].text(value) == text
    assert FIELDS[name].read(text) == value
    assert FIELDS[name].read(FIELDS[name].typed(value)) == value


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("temperature", "-1", "-1.0 is not between 0 and 100"),
        ("temperature", "warm", "'warm' is not a number"),
        ("temperature", "", "'' is not a number"),
        ("temperature", "nan", "nan is not between 0 and 100"),
        ("top_p", "1.1", "1.1 is not between 0 and 1"),
        ("repeat_last_n", "-1", "-1 is not between 0 and 2147483647"),
        ("seed", "4294967295", "4294967295 is not between -1 and 4294967294"),  # llama.cpp's "draw one"
        ("max_tokens", "0", "an answer of 0 tokens is no answer"),
        ("stop", '"a', "a quote is not closed"),
        ("stop", '""', "an empty text would stop every answer at once"),
        ("stop", r'"\q"', r'"\q" holds an escape that is none'),
    ],
)
def test_what_cannot_be_had_is_told(name: str, text: str, problem: str) -> None:
    with pytest.raises(BadValue) as told:
        FIELDS[name].read(text)
    assert told.value.problem == problem


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("", []),
        ("none", []),
        ("###", ["###"]),
        ("a, b c", ["a", "b", "c"]),
        (r'"a b","c"  d', ["a b", "c", "d"]),
        (r'"\n", "\u952e", "键,值"', ["\n", "键", "键,值"]),
        (", ,", []),
    ],
)
def test_stop_strings(text: str, stops: list[str]) -> None:
    assert stops_in(text) == stops


@pytest.mark.parametrize(
    ("name", "value", "after", "before"),
    [
        ("temperature", 0.8, 0.9, 0.7),
        ("temperature", 0.85, 0.9, 0.8),  # back to a round number
        ("temperature", 2.0, 0.0, 1.5),
        ("top_k", 40, 80, 20),
        ("max_tokens", None, 128, 4096),
        ("max_tokens", 1000, 1024, 512),
        ("history", "append", "exact", "exact"),
    ],
)
def test_walking(name: str, value: Any, after: Any, before: Any) -> None:
    assert FIELDS[name].stepped(value, 1) == after
    assert FIELDS[name].stepped(value, -1) == before


def test_a_seed_is_typed() -> None:
    assert not FIELDS["seed"].walkable(None)
    assert FIELDS["seed"].walkable(7)
    assert FIELDS["seed"].stepped(7, 1) is None


def test_values_in_a_line() -> None:
    words = sampling_words({"seed": None, "temperature": 0.3, "stop": ("END",)})
    assert words == 'temperature 0.3, seed drawn, stop strings "END"'
    assert sampling_words({}) == ""


def test_what_has_no_effect_says_so() -> None:
    """As the sampler chain is built: nothing but the penalty counts at temperature 0."""
    greedy, usual = Sampling(temperature=0), Sampling()
    without = [field.name for field in SAMPLING if field.brief(greedy).startswith("without effect")]
    assert without == ["top_k", "top_p", "min_p", "repeat_last_n", "seed"]
    assert FIELDS["repeat_last_n"].brief(usual) == "without effect: no penalty"
    assert FIELDS["repeat_last_n"].brief(replace(usual, repeat_penalty=1.1)) == "last tokens"


# ------------------------------------------------------------------ what the chat is to have

DEFAULTS = Defaults(Sampling(temperature=0.6), "append")


def sampling_page(**own: Any) -> SamplingPage:
    return SamplingPage(ChatDraft(ChatNow(Own(own), DEFAULTS)))


def test_the_default_is_not_the_chats_own() -> None:
    page = sampling_page()
    page.step("temperature", 1)
    assert page.draft.own == Own({"temperature": 0.7})
    assert page.changed
    page.step("temperature", -1)
    assert page.draft.own == Own()
    assert not page.changed


def test_what_is_the_chats_own_stays_so_until_it_is_given_back() -> None:
    page = sampling_page(temperature=0.7)
    assert not page.changed
    page.step("temperature", -1)
    assert page.draft.own == Own({"temperature": 0.6})
    assert page.row("temperature").own
    assert page.row("temperature").note.startswith("default 0.6")
    assert "this chat's own; the default is 0.6" in page.detail("temperature")
    page.give_back("temperature")
    assert page.draft.own == Own()
    assert not page.row("temperature").own
    assert page.changed


def test_other_sampling_computes_nothing() -> None:
    page = sampling_page()
    assert page.effect() == (NOTHING, "none")
    page.take("top_k", "7")
    assert page.draft.sampling == Sampling(temperature=0.6, top_k=7)
    assert page.effect() == ("Nothing is computed again: this chat's next answer is drawn so.", "change")


def test_a_value_that_cannot_be_had_changes_nothing() -> None:
    page = sampling_page(top_k=5)
    with pytest.raises(BadValue):
        page.take("top_k", "many")
    assert page.draft.own == Own({"top_k": 5})


def test_history() -> None:
    page = HistoryPage(ChatDraft(ChatNow(Own(), DEFAULTS)), None)
    assert page.effect() == (NOTHING, "none")
    assert page.detail("history").startswith("history append: what was rendered stays as it was")
    assert "no answer here yet to see what it does to the past" in page.detail("history")
    page.step("history", 1)
    assert page.draft.own.history == "exact"
    assert "history exact" in page.detail("history")
    assert "rendered again" in page.effect()[0]
    page.give_back("history")
    assert page.draft.own == Own()
    assert page.line("history") is None


def test_history_that_is_given_back_and_stays_the_same() -> None:
    page = HistoryPage(ChatDraft(ChatNow(Own(history="append"), DEFAULTS)), None)
    page.give_back("history")
    assert page.effect() == ("It stays as it is, and follows the default from now on.", "change")


# ------------------------------------------------------------------ what is kept on disk


def store_page(folder: str | None = "/kv", **config: Any) -> StorePage:
    machine = Machine(2, None, Memory())
    return StorePage(EngineDraft(None, EngineConfig("m", kv_folder=folder, **config), 0, machine, lambda: None), folder)


def test_the_budget() -> None:
    page = store_page()
    assert page.row(BUDGET).value == "auto"
    page.use = StoreUse(used=3 * GIB, automatic=5 * GIB)
    assert page.row(BUDGET).note == "now 5.0 GiB · 3.0 GiB are used"
    page.step(BUDGET, 1)
    assert page.draft.config.kv_budget == GIB
    assert page.row(BUDGET).value == "1 GiB"
    assert page.row(BUDGET).note == "3.0 GiB are used"
    assert "2.0 GiB of what is there now do not fit into it." in page.detail(BUDGET)
    page.take(BUDGET, "500M")
    assert page.draft.config.kv_budget == 500 * 1000**2
    page.take(BUDGET, "auto")
    assert not page.changed
    with pytest.raises(BadValue):
        page.take(BUDGET, "much")
    page.take(BUDGET, "3GiB")
    page.step(BUDGET, -1)
    assert page.draft.config.kv_budget == 2 * GIB


def test_the_type_on_disk() -> None:
    page = store_page()
    assert (page.row(DISK).value, page.row(DISK).note, page.changed) == ("same", "", False)
    walked = []
    for _ in DISK_TYPES:
        page.step(DISK, 1)
        walked.append(page.draft.config.kv_type_disk)
    assert walked == [*DISK_TYPES[1:], "same"]
    page.step(DISK, -1)
    assert page.changed
    assert page.line(DISK) is None
    assert "transcoded" in page.detail(DISK)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"kv_type_disk": "q8_0"}, "53% of the room"),  # 34 bytes in place of 64
        ({"kv_type_disk": "q4_0"}, "28% of the room"),
        ({"kv_type_disk": "q4_0", "type_k": "q8_0", "type_v": "f16"}, "37% of the room"),  # 36 of 98
        ({"kv_type_disk": "q8_0", "type_k": "q4_0", "type_v": "q4_0"}, "saved as in memory"),
        ({"kv_type_disk": "bf16"}, "saved as in memory"),
    ],
)
def test_what_the_type_on_disk_takes(config: dict[str, Any], note: str) -> None:
    page = store_page(**config)
    sizes = {"attention__key_length": 64, "attention__value_length": 64}
    header_of = header("llama", block_count=2, attention__head_count=4, **sizes)
    subject = Subject("m", header_of, geometry(header_of), 1, None)
    page.draft.know(ModelFacts(ModelFile("m", Path("m.gguf"), 1, "models"), subject))
    assert page.row(DISK).note == note


@pytest.mark.parametrize(
    ("size", "text", "exact"),
    [
        (0, "auto", "auto"),
        (8 * GIB, "8 GiB", "8 GiB"),
        (3 << 19, "1536 KiB", "1536 KiB"),
        (200_000_001, "191 MiB", "200000001"),
    ],
)
def test_a_budget_in_words(size: int, text: str, exact: str) -> None:
    assert budget_text(size) == text
    assert budget_text(size, exact=True) == exact
    page = store_page()
    page.take(BUDGET, exact)
    assert page.draft.config.kv_budget == size


def test_kept_on_disk_or_not() -> None:
    page = store_page()
    assert page.row(KEPT).value == "on disk"
    page.step(KEPT, 1)
    assert page.draft.config.kv_folder is None
    assert page.row(KEPT).value == "in memory"
    assert page.changed
    page.step(KEPT, 1)
    assert page.draft.config.kv_folder == "/kv"
    assert page.line(KEPT) is None


def test_a_run_without_kv_cannot_be_changed() -> None:
    page = store_page(None)
    row = page.row(KEPT)
    assert (row.value, row.walkable) == ("no", False)
    page.step(KEPT, 1)
    assert page.draft.config.kv_folder is None
    assert "--no-kv" in page.detail(KEPT)


def test_an_empty_store(tmp_path: Path) -> None:
    from kvchat.ui.settings_store import store_use

    use = store_use(tmp_path / "not there")
    assert use.used == 0
    assert 0 < use.automatic <= 8 * GIB
