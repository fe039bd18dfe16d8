"""kvchat's own JSON of a conversation: every field comes back exactly, and what is not whole is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from kvchat.errors import FormatError
from kvchat.formats.transcript import Transcript, TranscriptMessage
from kvchat.formats.transcript_json import read_json, write_json
from kvchat.formats.transcript_markdown import write_markdown

EVIL = "\x1b]0;owned\x07 \x9b2J \u202e one\r\ntwo\0\t한국어 👩‍💻"


def user(name: str, parent: str | None, text: str = "question") -> TranscriptMessage:
    return TranscriptMessage(name, parent, "user", text, 1.0, "")


def reply(name: str, parent: str, text: str = "answer", finish: str | None = "stop") -> TranscriptMessage:
    return TranscriptMessage(name, parent, "assistant", text, 2.0, finish, "a model")


WHOLE = Transcript(
    source="kvchat",
    id="01C",
    title="Títle 한",
    created=1.5,
    updated=1764500000.123456,
    messages=(
        user("a", None, EVIL),
        reply("b", "a", finish=None),
        replace(
            reply("c", "a", "another"),
            usage='{"prompt_tokens": 10, "seconds": 0.1}',
            ids={"key two": (1, -1, 2**31 - 1), "key": ()},
        ),
        user("d", "c"),
    ),
    head="d",
    system="be brief\n" + EVIL,
    clock=0.1 + 0.2,
    model="m",
    settings='{"sampling":{"seed":1}}',  # not as Python writes it
    title_by="model",
    pinned_at=3.25,
)


def test_everything_comes_back() -> None:
    text = write_json(WHOLE)
    assert text.isascii()
    assert read_json(json.loads(text)) == WHOLE


def test_json_inside_is_readable_where_it_is_exact() -> None:
    written = json.loads(write_json(WHOLE))
    assert written["messages"][2]["usage"] == {"prompt_tokens": 10, "seconds": 0.1}
    assert written["settings"] == '{"sampling":{"seed":1}}'
    for text in ('{"a": NaN}', "[1]", "no json", '{"a": 1, "a": 2}', "[" * 100_000, '{"a": 1e400}'):
        assert read_json(json.loads(write_json(replace(WHOLE, settings=text)))).settings == text


def test_halves_of_characters_do_not_come_in() -> None:
    found = json.loads(write_json(WHOLE))
    found["messages"][0]["text"] = "\ud800"
    assert read_json(found).messages[0].text == "\ufffd"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kvchat",), 2),
        (("messages",), {}),
        (("messages",), []),
        (("head",), "nowhere"),
        (("created",), float("nan")),
        (("created",), "yesterday"),
        (("updated",), -1),
        (("clock",), 1e300),
        (("title",), 7),
        (("title_by",), "nobody"),
        (("title_by",), []),
        (("pinned_at",), True),
        (("settings",), 7),
        (("messages", 1), "text"),
        (("messages", 1, "id"), "a"),
        (("messages", 1, "id"), ""),
        (("messages", 1, "parent"), "d"),  # comes later
        (("messages", 1, "parent"), "b"),  # itself
        (("messages", 1, "role"), "system"),
        (("messages", 1, "text"), None),
        (("messages", 1, "usage"), []),
        (("messages", 1, "finish"), 1),
        (("messages", 2, "ids"), [1]),
        (("messages", 2, "ids"), {"key": [1.5]}),
        (("messages", 2, "ids"), {"key": [True]}),
        (("messages", 2, "ids"), {"key": [2**31]}),
    ],
)
def test_what_is_not_whole_is_refused(path: tuple[Any, ...], value: object) -> None:
    found = json.loads(write_json(WHOLE))
    place = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(FormatError):
        read_json(found)


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_markdown_has_the_branch_that_is_shown(utc: None) -> None:
    text = write_markdown(
        replace(WHOLE, title="# [bold]\n\x1b[2J", system="be brief", messages=(user("a", None), *WHOLE.messages[1:]))
    )
    assert text == (
        "# # [bold] ␛[2J\n\n"
        "1970-01-01 00:00 · 1 message of another branch is not here\n\n"
        "## System\n\nbe brief\n\n"
        "## You · 1970-01-01 00:00\n\nquestion\n\n"
        "## a model · 1970-01-01 00:00\n\nanother\n\n"
        "## You · 1970-01-01 00:00\n\nquestion\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(",
        "````md\n```\nan inner block\n```",
        "~~~\n```\ncode",
        "```\ndone\n```\nand\n  ```sh\nls",
        "```\nno end: ``` x",
        "1. a list\n\n   ```sh\n   ls",
        "```\nwhole\n```",
        "`` ` `` and ```not a fence```",
    ],
)
def test_markdown_of_a_message_that_ends_in_a_code_block_ends_the_block(text: str) -> None:
    """The messages after it stand outside, as a Markdown parser sees them; a whole text stays what it is."""
    first, *others = WHOLE.messages
    document = write_markdown(replace(WHOLE, messages=(replace(first, text=text), *others), system=text))
    tokens = MarkdownIt().parse(document)
    assert sum(each.type == "heading_open" and each.tag == "h2" and each.level == 0 for each in tokens) == 4
    blocks = [each for each in MarkdownIt().parse(text) if each.type == "fence"]
    assert len([each for each in tokens if each.type == "fence"]) == 2 * len(blocks)


def test_markdown_says_how_an_answer_ended_and_obeys_nothing() -> None:
    text = write_markdown(replace(WHOLE, head="b"))
    assert text.endswith("answer\n\n*not finished*\n")
    assert "2 messages of other branches are not here" in text
    assert not set(text) & set("\x1b\x07\r\x9b\u202e\0")
