"""The real engine process on a real model: turns, reuse, cancel, death, full disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from driver import GREEDY

from kvchat.backend.protocol import EngineDied, Generate, PromptProgress, Ready, Restored, TextDelta, TurnFinished
from kvchat.backend.values import PromptMessage, Sampling

LONG = " ".join(f"Item {i} is a thing of its own." for i in range(120))  # about 1,100 tokens of SmolLM2


@pytest.mark.as_program
def test_second_turn_computes_only_what_is_new(start):
    chat = start()
    first = chat.ask("Name three colours.")
    assert first.finished.reason == "length"
    assert first.usage.decode_tokens == len(first.ids) == 16
    assert (first.usage.reused, first.usage.cut) == (0, None)
    second = chat.ask("And three animals.")
    new = len(second.segments[2])
    # the reply's last token was sampled but never decoded, since the reply ended by length
    assert second.usage.computed == new + 1
    assert second.usage.resident == second.usage.reused == first.usage.prompt_tokens + 15
    assert second.usage.prompt_tokens == first.usage.prompt_tokens + 16 + new


@pytest.mark.as_program
def test_another_process_goes_on_from_pages(start):
    chat = start()
    chat.ask(LONG[:1000])
    before = chat.ask("And then?")
    chat.engine.close()
    again = start()
    again.messages = chat.messages
    answer = again.ask("What else?")
    new = len(answer.segments[-1])
    assert answer.usage.computed == new + 1
    assert answer.usage.pages == answer.usage.reused == before.usage.prompt_tokens + 15
    assert answer.usage.cut is None
    assert answer.usage.saved_seconds > 0


def test_without_kv_everything_is_computed_and_nothing_saved(start, tmp_path):
    chat = start()
    chat.ask("Name three colours.", keep_kv=False)
    answer = chat.ask("And three animals.", keep_kv=False)
    assert answer.usage.computed == answer.usage.prompt_tokens
    assert answer.usage.cut == "no-kv"
    assert answer.usage.pages_saved == answer.usage.bytes_saved == 0
    assert not list(tmp_path.glob("kv/pages/*/*/*"))


def test_bytes_written_follow_the_new_tokens_not_the_chat(start, tmp_path):
    chat = start()
    page = 128 * 23040
    for text in (LONG[:1100], "And then?", "And then?"):
        answer = chat.ask(text)
        cells_before = answer.usage.reused
        new = (answer.usage.cells - cells_before) * 23040
        assert answer.usage.bytes_saved <= 1.1 * new + page


def test_the_same_beginning_is_stored_once(start, tmp_path):
    system = LONG[:1100]
    first = start()
    first.messages = [PromptMessage("system", system)]
    one = first.ask("Name three colours.")
    first.engine.close()
    files = len(list(tmp_path.glob("kv/pages/*/*/*")))
    other = start()
    other.messages = [PromptMessage("system", system)]
    two = other.ask("Which animals fly?")
    shared = two.usage.pages
    full_pages = shared // 128
    assert full_pages >= 2
    assert shared >= one.usage.prompt_tokens - 20  # all of the system prompt and the turn's opening
    assert len(list(tmp_path.glob("kv/pages/*/*/*"))) <= files + 1 + (two.usage.cells - full_pages * 128) // 128


def test_an_edit_in_the_middle_of_a_page_reuses_up_to_the_edit(start):
    chat = start()
    chat.ask(LONG[:1100])
    before = list(chat.messages)
    chat.ask("Tell me about item 7, please, in one sentence.")
    chat.engine.close()
    again = start()
    again.messages = list(before)
    answer = again.ask("Tell me about item 8, please, in one sentence.", past_cut="edited")
    kept = sum(len(message.ids) for message in before)
    assert answer.usage.cut == "edited"
    assert kept % 128 != 0
    # the edited message begins like the old one: reuse ends at the first different token, inside the last page
    assert answer.usage.reused >= kept + len(answer.segments[-1]) // 3
    assert answer.usage.computed <= len(answer.segments[-1]) * 2 // 3


def test_cancel_in_prefill_keeps_what_was_computed(start):
    chat = start(context=2048)

    def cancel(event):
        if isinstance(event, PromptProgress):
            chat.engine.cancel("t1")

    answer = chat.ask(LONG[:1900], meanwhile=cancel)
    assert answer.finished.reason == "cancelled"
    assert 0 < answer.usage.cells < answer.usage.prompt_tokens
    assert answer.usage.computed == answer.usage.cells
    assert answer.text == ""
    chat.messages.pop()
    again = chat.ask(None)
    assert again.usage.resident == answer.usage.cells
    assert again.usage.cut is None  # what was never computed was not lost
    assert again.finished.reason == "length"


def test_cancel_in_decode_keeps_the_half_answer(start):
    chat = start()

    def cancel(event):
        if isinstance(event, TextDelta):
            chat.engine.cancel("t1")

    answer = chat.ask("Count to one hundred.", meanwhile=cancel, sampling=Sampling(temperature=0))
    assert answer.finished.reason == "cancelled"
    assert answer.text
    more = chat.ask(None, continue_reply=True)
    assert more.usage.computed <= 2
    assert chat.messages[-1].text == answer.text + more.text


def test_continue_gives_what_an_uninterrupted_answer_gives(start):
    whole = start(type_k="q8_0", type_v="q8_0").ask("Count to twenty.", sampling=Sampling(temperature=0, max_tokens=24))
    chat = start(type_k="q8_0", type_v="q8_0", kv_folder=None)
    first = chat.ask("Count to twenty.", sampling=Sampling(temperature=0, max_tokens=10))
    rest = chat.ask(None, continue_reply=True, sampling=Sampling(temperature=0, max_tokens=14))
    assert first.ids + rest.ids == whole.ids
    assert first.text + rest.text == whole.text


def test_cancel_while_queued(start):
    chat = start()
    message = (PromptMessage("user", "Count."),)
    chat.engine.submit(Generate("a", message, Sampling(temperature=0, max_tokens=40)))
    chat.engine.submit(Generate("b", message, GREEDY))
    chat.engine.cancel("b")
    finished = {}
    while len(finished) < 2:
        event = chat.events.get(timeout=60)
        if isinstance(event, TurnFinished):
            finished[event.turn] = event.reason
    assert finished == {"a": "length", "b": "cancelled"}


def test_stop_string_ends_text_and_cells_at_the_same_token(start):
    chat = start()
    plain = chat.ask("Name three colours.", sampling=Sampling(temperature=0, max_tokens=12))
    stop = plain.text[len(plain.text) // 2 :][:3]
    other = start(kv_folder=None)
    answer = other.ask("Name three colours.", sampling=Sampling(temperature=0, max_tokens=12, stop=(stop,)))
    assert answer.finished.reason == "stop"
    assert answer.text == plain.text[: plain.text.index(stop)]
    after = other.ask("Go on.")
    assert after.usage.computed == len(after.segments[-1])
    assert after.usage.cut is None


def test_prompt_larger_than_the_context_is_refused_with_a_hint(start):
    """It says by how much, also in the usage, which the chat keeps; one cell must be left for the answer. What was in
    the cells stays there, and with so much less it fits."""
    chat = start(context=256)
    first = chat.ask("Hi.")
    answer = chat.ask(LONG)
    finished, count = answer.finished, sum(map(len, answer.segments))
    assert (finished.reason, answer.text, answer.usage.prompt_tokens) == ("context", "", count)
    assert answer.usage.excess == count + 1 - 256
    assert f"{count - 255:,} tokens too long: it takes {count:,}, the context holds 256" in finished.failure.message
    assert "larger context" in finished.failure.hint
    chat.messages[-2:] = []  # the message and its answer
    short = chat.ask("And now?")
    assert short.finished.failure is None
    assert short.usage.resident >= len(first.segments[-1])


def test_a_context_of_one_token_is_the_smallest_that_there_is(start):
    """llama.cpp makes caches of 256 cells, and would take no more than one token in a batch."""
    chat = start(context=1)
    assert chat.engine.ready.cache.context == 256
    assert chat.ask("Hi.").finished.reason in {"length", "stop"}


@pytest.mark.parametrize(("more", "reason"), [(-1, "length"), (0, "context"), (1, "context")])
def test_a_prompt_fits_that_leaves_one_cell(start, more, reason):
    """Of 256 cells a prompt may take 255. A word is a token."""
    chat = start(context=256)
    count = sum(map(len, chat.ask("a" + " a" * 9).segments))
    chat.messages.clear()
    words = 10 + 256 - count + more
    answer = chat.ask("a" + " a" * (words - 1), sampling=Sampling(temperature=0, max_tokens=1))
    assert sum(map(len, answer.segments)) == 256 + more
    assert answer.finished.reason == reason
    assert answer.usage.excess == max(0, more + 1)


def test_full_context_ends_the_answer_and_says_so(start):
    chat = start(context=256)
    answer = chat.ask("Write a very long story.", sampling=Sampling(temperature=0, repeat_penalty=1.1))
    if answer.finished.reason == "stop":
        answer = chat.ask("Longer.", sampling=Sampling(temperature=0, repeat_penalty=1.1))
    assert answer.finished.reason == "context"
    assert answer.usage.overflow == "stop"
    assert answer.usage.cells == 256


@pytest.mark.as_program
def test_a_killed_engine_is_replaced_and_the_chat_goes_on(start):
    chat = start()

    def kill(event):
        if isinstance(event, TextDelta) and chat.engine.pid:
            os.kill(chat.engine.pid, signal.SIGKILL)

    answer = chat.ask("Count to one hundred.", meanwhile=kill, sampling=Sampling(temperature=0))
    assert answer.finished.reason == "died"
    assert "SIGKILL" in answer.finished.failure.message
    died = next(event for event in answer.events if isinstance(event, EngineDied))
    assert died.restarting
    chat.until(Ready)
    assert chat.ask("And now?").finished.reason == "length"


def test_seed_makes_an_answer_repeatable(start):
    chat = start(kv_folder=None)
    drawn = Sampling(temperature=1.0, seed=42, max_tokens=12)
    first = chat.ask("Say something.", sampling=drawn, keep_kv=False)
    chat.messages.clear()
    again = chat.ask("Say something.", sampling=drawn, keep_kv=False)
    assert first.ids == again.ids


ORPHAN = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from driver import Driver, GREEDY
from kvchat.backend.protocol import Generate, PromptProgress, TextDelta
from kvchat.backend.values import PromptMessage, Sampling
chat = Driver.start(Path({home!r}), Path({model!r}), context=2048)
chat.ready()
chat.engine.submit(Generate("t", (PromptMessage("user", {text!r}),), Sampling(temperature=0)))
chat.until({event})
Path({home!r}, "pid").write_text(str(chat.engine.pid))
time.sleep(60)
"""


@pytest.mark.parametrize(("text", "event"), [(LONG, "PromptProgress"), ("Count.", "TextDelta")])
def test_no_orphan_and_no_output_when_the_app_is_killed(tmp_path, smollm2, text, event):
    tests = str(Path(__file__).parents[1])
    code = ORPHAN.format(tests=tests, home=str(tmp_path), model=str(smollm2), text=text, event=event)
    app = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not (tmp_path / "pid").exists():
        assert app.poll() is None, app.communicate()[0]
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    app.kill()
    assert app.communicate()[0] == b""
    while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.05)  # the test's own time limit ends this
    assert list(tmp_path.glob("kv/pages/*/*/*")), "what was computed is on disk all the same"


FULL_DISK = """
import resource, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from driver import Driver
resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
chat = Driver.start(Path({home!r}), Path({model!r}))
chat.ready()
answer = chat.ask({text!r})
assert answer.finished.reason == "length", answer.finished
assert len(answer.ids) == 16
assert answer.usage.pages_saved == 0
print(answer.usage.save_problem)
chat.engine.close()
"""


def test_a_full_disk_costs_the_saved_kv_and_nothing_else(tmp_path, smollm2):
    code = FULL_DISK.format(
        tests=str(Path(__file__).parents[1]), home=str(tmp_path), model=str(smollm2), text=LONG[:1500]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in ("", "None")
    assert not [file for file in tmp_path.glob("kv/pages/*/*/*") if file.stat().st_size > 10**6]


def test_damaged_pages_are_computed_again(start, tmp_path):
    # With Q4_1 weights and this cache the answer does not depend on batch shapes.
    config = {"model": tiny.build("llama", tmp_path, weights="q4_1"), "type_k": "q8_0", "type_v": "q8_0"}
    chat = start(**config)
    chat.ask(LONG[:750])
    chat.engine.close()
    fresh = start(**config, kv_folder=None)
    fresh.messages = list(chat.messages)
    expected = fresh.ask("What was item 3?").ids
    for damage in ("flip", "truncate", "foreign", "remove"):
        pages = sorted(path for path in tmp_path.glob("kv/pages/*/*/*") if len(path.name) == 64)
        assert len(pages) >= 3
        spoil(pages, damage)
        again = start(**config)
        again.messages = list(chat.messages)
        answer = again.ask("What was item 3?")
        assert answer.finished.reason == "length"
        assert answer.usage.cut == {"remove": "missing page"}.get(damage, "corrupt page")
        assert answer.ids == expected
        again.engine.close()


def spoil(pages, damage):
    contents = [page.read_bytes() for page in pages]
    for i, page in enumerate(pages):
        raw = bytearray(contents[i])
        if damage == "flip":
            raw[len(raw) * (i + 1) // (len(pages) + 1)] ^= 0x40
            page.write_bytes(raw)
        elif damage == "truncate":
            page.write_bytes(raw[: len(raw) // 2])
        elif damage == "foreign":
            page.write_bytes(contents[(i + 1) % len(pages)])
        else:
            page.unlink()


def test_restored_is_told_before_anything_is_computed(start):
    answer = start().ask("Hello.")
    kinds = [type(event) for event in answer.events]
    assert kinds.index(Restored) < kinds.index(PromptProgress) < kinds.index(TextDelta)
    assert kinds.count(Restored) == kinds.count(TurnFinished) == 1
