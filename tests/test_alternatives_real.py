"""Several answers and branches with the real model: what they compute, that they are what each would be alone, and what
is left of them when the engine or the program dies."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from test_kill import kill_both, kvchat
from test_tmux import Terminal, is_ready

from kvchat.backend.local import Engine
from kvchat.backend.protocol import Event, TextDelta
from kvchat.backend.values import EngineConfig, Sampling, Usage
from kvchat.chats.store import ChatStore
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Message
from kvchat.conversation import Conversation, read_usage
from kvchat.conversation.samplings import differing
from kvchat.errors import KvchatError

PAGE = 128
WAIT = 120.0
# Q4_1 weights, this cache and flash attention: the values do not depend on what else is in a batch
EXACT = {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"}
QUESTION = "Tell me about these things. " + " ".join(f"Item {number} is red." for number in range(40))
WARM = Sampling(seed=11, temperature=0.9, max_tokens=20)


class Running:
    """An engine and the chats, as in a program that has just been started."""

    def __init__(self, home: Path, model: Path) -> None:
        self._events: queue.SimpleQueue[Event | KvchatError] = queue.SimpleQueue()
        self.store = StoreThread(home / "chats.db", self._events.put)
        config = EngineConfig(
            str(model), context=2048, threads=1, extra_buffers=False, kv_folder=str(home / "kv"), **EXACT
        )
        self.engine = Engine(config, self._events.put, home / "state", home / "engine.log")
        self.engine.start()

    def start(self, sampling: Sampling = WARM, **options: bool) -> Conversation:
        return Conversation.start(self.store, self.engine, sampling=sampling, draft="off", **options)  # type: ignore[arg-type]

    def open(self, chat: str) -> Conversation:
        return Conversation.open(self.store, self.engine, chat, sampling=WARM, draft="off").result(WAIT)

    def follow(self, chat: Conversation, enough: Callable[[Event], bool] = lambda _: False) -> None:
        """Let the turns of a chat go on to their ends, or until an event that is enough."""
        while chat.is_working:
            event = self._events.get(timeout=WAIT)
            assert not isinstance(event, KvchatError), event
            chat.apply(event)
            if enough(event):
                return

    def carry_out(self, chat: Conversation, asked: Future[None]) -> Message:
        """One turn to its end; its reply."""
        asked.result(WAIT)
        self.follow(chat)
        return chat.messages[-1]

    def close(self) -> None:
        self.engine.close()
        self.store.close()


@pytest.fixture
def start(home: Path, smollm2: Path, engines_by_fork: None) -> Iterator[Callable[[], Running]]:
    """Starts a program; the one before is closed then."""
    running: list[Running] = []

    def begin() -> Running:
        if running:
            running.pop().close()
        running.append(Running(home, smollm2))
        return running[-1]

    yield begin
    running.pop().close()


def cost(message: Message) -> Usage:
    found = read_usage(message)
    assert found is not None
    return found


# ------------------------------------------------------------------ alternatives


def test_the_prompt_is_computed_once_and_each_is_what_it_would_be_alone(start: Callable[[], Running]) -> None:
    program = start()
    chat = program.start()
    samplings = [*differing(WARM, 3), replace(WARM, temperature=0.0)]
    chat.ask_alternatives(samplings, QUESTION).result(WAIT)
    program.follow(chat)
    found = chat.alternatives
    first, *others = [cost(each.message) for each in found]
    assert (first.reused, first.computed) == (0, first.prompt_tokens)
    assert first.prompt_tokens > 2 * PAGE
    for usage in others:
        assert (usage.prompt_tokens, usage.computed) == (first.prompt_tokens, 1)
        assert usage.shared + usage.resident == first.prompt_tokens - 1
    texts = [each.message.text for each in found]
    assert len(set(texts)) > 1
    alone = []
    for sampling in samplings[-2:]:  # a drawn one, and the likeliest
        one = program.start(sampling, keep_kv=False)
        alone.append(program.carry_out(one, one.submit(QUESTION)).text)
    assert texts[-2:] == alone


def test_after_one_is_picked_only_what_is_new_is_computed(start: Callable[[], Running]) -> None:
    program = start()
    chat = program.start()
    chat.ask_alternatives(differing(WARM, 3), QUESTION).result(WAIT)
    program.follow(chat)
    picked = chat.alternatives[1].message
    chat.pick(picked.id).result(WAIT)
    past = cost(picked).prompt_tokens + cost(picked).decode_tokens
    usage = cost(program.carry_out(chat, chat.submit("And more?")))
    assert usage.reused >= past - 1  # the last token of a reply was sampled and never decoded
    assert usage.cut is None
    program = start()
    chat = program.open(chat.chat.id)
    assert [len(chat.siblings(message.id)) for message in chat.messages] == [1, 3, 1, 1]
    program.carry_out(chat, chat.show_sibling(chat.messages[1].id, 1))
    third = chat.messages[-1]
    past = cost(third).prompt_tokens + cost(third).decode_tokens
    usage = cost(program.carry_out(chat, chat.submit("And more?")))
    assert usage.pages >= past - 1
    assert usage.cut is None


def test_one_is_stopped_and_the_others_come_to_their_ends(start: Callable[[], Running]) -> None:
    """The first one too, whose cells the others share."""
    program = start()
    for stopped in (0, 1):
        chat = program.start(replace(WARM, max_tokens=40))
        chat.ask_alternatives(differing(chat.sampling, 3), QUESTION + str(stopped)).result(WAIT)
        program.follow(chat, lambda event: isinstance(event, TextDelta))
        chat.stop(chat.alternatives[stopped].message.id)
        program.follow(chat)
        finishes = [each.message.finish for each in chat.alternatives]
        assert finishes[stopped] == "cancelled"
        assert {finish for place, finish in enumerate(finishes) if place != stopped} <= {"stop", "length"}


def test_the_engine_dies_under_all_of_them(start: Callable[[], Running]) -> None:
    program = start()
    chat = program.start(replace(WARM, max_tokens=400))
    chat.ask_alternatives(differing(chat.sampling, 3), "Tell me a very long story.").result(WAIT)
    seen: set[str] = set()

    def all_begun(event: Event) -> bool:
        if isinstance(event, TextDelta):
            seen.add(event.turn)
        return len(seen) == 3

    program.follow(chat, all_begun)
    assert program.engine.pid is not None
    os.kill(program.engine.pid, signal.SIGKILL)
    program.follow(chat)
    assert [each.message.finish for each in chat.alternatives] == ["died"] * 3
    assert all(each.message.text for each in chat.alternatives)
    assert all(each.failure is not None for each in chat.alternatives)
    kept = [each.message.text for each in chat.alternatives]
    chat.pick(chat.alternatives[2].message.id).result(WAIT)
    reply = program.carry_out(chat, chat.resume())
    assert reply.text.startswith(kept[2])
    assert len(reply.text) > len(kept[2])


@pytest.mark.usefixtures("smollm2")
def test_the_program_is_killed_while_they_are_written(home: Path) -> None:
    """Each is found as an answer that was not finished, with what there was of it, and goes on."""
    flags = ["--n", "3", "--seed", "7", "--temp", "0", "-t", "1", "--ctx-size", "2048"]
    command = [
        sys.executable,
        "-m",
        "kvchat",
        "ask",
        *flags,
        "Write a very long story about a ship, with many chapters.",
    ]
    app = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert app.stdout is not None
    assert app.stdout.readline() == b"--- 1/3, seed 7 ---\n"
    shown = app.stdout.read(20).decode()
    time.sleep(1.1)  # an answer on disk is at most half a second old
    kill_both(app)
    store = ChatStore(home / "chats.db")
    chat = store.latest()
    assert chat is not None
    branch = store.branch(chat.id, chat.head)
    answers = [store.path(each)[-1] for each in branch.siblings[branch.messages[-1].id]]
    store.close()
    assert [message.role for message in branch.messages] == ["user", "assistant"]
    assert branch.messages[-1].text.startswith(shown)
    assert [message.finish for message in answers] == [None] * 3
    assert len({message.id for message in answers}) == 3
    assert kvchat("ask", "-c", "--resume", "-n", "4", "-t", "1", "--ctx-size", "2048", "--json").returncode == 0


# ------------------------------------------------------------------ branches


def test_a_fork_in_the_middle_of_a_page_computes_nothing_of_the_past(start: Callable[[], Running]) -> None:
    """In memory, from disk after a restart, and in a copy of the chat. The past ends within a page each time."""
    program = start()
    chat = program.start(replace(WARM, max_tokens=9))
    first = program.carry_out(chat, chat.submit(QUESTION))
    program.carry_out(chat, chat.submit("Which of them do you like, and why?"))
    past = cost(first).prompt_tokens + cost(first).decode_tokens
    assert past % PAGE not in (0, 1, PAGE - 1)
    in_memory = cost(program.carry_out(chat, chat.edit(chat.messages[2].id, "How many are there?")))
    assert in_memory.resident >= past
    assert in_memory.computed <= in_memory.prompt_tokens - past
    assert in_memory.cut is None or in_memory.cut == "edited"

    program = start()
    chat = program.open(chat.chat.id)
    from_disk = cost(program.carry_out(chat, chat.edit(chat.messages[2].id, "What is red?")))
    assert (from_disk.resident, from_disk.reused) == (0, from_disk.pages)
    assert from_disk.pages >= past
    assert from_disk.computed <= from_disk.prompt_tokens - past

    program = start()
    copy = program.open(program.store.run(ChatStore.duplicate, chat.chat.id).result(WAIT).id)
    copied = cost(program.carry_out(copy, copy.edit(copy.messages[2].id, "And what is not?")))
    assert copied.pages >= past
    again = cost(program.carry_out(copy, copy.regenerate()))
    assert again.computed == 1


# ------------------------------------------------------------------ in a terminal


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    opened = Terminal(home)
    yield opened
    opened.close()


def _columns(screen: str) -> Sequence[str]:
    return re.findall(r"(\d)/3 seed \d+", screen)


def test_in_a_real_terminal(terminal: Terminal) -> None:
    """Asked with F5, two of three in view, the third kept and the others stopped, and found again after a start."""
    terminal.open("-n", "160", "--seed", "3", "-t", "1", "--ctx-size", "2048")
    terminal.until(is_ready)
    terminal.keys("Tell me about the sea.", "F5")
    screen = terminal.until(lambda screen: "being written" in screen and screen.count("t/s") == 2)
    assert _columns(screen) == ["1", "2"]
    terminal.keys("Right", "Right")
    screen = terminal.until(lambda screen: _columns(screen) == ["2", "3"])
    terminal.keys("Enter")
    terminal.until_text("still being written.")
    terminal.keys("s")
    terminal.until_text("‹3/3›")
    terminal.keys("Escape")
    terminal.until(is_ready)
    terminal.keys("/alt", "Enter")
    terminal.until(lambda screen: "3 answers ·" in screen and "stopped" in screen)
    terminal.keys("1")
    terminal.until_text("‹1/3›")
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
    (chat,) = json.loads(kvchat("chats", "ls", "--json").stdout)
    assert chat["messages"] == 4
    terminal.open("-c", "-t", "1", "--ctx-size", "2048")
    screen = terminal.until(lambda screen: is_ready(screen) and "‹1/3›" in screen)
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
