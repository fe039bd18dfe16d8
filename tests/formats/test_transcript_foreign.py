"""Conversations of ChatGPT and of llama.cpp's web interface, as their exports are laid out, and broken ones."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from kvchat.errors import FormatError
from kvchat.formats.transcript import Broken, Transcript
from kvchat.formats.transcript_read import read_transcripts
from kvchat.formats.transcript_tree import Node, grow

Json = dict[str, Any]


def read(data: str | bytes) -> list[Transcript | Broken]:
    return list(read_transcripts(io.BytesIO(data if isinstance(data, bytes) else data.encode())))


def one(found: object) -> Transcript:
    (transcript,) = read(json.dumps(found))
    assert isinstance(transcript, Transcript), transcript
    return transcript


def tree(transcript: Transcript) -> list[tuple[str, str | None, str]]:
    return [(message.id, message.parent, message.text) for message in transcript.messages]


# ------------------------------------------------------------------ ChatGPT


def node(
    name: str, parent: str | None, role: str = "", text: object = "", time: float | None = None, **more: Any
) -> Json:
    """A node of a mapping, as published exports have it; without a role one without a message."""
    if not role:
        return {"id": name, "message": None, "parent": parent, "children": []}
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    message = {
        "id": name,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": time,
        "update_time": None,
        "content": content,
        "status": "finished_successfully",
        "end_turn": None,
        "weight": 1.0,
        "metadata": {},
        "recipient": "all",
    }
    return {"id": name, "message": message | more, "parent": parent, "children": []}


def chatgpt(*nodes: Json, **more: Any) -> Json:
    mapping = {each["id"]: each for each in nodes}
    for each in nodes:
        if each["parent"] in mapping:
            mapping[each["parent"]]["children"].append(each["id"])
    found = {
        "title": "A title",
        "create_time": 1700000000.25,
        "update_time": 1700000900.5,
        "mapping": mapping,
        "moderation_results": [],
        "current_node": nodes[-1]["id"],
        "conversation_id": "uuid-1",
        "id": "uuid-1",
    }
    return found | more


BRANCHED = chatgpt(
    node("root", None),
    node("sys", "root", "system"),
    node("u1", "sys", "user", "first", 1700000001.0),
    node("a1", "u1", "assistant", "one", 1700000002.0, metadata={"model_slug": "gpt-4"}),
    node("a2", "u1", "assistant", "two", 1700000005.0, metadata={"finish_details": {"type": "max_tokens"}}),
    node("u2", "a1", "user", "more", 1700000010.0),
    node("a3", "u2", "assistant", "three", None, metadata={"model_slug": "gpt-4o"}),
)


def test_chatgpt_tree() -> None:
    found = one(BRANCHED)
    assert tree(found) == [
        ("u1", None, "first"),
        ("a1", "u1", "one"),
        ("a2", "u1", "two"),
        ("u2", "a1", "more"),
        ("a3", "u2", "three"),
    ]
    assert (found.source, found.id, found.title, found.head) == ("chatgpt", "uuid-1", "A title", "a3")
    assert (found.created, found.updated) == (1700000000.25, 1700000900.5)
    assert [message.finish for message in found.messages] == ["", "stop", "length", "", "stop"]
    assert (found.model, found.messages[1].model) == ("gpt-4o", "gpt-4")
    assert found.messages[4].created == 1700000010.0  # without a time: that of the one above
    assert found.skipped == {"system": 1}


def test_chatgpt_shows_the_branch_that_was_shown() -> None:
    assert one(BRANCHED | {"current_node": "a2"}).head == "a2"
    assert one(BRANCHED | {"current_node": "sys"}).head == "a3"  # nothing of it is kept: the newest
    assert one(BRANCHED | {"current_node": None}).head == "a3"


def test_chatgpt_without_any_time() -> None:
    found = one(
        chatgpt(node("u", None, "user", "hi"), node("a", "u", "assistant", "ho"), create_time=None, update_time=None)
    )
    assert [message.created for message in found.messages] == [0.0, 0.0]


def test_chatgpt_parents_from_children() -> None:
    found = copy.deepcopy(BRANCHED)
    for each in found["mapping"].values():
        del each["parent"]
    assert tree(one(found)) == tree(one(BRANCHED))


def test_chatgpt_tools_and_reasoning_are_left_out_and_the_answer_is_one() -> None:
    found = one(
        chatgpt(
            node("u", None, "user", "plot it", 1.0),
            node("t", "u", "assistant", {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}, 2.0),
            node("a", "t", "assistant", "I will.", 3.0),
            node("c", "a", "assistant", {"content_type": "code", "text": "plot()"}, 4.0, recipient="python"),
            node("r", "c", "tool", {"content_type": "execution_output", "text": "done"}, 5.0),
            node("b", "r", "assistant", "Here it is.", 6.0, metadata={"model_slug": "gpt-5"}),
            node("v", "b", "user", "thanks", 7.0),
        )
    )
    assert tree(found) == [("u", None, "plot it"), ("a", "u", "I will.\n\nHere it is."), ("v", "a", "thanks")]
    assert found.messages[1].model == "gpt-5"
    assert found.skipped == {"reasoning": 1, "tool": 2}


def test_chatgpt_branches_do_not_run_together() -> None:
    """Two answers below an answer: each is a branch of its own."""
    found = one(
        chatgpt(
            node("u", None, "user", "q", 1.0),
            node("a", "u", "assistant", "piece", 2.0),
            node("b", "a", "assistant", "end one", 3.0),
            node("c", "a", "assistant", "end two", 4.0),
        )
    )
    assert tree(found)[2:] == [("b", "a", "end one"), ("c", "a", "end two")]


def test_chatgpt_parts() -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    spoken = {"content_type": "audio_transcription", "text": "said"}
    parts = {"content_type": "multimodal_text", "parts": [image, "what is", "", spoken, None]}
    found = one(
        chatgpt(
            node("u", None, "user", parts, 1.0),
            node("e", "u", "assistant", "", 2.0),
            node("k", "e", "assistant", {"content_type": "code", "text": "x = 1"}, 3.0),
            node("m", "k", "user", {"content_type": "user_editable_context", "user_profile": "me"}, 4.0),
        )
    )
    assert tree(found) == [("u", None, "what is\n\nsaid"), ("k", "u", "```\nx = 1\n```")]
    assert found.skipped == {"attachments": 1, "system": 1}


def test_chatgpt_is_cleaned() -> None:
    found = one(
        chatgpt(
            node("u", None, "user", "\x1b[2Jhi\u202e\r\n\x9b"),
            node("a", "u", "assistant", "ok"),
            title="a\n\x1b]0;b\x07",
        )
    )
    assert (found.title, found.messages[0].text) == ("a ␛]0;b␇", "␛[2Jhi\n\ufffd")


def change(path: tuple[str, ...], value: object) -> Callable[[Json], None]:
    def do(found: Json) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = value

    return do


CIRCLE = ("mapping", "root", "parent")


@pytest.mark.parametrize(
    "damage",
    [
        change(("mapping",), []),
        change(("mapping",), {}),
        change(("mapping", "u1"), None),
        change(("mapping", "u1", "message"), "text"),
        change(("mapping", "u1", "message", "author"), None),
        change(("mapping", "u1", "message", "author", "role"), "critic"),
        change(("mapping", "u1", "message", "content"), None),
        change(("mapping", "u1", "message", "content", "parts"), "text"),
        change(("mapping", "u1", "message", "content", "parts"), [7]),
        change(CIRCLE, "a3"),
        change(("mapping", "u1", "children"), {"a": 1}),
    ],
)
def test_a_broken_conversation_is_told_and_the_others_are_read(damage: Callable[[Json], None]) -> None:
    broken = copy.deepcopy(BRANCHED) | {"title": "Broken\x1b"}
    damage(broken)
    before, told, after = read(json.dumps([BRANCHED, broken, BRANCHED]))
    assert isinstance(before, Transcript) and isinstance(after, Transcript)
    assert isinstance(told, Broken) and told.title == "Broken␛" and told.problem


def test_a_very_long_branch_is_no_recursion() -> None:
    nodes = [node("0", None, "user", "0", 0.5)]
    nodes += [node(str(n), str(n - 1), "assistant" if n % 2 else "user", str(n), float(n)) for n in range(1, 20_000)]
    assert len(one(chatgpt(*nodes)).messages) == 20_000


# ------------------------------------------------------------------ llama.cpp


def message(name: str, parent: str | None, role: str, content: str, timestamp: int, **more: Any) -> Json:
    fields = {"id": name, "convId": "c1", "type": "text", "role": role, "content": content, "parent": parent}
    return fields | {"timestamp": timestamp, "children": []} | more


CONVERSATION = {"id": "c1", "name": "A web chat", "lastModified": 1700000900500, "currNode": "a2"}
MESSAGES = [
    message("r", None, "system", "", 1700000000000, type="root"),
    message("s", "r", "system", "Be brief.", 1700000000000, type="system"),
    message("u", "s", "user", "first", 1700000001250, extra=[{"type": "TEXT", "name": "f.txt", "content": "a ``` b"}]),
    message("a1", "u", "assistant", "one", 1700000002000, model="m1", timings={"predicted_n": 5}),
    message("a2", "u", "assistant", "two", 1700000003000, reasoningContent="hm", model="m2"),
    message("u2", "a1", "user", "again", 1700000004000, extra=[{"type": "IMAGE", "name": "p", "base64Url": "data:"}]),
    message("cd", "u2", "user", "cwd is /x", 1700000004100, isSynthetic=True),
    message("t1", "cd", "assistant", "calling", 1700000005000, toolCalls="[]"),
    message("t2", "t1", "tool", "result", 1700000006000),
    message("t3", "t2", "assistant", "done", 1700000007000),
]


def check_llama(found: Transcript) -> None:
    assert tree(found) == [
        ("u", None, "first\n\nf.txt\n````\na ``` b\n````"),
        ("a1", "u", "one"),
        ("a2", "u", "two"),
        ("u2", "a1", "again"),
        ("t1", "u2", "calling\n\ndone"),
    ]
    assert (found.source, found.id, found.title, found.head) == ("llama.cpp", "c1", "A web chat", "a2")
    assert (found.created, found.updated, found.system) == (1700000000.0, 1700000900.5, "Be brief.")
    assert found.messages[0].created == 1700000001.25
    assert (found.model, found.pinned_at) == ("m2", None)
    assert found.skipped == {"reasoning": 1, "attachments": 1, "tool": 2}


def lines(conversation: Json = CONVERSATION, messages: list[Json] = MESSAGES) -> str:
    records = [{"harness": "llama.app", "type": "session", **conversation}]
    records += [{"message": each, "type": "message"} for each in messages]
    return "\n".join(map(json.dumps, records))


def archive(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as target:
        for name, text in files.items():
            target.writestr(name.replace("_", "."), text)
    return data.getvalue()


def test_llama_in_each_of_its_forms() -> None:
    whole = {"conv": CONVERSATION, "messages": MESSAGES}
    for data in (json.dumps(whole), json.dumps([whole]), lines(), "\ufeff" + lines() + "\n", archive(a_jsonl=lines())):
        (found,) = read(data)
        assert isinstance(found, Transcript)
        check_llama(found)


def test_llama_several_conversations_in_a_file() -> None:
    other = {**CONVERSATION, "id": "c2", "name": "Other", "pinned": True}
    first, second, third = read(lines() + "\n" + lines(other) + "\n" + json.dumps(BRANCHED))
    assert isinstance(first, Transcript) and isinstance(second, Transcript) and isinstance(third, Transcript)
    check_llama(first)
    assert (second.id, second.pinned_at, third.source) == ("c2", 1700000900.5, "chatgpt")


def test_llama_with_numbers_for_names() -> None:
    """Older versions counted milliseconds, and -1 was above the root."""
    found = one(
        {
            "conv": {"id": "conv-17", "name": "Old", "lastModified": 1700000002000, "currNode": 3},
            "messages": [
                message(1, -1, "system", "", 1, type="root"),  # type: ignore[arg-type]
                message(2, 1, "user", "q", 1700000001000),  # type: ignore[arg-type]
                message(3, 2, "assistant", "a", 1700000002000),  # type: ignore[arg-type]
            ],
        }
    )
    assert tree(found) == [("2", None, "q"), ("3", "2", "a")]
    assert found.head == "3"


@pytest.mark.parametrize(
    "broken",
    [
        lines().replace('"role": "user"', '"role": "critic"', 1),
        lines(messages=[*MESSAGES, MESSAGES[2]]),  # an id twice
        lines(messages=MESSAGES[:2]),  # nothing was said
        lines().replace('"content": "one"', '"content": "on'),  # a line that is no JSON
        lines(messages=[{**MESSAGES[0], "parent": "t3"}, *MESSAGES[1:]]),
        json.dumps({"conv": CONVERSATION, "messages": {}}),
        json.dumps({"conv": CONVERSATION, "messages": [7]}),
        json.dumps({"conv": CONVERSATION, "messages": [{**MESSAGES[2], "extra": "x"}]}),
    ],
)
def test_llama_broken(broken: str) -> None:
    told, after = read(broken + "\n" + lines({**CONVERSATION, "id": "c2"}))
    assert isinstance(told, Broken) and told.title == "A web chat" and told.problem
    assert isinstance(after, Transcript) and after.id == "c2"


# ------------------------------------------------------------------ files


def test_an_archive_of_chatgpt_holds_other_files_too() -> None:
    data = archive(conversations_json=json.dumps([BRANCHED]), user_json='{"email": "x"}', chat_html="<html>")
    (found,) = read(data)
    assert isinstance(found, Transcript) and found.source == "chatgpt"


NO_JSON = {
    "empty": b"",
    "blank": b"   \n",
    "markdown": b"# Markdown",
    "png": b"\x89PNG\r\n",
    "null": b"null",
    # An archive holds the time at which it was made: as a test's name, it would differ between two workers.
    "cut archive": archive(a_json="[]")[:-30],
}


@pytest.mark.parametrize("data", NO_JSON.values(), ids=NO_JSON)
def test_files_that_hold_no_json(data: bytes) -> None:
    with pytest.raises(FormatError):
        read(data)


def test_json_that_is_no_conversation_is_told() -> None:
    found = read('[{"a": 1}, [], 7, "text", null, {"kvchat": 99}]')
    assert len(found) == 6 and all(isinstance(each, Broken) for each in found)
    assert isinstance(found[5], Broken) and "version 99" in found[5].problem


# ------------------------------------------------------------------ trees


def test_orphans_and_missing_times() -> None:
    grown = grow({"b": Node("b", "lost", 2.0, left_out="tool"), "a": Node("a", None, None)}, 1.0)
    assert (grown.messages, grown.stands_for, dict(grown.skipped)) == ([], {"a": None, "b": None}, {"tool": 1})
