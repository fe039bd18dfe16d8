"""Chats longer than the window of their model: what rolled out of it, what comes back, what was never saved."""

from __future__ import annotations

import pytest
import tiny
from driver import Driver

from kvchat.backend.values import Sampling
from kvchat.kv.overview import chain_pages, chains

FEW = Sampling(temperature=0, max_tokens=8)
STORY = "Once there was a cell that remembered every key it was given, and " * 6


@pytest.fixture
def start(tmp_path):
    drivers: list[Driver] = []

    def start(model, **config):
        drivers.append(Driver.start(tmp_path, model, **({"context": 2048} | config)))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


def long_answer_then(start, model, question, sampling):
    """The reply to "Go on." after a long answer: in the session that gave it, and in a new one."""
    chat = start(model)
    first = chat.ask(question, sampling=sampling)
    messages = list(chat.messages)
    second = chat.ask("Go on.", sampling=FEW)
    chat.engine.close()
    again = start(model)
    again.messages = messages
    third = again.ask("Go on.", sampling=FEW)
    assert third.usage.reused == third.usage.pages
    assert third.usage.cut is None
    return first, second, third


@pytest.mark.parametrize("kind", ["gemma3", "gpt-oss", "gemma4"])
def test_an_answer_longer_than_window_and_ring(start, tmp_path, kind):
    """Window 128, ring 512."""
    model = tiny.build(kind, tmp_path)
    first, second, third = long_answer_then(start, model, STORY, Sampling(temperature=0, max_tokens=700))
    assert len(first.ids) == 700
    # the second session found what the first one saved last: all but the token whose logits are wanted
    assert third.usage.computed == 1
    assert third.ids == second.ids


def test_gemma3_270m_beyond_its_window(start, gemma3):
    """Window 512, and an answer of 640 tokens."""
    question = "A list of numbers: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"
    sampling = Sampling(temperature=0.7, seed=3, max_tokens=640)
    first, second, third = long_answer_then(start, gemma3, question, sampling)
    assert len(first.ids) > 512
    assert third.ids == second.ids


def test_rows_that_had_left_the_window_before_they_were_saved(start, tmp_path):
    """A turn without KV on disk, then one with: pages that lack old rows of the window lead to the end all the same."""
    model = tiny.build("gemma3", tmp_path)
    chat = start(model)
    unsaved = chat.ask(STORY * 2, sampling=FEW, keep_kv=False)
    assert unsaved.usage.pages_saved == 0
    saved = chat.ask("And then?", sampling=FEW)
    assert saved.usage.resident == unsaved.usage.cells
    messages = list(chat.messages)
    stayed = chat.ask("Why so?", sampling=FEW)
    (chain,) = chains(tmp_path / "kv")
    pages = chain_pages(tmp_path / "kv", chain.chain).pages
    assert pages[0].complete == 0
    assert pages[-1].complete == pages[-1].tokens
    chat.engine.close()
    again = start(model)
    again.messages = messages
    resumed = again.ask("Why so?", sampling=FEW)
    assert resumed.usage.pages == resumed.usage.prompt_tokens - 1
    assert resumed.ids == stayed.ids


def test_a_branch_inside_pages_without_window_rows_is_computed(start, tmp_path):
    """What a window needs there was never saved; the turn says so, and the answer is right."""
    model = tiny.build("gemma3", tmp_path)
    chat = start(model)
    chat.ask(STORY, sampling=FEW, keep_kv=False)
    beginning = list(chat.messages)
    chat.ask(STORY * 2, sampling=FEW, keep_kv=False)
    chat.ask("And then?", sampling=FEW)
    chat.engine.close()
    again = start(model)
    again.messages = list(beginning)
    branch = again.ask("What was it called?", sampling=FEW)
    assert branch.usage.cut == "window"
    assert branch.usage.reused < beginning_tokens(beginning)
    fresh = start(model, kv_folder=None)
    fresh.messages = list(beginning)
    assert branch.ids == fresh.ask("What was it called?", sampling=FEW).ids


def test_rows_of_a_window_that_were_missing_are_saved_when_they_are_computed_again(start, tmp_path):
    model = tiny.build("gemma3", tmp_path)
    chat = start(model)
    chat.ask(STORY, sampling=FEW, keep_kv=False)
    beginning = list(chat.messages)
    chat.ask(STORY * 2, sampling=FEW, keep_kv=False)
    chat.ask("And then?", sampling=FEW)
    chat.engine.close()
    again = start(model)
    again.messages = list(beginning)
    assert again.ask("What was it called?", sampling=FEW).usage.cut == "window"
    again.engine.close()
    third = start(model)
    third.messages = list(beginning)
    branch = third.ask("Who said it?", sampling=FEW)
    assert branch.usage.reused >= beginning_tokens(beginning) - 1
    assert branch.usage.cut is None


def test_a_state_in_a_page_that_lacks_its_window_is_passed_over(start, tmp_path):
    """Such a page is not damaged: what comes after it has all that it needs."""
    model = tiny.build("lfm2swa", tmp_path)
    chat = start(model)
    chat.ask("Which?", sampling=FEW)  # a state and its rows, within the first page
    chat.ask(STORY * 2, sampling=FEW, keep_kv=False)
    beginning = list(chat.messages)
    chat.ask("And then?", sampling=FEW)  # the first page without its window
    chat.engine.close()
    again = start(model)
    again.messages = list(beginning)
    answer = again.ask("Who said it?", sampling=FEW)
    assert answer.usage.cut == "checkpoint"
    assert not (tmp_path / "kv" / "damaged").exists()
    fresh = start(model, kv_folder=None)
    fresh.messages = list(beginning)
    assert answer.ids == fresh.ask("Who said it?", sampling=FEW).ids


def beginning_tokens(messages):
    return sum(len(message.ids) for message in messages)
