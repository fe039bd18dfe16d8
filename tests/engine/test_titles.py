"""Titles: what is asked and taken, and that making one leaves the chat's cells as they are."""

from __future__ import annotations

import time

import pytest
import tiny
from driver import Driver

from kvchat.backend.protocol import Title, Titled
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.engine.titles import MOST_CHARACTERS, question, title_from

FEW = Sampling(temperature=0, max_tokens=8)
STORY = "Once there was a cell that remembered every key it was given, and " * 3


@pytest.fixture
def start(tmp_path):
    drivers: list[Driver] = []

    def start(model, home="a", **config):
        drivers.append(Driver.start(tmp_path / home, model, **config))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "jamba", "lfm2swa", "qwen35"])
def test_the_chat_goes_on_as_if_no_title_had_been_made(start, tmp_path, kind):
    model = tiny.build(kind, tmp_path)
    quiet, titled = start(model, "quiet"), start(model, "titled")
    for chat in (quiet, titled):
        chat.ask(STORY, sampling=FEW)
    titled.engine.title(Title("t", tuple(titled.messages)))
    assert titled.until(Titled)[-1].turn == "t"
    answers = [chat.ask("And then?", sampling=FEW) for chat in (quiet, titled)]
    assert answers[0].ids == answers[1].ids
    assert answers[0].usage.resident == answers[1].usage.resident == answers[1].usage.reused > 0
    assert answers[1].usage.pages_saved == answers[0].usage.pages_saved


def test_nothing_of_a_title_is_saved(start, tmp_path):
    chat = start(tiny.build("llama", tmp_path))
    chat.ask(STORY, sampling=FEW)
    before = {path: path.stat().st_size for path in (tmp_path / "a" / "kv" / "pages").rglob("*")}
    chat.engine.title(Title("t", tuple(chat.messages)))
    chat.until(Titled)
    chat.engine.close()
    assert {path: path.stat().st_size for path in (tmp_path / "a" / "kv" / "pages").rglob("*")} == before


def test_a_turn_does_not_wait_for_a_title(start, smollm2):
    """The title is given up: there is no answer to it, and the turn is what it would have been."""
    chat = start(smollm2)
    chat.ask("Hello.", sampling=FEW)
    long = tuple(PromptMessage(role, STORY * 20) for role in ("user", "assistant"))
    chat.engine.title(Title("t", long))
    time.sleep(0.05)
    answer = chat.ask("And then?", sampling=FEW)
    assert answer.finished.reason in ("length", "stop")
    assert answer.usage.resident == answer.usage.reused > 0
    assert not any(isinstance(event, Titled) for event in answer.events)


def test_no_room_for_a_title(start, tmp_path):
    chat = start(tiny.build("llama", tmp_path), context=512)
    chat.ask(STORY * 2, sampling=FEW)
    long = tuple(PromptMessage(role, STORY * 10) for role in ("user", "assistant"))
    chat.engine.title(Title("t", long))
    assert chat.until(Titled)[-1] == Titled("t", "")


def test_smollm2_writes_one(start, smollm2):
    chat = start(smollm2)
    asked = PromptMessage("user", "What is the capital of France, and what is it known for?")
    reply = PromptMessage("assistant", "The capital of France is Paris. It is known for the Eiffel Tower and its food.")
    chat.engine.title(Title("t", (asked, reply)))
    title = chat.until(Titled)[-1].text
    assert title == title_from(title)


def test_the_question_shows_the_beginning_only():
    messages = [
        PromptMessage("system", "secret"),
        PromptMessage("user", "a" * 5000),
        PromptMessage("assistant", "b" * 5000),
        PromptMessage("user", "c"),
    ]
    text = question(messages)
    assert (text.count("a" * 1200), text.count("b" * 600)) == (1, 1)
    assert "secret" not in text and "c" * 2 not in text
    assert len(text) < 2000


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Paris and Its Food", "Paris and Its Food"),
        ('"Paris and Its Food."\n', "Paris and Its Food"),
        ("**Title: Paris**", "Paris"),
        ("# Paris\n\nMore text", "Paris"),
        ("Title: “Die Hauptstadt”", "Die Hauptstadt"),
        (" Paris\nTopic: London", "Paris"),
        ("at most six words", ""),  # what it was told
        ("巴黎与美食", "巴黎与美食"),
        ("", ""),
        ("   \n", ""),
        ("...", ""),
        ("x" * (MOST_CHARACTERS + 1), ""),
        ("A\tB  C", "A B C"),
    ],
)
def test_what_is_taken_for_a_title(answer, title):
    assert title_from(answer) == title
