"""One chat that is open twice: every message stays, what was said elsewhere is reached, and it is said that it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conversing import GREEDY, WAIT, answer, on_disk
from fake_backend import FakeBackend, make_ready

from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation


class Program:
    """One of them, with an engine and a connection of its own."""

    def __init__(self, file: Path) -> None:
        self.store = StoreThread(file, lambda error: pytest.fail(str(error)))
        self.backend = FakeBackend(make_ready())

    def begin(self) -> Conversation:
        return Conversation.start(self.store, self.backend, sampling=GREEDY)

    def open(self, chat: str) -> Conversation:
        return Conversation.open(self.store, self.backend, chat, sampling=GREEDY).result(WAIT)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[tuple[Program, Program]]:
    found = Program(tmp_path / "chats.db"), Program(tmp_path / "chats.db")
    yield found
    for each in found:
        each.store.close()


def said(chat: Conversation) -> list[str]:
    return [message.text for message in chat.messages]


def test_both_go_on_from_the_same_message(programs: tuple[Program, Program]) -> None:
    one, two = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    on_disk(one.store, here)
    there = two.open(here.chat.id)
    answer(there, two.backend, there.submit("There"), "Answered there.")
    assert there.went_on == ""
    on_disk(two.store, there)
    answer(here, one.backend, here.submit("Here"), "Answered here.")
    assert "went on in another kvchat" in here.went_on
    assert said(here) == ["Begin", "Begun.", "Here", "Answered here."]
    mine = here.messages[2].id
    assert len(here.siblings(mine)) == 2
    assert [message.text for message in on_disk(one.store, here)[1]] == said(here)  # the last head wins
    here.show_sibling(mine, -1).result(WAIT)
    assert said(here) == ["Begin", "Begun.", "There", "Answered there."]


def test_it_is_said_of_the_turn_that_found_it(programs: tuple[Program, Program]) -> None:
    one, two = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    on_disk(one.store, here)
    there = two.open(here.chat.id)
    answer(there, two.backend, there.submit("There"), "Answered there.")
    on_disk(two.store, there)
    answer(here, one.backend, here.submit("Here"), "Answered here.")
    assert here.went_on
    answer(here, one.backend, here.submit("More"), "And more.")
    assert here.went_on == ""


def test_versions_of_ones_own_are_no_news(programs: tuple[Program, Program]) -> None:
    one, _ = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    answer(here, one.backend, here.regenerate(), "Begun again.")
    assert here.went_on == ""
    answer(here, one.backend, here.edit(here.messages[0].id, "Begin otherwise"), "Otherwise.")
    assert here.went_on == ""
    assert len(here.siblings(here.messages[0].id)) == 2


def test_a_version_that_was_deleted_is_no_news(programs: tuple[Program, Program]) -> None:
    one, _ = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    answer(here, one.backend, here.edit(here.messages[0].id, "Begin otherwise"), "Otherwise.")
    here.delete(here.messages[0].id).result(WAIT)
    assert said(here) == ["Begin", "Begun."]
    assert (len(here.siblings(here.messages[0].id)), here.went_on) == (1, "")


def test_what_is_deleted_elsewhere_is_back_where_the_chat_goes_on_from_it(programs: tuple[Program, Program]) -> None:
    """What is shown is in an export and in a copy, and its place in the tree with it."""
    one, two = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    on_disk(one.store, here)
    there = two.open(here.chat.id)
    there.delete(there.messages[0].id).result(WAIT)
    answer(here, one.backend, here.submit("More"), "And more.")
    on_disk(one.store, here)
    assert [each.text for each in one.store.run(ChatStore.export, here.chat.id).result(WAIT).messages] == said(here)
    copy = one.open(one.store.run(ChatStore.duplicate, here.chat.id).result(WAIT).id)
    assert said(copy) == ["Begin", "Begun.", "More", "And more."]


def test_deletions_are_taken_back_on_both_sides(programs: tuple[Program, Program]) -> None:
    """A message that comes back does not hang on one that is gone."""
    one, two = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    on_disk(one.store, here)
    there = two.open(here.chat.id)
    here.delete(here.messages[1].id).result(WAIT)
    there.delete(there.messages[0].id).result(WAIT)
    here.undo_delete().result(WAIT)
    assert [each.text for each in one.store.run(ChatStore.export, here.chat.id).result(WAIT).messages] == said(here)


def test_another_answer_is_asked_for_in_both(programs: tuple[Program, Program]) -> None:
    one, two = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "First.")
    on_disk(one.store, here)
    there = two.open(here.chat.id)
    answer(there, two.backend, there.regenerate(), "Second.")
    on_disk(two.store, there)
    answer(here, one.backend, here.regenerate(), "Third.")
    assert here.went_on
    reply = here.messages[-1].id
    assert here.siblings(reply)[-1] == reply
    texts = []
    for name in here.siblings(reply):
        (*_, last) = one.store.run(ChatStore.path, name).result(WAIT)
        texts.append(last.text)
    assert texts == ["First.", "Second.", "Third."]


def test_a_chat_that_is_removed_elsewhere_takes_no_word_along(programs: tuple[Program, Program]) -> None:
    """It comes back out of the trash with the next message."""
    one, two = programs
    here = one.begin()
    answer(here, one.backend, here.submit("Begin"), "Begun.")
    on_disk(one.store, here)
    two.store.run(ChatStore.trash, here.chat.id).result(WAIT)
    answer(here, one.backend, here.submit("Still here"), "Yes.")
    on_disk(one.store, here)
    (found,) = two.store.run(ChatStore.chats).result(WAIT)
    assert [m.text for m in two.store.run(ChatStore.path, found.chat.head).result(WAIT)] == said(here)
