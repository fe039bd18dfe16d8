"""Conversation: siblings, deleting and taking it back, and that the tree on disk is the one in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from conversing import GREEDY, WAIT, answer, known, on_disk, reopened, request_of
from fake_backend import REPLY_TURN, USER_TURN, FakeBackend, finished, text_ids, turn_events

from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.conversation import Conversation
from kvchat.conversation.turns import ids_key
from kvchat.errors import KvchatError


@pytest.fixture
def chat(store: StoreThread, backend: FakeBackend) -> Conversation:
    """one -> uno | eins | un; un -> two -> dos."""
    chat = Conversation.start(store, backend, sampling=GREEDY)
    answer(chat, backend, chat.submit("one"), "uno")
    answer(chat, backend, chat.regenerate(), "eins")
    answer(chat, backend, chat.regenerate(), "un")
    answer(chat, backend, chat.submit("two"), "dos")
    return chat


def words(chat: Conversation) -> list[str]:
    return [message.text for message in chat.messages]


def around(chat: Conversation) -> list[tuple[str, ...]]:
    return [chat.siblings(message.id) for message in chat.messages]


def same_after_reload(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    again = reopened(store, backend, chat)
    assert again.messages == chat.messages
    assert again.chat == chat.chat
    assert around(again) == around(chat)
    assert on_disk(store, chat) == (chat.chat, chat.messages)


def test_siblings_are_in_the_order_of_their_making(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    counts = [len(ids) for ids in around(chat)]
    assert counts == [1, 3, 1, 1]
    ids = chat.siblings(chat.messages[1].id)
    assert ids[2] == chat.messages[1].id and list(ids) == sorted(ids)  # ULIDs ascend
    same_after_reload(store, backend, chat)
    assert chat.siblings(ids[0]) == ()  # not in the branch that is shown


def test_switching(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    uno, eins, un = chat.siblings(chat.messages[1].id)
    updated = chat.chat.updated
    chat.show_sibling(un, -1).result(WAIT)
    assert words(chat) == ["one", "eins"]
    assert chat.siblings(eins) == (uno, eins, un)
    same_after_reload(store, backend, chat)
    chat.show_sibling(eins, -1).result(WAIT)
    assert words(chat) == ["one", "uno"]
    for message, step in ((uno, -1), (uno, 3), (chat.messages[0].id, 1)):
        with pytest.raises(KvchatError, match="no other version"):
            chat.show_sibling(message, step)
    with pytest.raises(KvchatError, match="not in the branch"):
        chat.show_sibling(un, -1)
    chat.show_sibling(uno, 2).result(WAIT)
    assert words(chat) == ["one", "un", "two", "dos"]  # down to what is below
    assert chat.chat.updated == updated  # looking is no use of the chat
    same_after_reload(store, backend, chat)


def test_the_newest_leaf_is_shown(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    two, un = chat.messages[2].id, chat.messages[1].id
    answer(chat, backend, chat.edit(two, "zwei"), "deux")
    answer(chat, backend, chat.submit("more"), "mas")
    chat.show_sibling(chat.messages[2].id, -1).result(WAIT)
    answer(chat, backend, chat.regenerate(), "dos dos")  # the newest of all, in the older branch
    chat.show_sibling(un, -1).result(WAIT)
    chat.show_sibling(chat.messages[1].id, 1).result(WAIT)
    assert words(chat) == ["one", "un", "two", "dos dos"]
    same_after_reload(store, backend, chat)


def test_a_turn_in_another_branch_brings_its_own_ids(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    chat.show_sibling(chat.messages[1].id, -2).result(WAIT)
    request = answer(chat, backend, chat.submit("three"), "tres")
    assert [m.text for m in request.messages] == ["one", "uno", "three"]
    assert [m.ids for m in request.messages] == [(USER_TURN, *text_ids("one"), REPLY_TURN), text_ids("uno"), None]
    assert [len(ids) for ids in around(chat)] == [1, 3, 1, 1]
    same_after_reload(store, backend, chat)


def test_a_message_anywhere_in_the_chat_can_be_shown(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    dos = chat.messages[-1].id
    chat.show_sibling(chat.messages[1].id, -1).result(WAIT)
    hit = store.run(ChatStore.search, "dos").result(WAIT)[0]
    assert hit.message == dos
    chat.show_message(hit.message).result(WAIT)
    assert words(chat) == ["one", "un", "two", "dos"]
    with pytest.raises(KvchatError, match="not there any more"):
        chat.show_message("nope").result(WAIT)
    assert words(chat) == ["one", "un", "two", "dos"]


# ------------------------------------------------------------------ regenerate and edit


def test_regenerate_any_answer(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    un = chat.messages[1].id
    request = answer(chat, backend, chat.regenerate(un), "odin")
    assert [m.text for m in request.messages] == ["one"]
    assert words(chat) == ["one", "odin"]
    assert len(chat.siblings(chat.messages[1].id)) == 4
    same_after_reload(store, backend, chat)
    answer(chat, backend, chat.regenerate(chat.messages[0].id), "ichi")  # named by the question
    assert len(chat.siblings(chat.messages[1].id)) == 5
    with pytest.raises(KvchatError, match="not in the branch"):
        chat.regenerate(un)


def test_edit_makes_a_sibling(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    one, two = chat.messages[0].id, chat.messages[2].id
    answer(chat, backend, chat.edit(two, "zwei"), "deux")
    assert [len(ids) for ids in around(chat)] == [1, 3, 2, 1]
    answer(chat, backend, chat.edit(one, "first"), "primo")
    assert [len(ids) for ids in around(chat)] == [2, 1]
    same_after_reload(store, backend, chat)
    chat.show_sibling(chat.messages[0].id, -1).result(WAIT)
    assert words(chat) == ["one", "un", "zwei", "deux"]


def test_a_turn_that_is_not_saved_leaves_the_siblings(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    before = around(chat)

    def limit(chats: ChatStore) -> None:
        pages = chats._connection.execute("PRAGMA page_count").fetchone()[0]
        chats._connection.execute(f"PRAGMA max_page_count = {pages}")

    store.run(limit).result(WAIT)
    with pytest.raises(KvchatError):
        chat.edit(chat.messages[0].id, "x" * 500_000).result(WAIT)
    assert around(chat) == before and words(chat) == ["one", "un", "two", "dos"]


# ------------------------------------------------------------------ deleting


def test_delete_moves_to_the_next_sibling_then_to_the_one_before(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    uno, eins, un = chat.siblings(chat.messages[1].id)
    chat.show_sibling(un, -1).result(WAIT)
    chat.delete(eins).result(WAIT)
    assert words(chat) == ["one", "un", "two", "dos"]
    assert chat.siblings(un) == (uno, un)
    same_after_reload(store, backend, chat)
    chat.delete(un).result(WAIT)  # with two and dos below it
    assert words(chat) == ["one", "uno"]
    same_after_reload(store, backend, chat)
    assert store.run(ChatStore.search, "dos").result(WAIT) == ()
    assert store.run(lambda chats: chats.chats()[0].messages).result(WAIT) == 2


def test_delete_of_the_only_answer_leaves_the_question(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    chat.delete(chat.messages[-1].id).result(WAIT)
    assert words(chat) == ["one", "un", "two"]
    same_after_reload(store, backend, chat)
    with pytest.raises(KvchatError, match="waits for its answer"):
        chat.submit("three")
    with pytest.raises(KvchatError, match="no unfinished answer"):
        chat.resume()
    answer(chat, backend, chat.regenerate(), "due")
    assert words(chat) == ["one", "un", "two", "due"]
    assert len(chat.siblings(chat.messages[-1].id)) == 1  # what is deleted is no sibling
    same_after_reload(store, backend, chat)


def test_delete_of_everything(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    chat.delete(chat.messages[0].id).result(WAIT)
    assert not chat.messages and chat.chat.head is None
    same_after_reload(store, backend, chat)
    answer(chat, backend, chat.submit("again"), "otra vez")
    assert around(chat) == [(chat.messages[0].id,), (chat.messages[1].id,)]
    assert chat.chat.title == "one"
    same_after_reload(store, backend, chat)


def test_undo_brings_back_the_same_tree(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    key = ids_key("fakevocab", "")
    states: list[tuple[object, ...]] = [(chat.messages, around(chat), known(store, chat, key))]
    chat.delete(chat.messages[-1].id).result(WAIT)
    states.append((chat.messages, around(chat), known(store, chat, key)))
    chat.delete(chat.messages[1].id).result(WAIT)  # what was deleted below it stays so when this comes back
    states.append((chat.messages, around(chat), known(store, chat, key)))
    chat.delete(chat.messages[0].id).result(WAIT)
    for state in reversed(states):
        chat.undo_delete().result(WAIT)
        assert (chat.messages, around(chat), known(store, chat, key)) == state
        same_after_reload(store, backend, chat)
    with pytest.raises(KvchatError, match="nothing was deleted"):
        chat.undo_delete()
    assert store.run(ChatStore.search, "dos").result(WAIT)[0].message == chat.messages[-1].id
    assert request_of(backend, chat.submit("three")).messages[3].ids == text_ids("dos")


def test_undo_shows_the_leaf_that_was_shown(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    dos = chat.messages[-1].id
    answer(chat, backend, chat.regenerate(), "newer")
    chat.show_sibling(chat.messages[-1].id, -1).result(WAIT)
    chat.delete(chat.messages[2].id).result(WAIT)
    answer(chat, backend, chat.submit("meanwhile"), "something else")
    chat.undo_delete().result(WAIT)
    assert chat.messages[-1].id == dos
    assert len(chat.siblings(chat.messages[2].id)) == 2
    same_after_reload(store, backend, chat)


def test_delete_and_show_on_the_clock_of_yesterday(
    store: StoreThread, chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions are told apart also when the clock stands still or was set back."""
    dos, un = chat.messages[-1].id, chat.messages[1].id
    monkeypatch.setattr("kvchat.chats.tree.time.time", lambda: 1000.0)
    chat.delete(dos).result(WAIT)
    chat.delete(un).result(WAIT)
    chat.undo_delete().result(WAIT)
    assert words(chat) == ["one", "un", "two"]
    assert store.run(ChatStore.search, "dos").result(WAIT) == ()  # it was deleted before


def test_no_moves_during_a_turn_or_another_move(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    reply = chat.messages[1].id
    calls: list[Callable[[], Future[None]]] = [
        lambda: chat.show_sibling(reply, -1),
        lambda: chat.show_message(reply),
        lambda: chat.delete(reply),
        chat.undo_delete,
        lambda: chat.submit("x"),
        lambda: chat.regenerate(reply),
    ]
    request = request_of(backend, chat.submit("go"))
    for call in calls:
        with pytest.raises(KvchatError, match="being written"):
            call()
    chat.apply(finished(request, "cancelled"))

    gate = threading.Event()
    store.run(lambda _: gate.wait(WAIT))
    moved = chat.show_sibling(reply, -1)
    before = words(chat)
    for call in calls:
        with pytest.raises(KvchatError, match="just being changed"):
            call()
    assert words(chat) == before
    gate.set()
    moved.result(WAIT)
    assert words(chat) == ["one", "eins"]
    answer(chat, backend, chat.submit("next"), "ok")


def test_a_move_that_cannot_be_saved(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    gone = chat.messages[-1]

    def remove(chats: ChatStore) -> None:
        chats._connection.execute("DELETE FROM messages WHERE id = ?", (gone.id,))

    store.run(lambda chats: chats._connection.execute("PRAGMA defer_foreign_keys = ON")).result(WAIT)
    store.run(lambda chats: chats._connection.execute("UPDATE chats SET head = NULL")).result(WAIT)
    store.run(remove).result(WAIT)
    with pytest.raises(KvchatError, match="not there any more"):
        chat.delete(gone.id).result(WAIT)
    assert chat.messages[-1] == gone
    with pytest.raises(KvchatError, match="nothing was deleted"):
        chat.undo_delete()
    chat.show_sibling(chat.messages[1].id, -1).result(WAIT)
    assert words(chat) == ["one", "eins"]


def test_the_words_of_a_turn_are_there_after_a_move(
    store: StoreThread, backend: FakeBackend, chat: Conversation
) -> None:
    """The end of a reply and a move right after it are written in this order."""
    for number in range(20):
        request = request_of(backend, chat.regenerate(chat.messages[1].id))
        for event in turn_events(request, [f"number {number}", "!"]):
            chat.apply(event)
        back = chat.show_sibling(chat.messages[1].id, -1)
        back.result(WAIT)
        chat.show_sibling(chat.messages[1].id, 1).result(WAIT)
        assert (chat.messages[1].text, chat.messages[1].finish) == (f"number {number}!", "stop")


# ------------------------------------------------------------------ duplicates


def test_a_duplicate_goes_on_from_the_same_ids(store: StoreThread, backend: FakeBackend, chat: Conversation) -> None:
    copy_of = store.run(ChatStore.duplicate, chat.chat.id).result(WAIT)
    copy = Conversation.open(store, backend, copy_of.id, sampling=GREEDY).result(WAIT)
    assert words(copy) == words(chat)
    assert copy.chat.clock == chat.chat.clock
    assert [len(ids) for ids in around(copy)] == [1, 3, 1, 1]
    theirs = answer(copy, backend, copy.submit("three"), "tres")
    mine = answer(chat, backend, chat.submit("three"), "tres")
    assert [m.ids for m in theirs.messages] == [m.ids for m in mine.messages]
    assert {m.id for m in copy.messages}.isdisjoint(m.id for m in chat.messages)
    copy.delete(copy.messages[0].id).result(WAIT)
    same_after_reload(store, backend, chat)
    assert words(chat) == ["one", "un", "two", "dos", "three", "tres"]
