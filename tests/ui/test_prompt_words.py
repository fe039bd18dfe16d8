"""What is pure about the prompt: fuzzy names, what can be completed, chips, what varies in a system prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_backend import make_ready

from kvchat.backend.protocol import Ready
from kvchat.backend.values import CACHE_TYPES
from kvchat.chats.types import Message
from kvchat.ui.chips import Chips, FileRef, Written
from kvchat.ui.completing_commands import Values, command_offer, moved
from kvchat.ui.completing_files import At, at_of, estimate, file_offer, reference
from kvchat.ui.files import File, Listing
from kvchat.ui.fuzzy import rank
from kvchat.ui.history_words import history_words
from kvchat.ui.recall import line_of
from kvchat.ui.slash import COMMANDS
from kvchat.ui.varying import hint_on, varying_part

# ---------------------------------------------------------------------- fuzzy


def ranked(query: str, *names: str) -> list[str]:
    return [names[match.index] for match in rank(query, names, 99)]


def test_prefixes_come_first_then_words_then_parts_then_letters_in_order() -> None:
    names = ("recipe", "a-context", "cont", "x_con", "discont", "c-o-n")
    assert ranked("con", *names) == ["cont", "x_con", "a-context", "discont", "c-o-n"]


def test_of_a_path_the_name_counts_most() -> None:
    names = ("test/deep/other.py", "src/testing.py", "a/b/test", "t/e/s/t")
    assert ranked("test", *names) == ["a/b/test", "src/testing.py", "test/deep/other.py", "t/e/s/t"]


def test_letters_of_several_folders_in_their_order() -> None:
    assert ranked("uipr", "kvchat/ui/prompt.py", "kvchat/ui/paste.py", "README") == ["kvchat/ui/prompt.py"]


def test_case_counts_where_it_was_typed() -> None:
    assert ranked("readme", "README.md", "readme") == ["readme", "README.md"]
    assert ranked("READ", "README.md", "readme") == ["README.md"]


def test_marks_are_the_letters_that_were_meant() -> None:
    assert [match.marks for match in rank("ab", ["xab", "a-b"], 9)] == [(1, 2), (0, 2)]
    (match,) = rank("일", ["보고서일", "x"], 9)
    assert match.marks == (3,)


def test_an_empty_query_keeps_the_order_and_the_limit() -> None:
    assert [match.index for match in rank("", list("dcba"), 3)] == [0, 1, 2]


def test_letters_that_are_longer_in_lower_case() -> None:
    """İ is two code points in lower case; the marks would be beside the letters."""
    (match,) = rank("x", ["İİx"], 9)
    assert match.marks == (2,)


# ---------------------------------------------------------------------- commands

VALUES = {
    "/cache": Values(lambda: [(name, "") for name in CACHE_TYPES], words=2),
    "/model": Values(lambda: [("tiny one", "1 GiB"), ("tiny two", "2 GiB")], closed=False),
}


def offered(text: str, column: int | None = None) -> tuple[list[str], int | None]:
    offer = command_offer(text, len(text) if column is None else column, VALUES)
    assert offer is not None
    return [choice.put for choice in offer.choices], offer.marked


def test_a_slash_offers_all_commands_with_what_they_take_and_do() -> None:
    offer = command_offer("/", 1, VALUES)
    assert offer is not None
    assert [choice.name.split()[0] for choice in offer.choices] == list(COMMANDS)
    argument, meaning = COMMANDS["/model"]
    assert (offer.choices[0].name, offer.choices[0].note) == (f"/model {argument}", meaning)


def test_names_that_begin_so_come_first_and_the_first_is_marked() -> None:
    assert offered("/co")[0][:2] == ["/context ", "/continue"]
    assert offered("/co")[1] == 0
    assert offered("/cte")[0] == ["/context ", "/continue"]  # letters in order


def test_a_whole_name_is_left_to_enter() -> None:
    assert offered("/model") == (["/model "], None)


@pytest.mark.parametrize("text", ["//new", "new", "/zzz", "/new be", "/cache f16 f16 f16", "/cache zz", ""])
def test_where_nothing_is_offered(text: str) -> None:
    assert command_offer(text, len(text), VALUES) is None


def test_the_name_is_completed_where_the_cursor_is() -> None:
    offer = command_offer("/mo tiny", 3, VALUES)
    assert offer is not None
    assert (offer.start, offer.end) == (0, 3)


def test_closed_arguments_are_marked_when_they_are_begun() -> None:
    assert offered("/cache ") == (list(CACHE_TYPES), None)
    assert offered("/cache q") == (["q8_0", "q4_0"], 0)
    assert offered("/cache q8_0 b") == (["bf16"], 0)
    assert command_offer("/cache q8_0 q4_0", 16, VALUES) is None  # it stands there already


def test_an_argument_that_may_be_anything_is_left_to_enter() -> None:
    offer = command_offer("/model tiny t", 13, VALUES)
    assert offer is not None
    assert ([choice.put for choice in offer.choices], offer.marked) == (["tiny two"], None)
    assert (offer.start, offer.end) == (7, 13)  # names have spaces


def test_the_mark_goes_round() -> None:
    offer = command_offer("/cache ", 7, VALUES)
    assert offer is not None
    places = [(offer := moved(offer, step)).marked for step in (1, 1, -1, -1, 1)]
    assert places == [0, 1, 0, 3, 0]


# ---------------------------------------------------------------------- files

LISTING = Listing(Path("/w"), (File("a.py", 4_000), File("my notes.txt", 10), File("src/b.py", 2 << 20)))


@pytest.mark.parametrize(
    ("line", "column", "word"),
    [
        ("@", 1, ""),
        ("see @src/b", 10, "src/b"),
        ("see\t@b", 6, "b"),
        ("see @b#1-2 and", 10, "b#1-2"),
        ("@a @b", 2, "a"),
    ],
)
def test_an_at_behind_a_space_or_at_the_start(line: str, column: int, word: str) -> None:
    at = at_of(line, column, ())
    assert at is not None
    assert at.word == word
    assert line[at.start : at.end].startswith(f"@{word}")


@pytest.mark.parametrize(("line", "column"), [("mail@x", 6), ("@a b", 4), ("x", 1), ("a @b", 2), ("(@b", 3)])
def test_no_at(line: str, column: int) -> None:
    assert at_of(line, column, ()) is None


def test_the_at_of_a_chip_is_none() -> None:
    line = "@a.py · 9 tokens"
    assert at_of(line, 3, [(0, len(line))]) is None


def test_what_is_offered_of_files() -> None:
    at = At(0, 2, "py")
    offer = file_offer(at, LISTING)
    assert offer is not None
    assert [choice.put for choice in offer.choices] == ["a.py", "src/b.py"]
    assert offer.choices[0].aside.split() == ["4", "KiB", "~1,000", "tokens"]
    assert offer.choices[1].aside.split() == ["2", "MiB", "too", "large"]
    assert offer.marked == 0
    empty = file_offer(At(0, 1, ""), LISTING)
    assert empty is not None
    assert empty.marked is None  # nothing was typed that Enter could mean
    assert file_offer(At(0, 4, "zzz"), LISTING) is None
    waiting = file_offer(At(0, 4, "zzz"), None)
    assert waiting is not None
    assert waiting.waits


def test_a_range_is_no_part_of_the_name() -> None:
    at = At(0, 9, "notes#3-1")
    offer = file_offer(at, LISTING)
    assert offer is not None
    file = reference(at, offer.choices[0], LISTING)
    assert file == FileRef("/w/my notes.txt", "my notes.txt", 1, 3)
    assert file.shown == "@my notes.txt#1-3"


@pytest.mark.parametrize(("size", "shown"), [(0, "1"), (36, "9"), (400, "100"), (4_980, "1,200"), (99_000, "25,000")])
def test_an_estimate_has_two_digits_and_says_so(size: int, shown: str) -> None:
    assert estimate(size) == f"~{shown} tokens"


# ---------------------------------------------------------------------- chips

FILE = FileRef("/w/a.py", "a.py")
BLOCK = "```python a.py\nx = 1\n```"


def test_a_file_goes_out_in_front_once_and_leaves_its_name() -> None:
    chips = Chips()
    label = chips.refer(FILE, "~9 tokens")
    assert label == "@a.py · ~9 tokens"
    draft = f"why does {label} differ from {label}?"
    assert chips.message(draft) == "why does @a.py differ from @a.py?"  # not read yet
    chips.keep_block(FILE, BLOCK)
    assert chips.message(draft) == f"{BLOCK}\n\nwhy does @a.py differ from @a.py?"
    assert chips.plain(draft) == "why does @a.py differ from @a.py?"


def test_a_label_with_its_number_stands_for_the_same_and_so_does_the_old_one() -> None:
    chips = Chips()
    paste = chips.fold("x\n" * 30)
    assert paste == "[Pasted #1 · 30 lines]"
    assert list(chips.uncounted(paste)) == [(paste, "x\n" * 30)]
    counted = chips.count(paste, 1_240)
    assert counted == "[Pasted #1 · 30 lines · 1,240 tokens]"
    assert chips.plain(f"{paste}{counted}") == "x\n" * 60
    assert list(chips.uncounted(counted)) == []
    chips.recount()  # another vocabulary
    assert list(chips.uncounted(counted)) == [(counted, "x\n" * 30)]
    assert chips.count(counted, 1) == "[Pasted #1 · 30 lines · 1 token]"


def test_a_draft_is_put_together_again() -> None:
    chips = Chips()
    label = chips.refer(FILE, "~9 tokens")
    written = chips.written(f"{chips.fold('y' * 2_000)} {label}")
    assert written == Written(f"{'y' * 2_000} {label}", {label: FILE})
    again = Chips()
    again.restore(written.files)
    assert again.plain(written.text) == f"{'y' * 2_000} @a.py"
    assert list(again.unread(written.text)) == [(label, FILE)]


def test_labels_that_begin_alike() -> None:
    chips = Chips()
    short, long = chips.refer(FILE, "1 t"), chips.refer(FILE, "1 tokens")
    line = f"{long} {short}"
    assert [line[slice(*span)] for span in chips.spans(line)] == [long, short]


def test_names_of_files_are_foreign_text() -> None:
    chips = Chips()
    label = chips.refer(FileRef("/w/x", "a\x1b[2J\nb\u202e"), "1 B")
    assert label == "@a␛[2J b · 1 B"


# ---------------------------------------------------------------------- other words

TAIL = " You are a helpful assistant. You answer in plain words, briefly, and say when you do not know."


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("Today is 2026-11-29.", "a date", "2026-11-29"),
        ("Cutting knowledge: December 2023. Today: 26 Jul 2024.", "a date", "26 Jul 2024"),
        ("It is November 29, 2026.", "a date", "November 29, 2026"),
        ("Heute ist der 29.11.2026.", "a date", "29.11.2026"),
        ("今天是2026年11月29日。", "a date", "2026年11月29日"),
        ("The time is 14:05:33.", "a time", "14:05:33"),
        ("It is 5 pm.", "a time", "5 pm"),
        ("Today: {{date}}.", "a placeholder", "{{date}}"),
        ("Now: {current_time}.", "a placeholder", "{current_time}"),
        ("User ${USER}.", "a placeholder", "${USER}"),
        ("It is [current date].", "a placeholder", "[current date]"),
        ("{{user}} at 10:00", "a placeholder", "{{user}}"),  # what comes first
    ],
)
def test_what_varies_near_the_start(text: str, kind: str, part: str) -> None:
    assert varying_part(text + TAIL) == (kind, part)
    assert part in hint_on(text + TAIL)
    assert hint_on(TAIL + text) == ""  # at the end it costs nothing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Be brief.",
        "Keep a ratio of 16:9.",
        "The scale is 1:100 always.",
        "Use Python 3.11.7 and version 2.10.",
        'Answer as {"name": "x", "date": null}.',
        "Write dates as %Y-%m-%d.",
        "You may use up to 2024 tokens.",
        "Put names into <user> tags.",
    ],
)
def test_what_does_not_vary(text: str) -> None:
    assert varying_part(text + TAIL) is None


def answer(cut: str) -> Message:
    return Message("m", "c", None, "assistant", "x", 1.0, "stop", "m", f'{{"computed": 3, "cut": {cut}}}')


def test_history_words_say_what_was_reported(ready: Ready) -> None:
    assert history_words("append", None, ()).splitlines()[1].startswith("template: no answer here yet")
    seen = history_words("exact", ready, [answer('"template"'), answer("null"), answer('"edited"')])
    assert "the whole chat is rendered again" in seen
    assert "template GGUF: it rendered the past otherwise in 1 of 3 answers here" in seen
    assert "it changed nothing of the past in 1 answer here" in history_words("append", ready, [answer("null")])


@pytest.fixture
def ready() -> Ready:
    return make_ready()


def test_the_line_of_a_text_that_was_sent() -> None:
    assert line_of("one\ntwo", "") == "one ⏎ two"
    assert line_of(f"{BLOCK}\n\n{BLOCK}\n\nwhy?", "") == "why?"
    assert line_of(f"{BLOCK}\n\nwhy?", "x").startswith("```python a.py ⏎ x = 1")
    assert "the needle here" in line_of("hay " * 200 + "the needle here", "NEEDLE")


def test_a_label_that_was_sent_before_it_was_counted() -> None:
    """The engine's answer came when the draft, and all that its labels meant, was gone."""
    label = Chips().fold("word " * 1000)
    assert Chips().count(label, 1000) == label
