"""From the events of servers to text, an ending and counts: by the forms that vLLM, llama-server, SGLang, Ollama and
DeepSeek write."""

from __future__ import annotations

from typing import Any

import pytest

from kvchat.backend.remote_stream import Answer, Progress
from kvchat.reasoning import split


class Strange(Exception):
    pass


class Reader:
    """Takes events, one second after the other."""

    def __init__(self, *, continued: bool = False) -> None:
        self.now = 0.0
        self.answer = Answer(lambda: self.now, self._strange, continued=continued)

    def _strange(self, what: str) -> None:
        raise Strange(what)

    def delta(self, finish: str | None = None, **delta: Any) -> str:
        return self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def event(self, event: dict[str, Any]) -> str:
        self.now += 1.0
        return self.answer.take(event)


def test_text_and_its_end() -> None:
    reader = Reader()
    assert reader.delta(role="assistant", content="") == ""
    assert reader.delta(content="Hello") == "Hello"
    assert reader.delta(content=None) == ""
    assert reader.answer.reason is None
    assert reader.delta("stop", content=" there.") == " there."
    assert reader.answer.end() == ""
    assert reader.answer.text == "Hello there."
    assert reader.answer.reason == "stop"


def test_halves_of_characters() -> None:
    """JSON can have them, each in an event of its own; what is half for good has no form on a disk."""
    reader = Reader()
    assert [reader.delta(content=half) for half in ("a\ud83d", "\ude00b", "\ude00c", "\ud83d", "d", "e\ud83d")] == [
        "a",
        "😀b",
        "\ufffdc",
        "",
        "\ufffdd",
        "e",
    ]
    assert reader.answer.end() == "\ufffd"
    assert reader.answer.text == "a😀b\ufffdc\ufffdde\ufffd"
    thinking = Reader()
    assert thinking.delta(reasoning="\ud83d") + thinking.answer.end() == "<think>\n\ufffd\n</think>\n\n"


@pytest.mark.parametrize(("finish", "reason"), [("length", "length"), ("content_filter", "error"), ("eos", "stop")])
def test_endings(finish: str, reason: str) -> None:
    reader = Reader()
    reader.delta(finish)
    assert reader.answer.reason == reason


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_becomes_a_block_at_the_beginning(name: str) -> None:
    reader = Reader()
    reader.delta(**{name: "Six times "})
    reader.delta(**{name: "seven."})
    reader.delta(**{name: None, "content": "42"})
    reader.delta(**{name: ""}, content=".")
    reader.answer.end()
    assert reader.answer.text == "<think>\nSix times seven.\n</think>\n\n42."
    thought = split(reader.answer.text)
    assert reader.answer.text[thought.start : thought.end].strip() == "Six times seven."
    assert reader.answer.text[thought.answer :].strip() == "42."
    assert reader.answer.usage("h", None).reasoning_seconds == 2.0  # from its first piece to the answer's


def test_reasoning_that_is_cut_off_is_closed() -> None:
    reader = Reader()
    reader.delta(reasoning="Half")
    assert reader.answer.end() == "\n</think>\n\n"
    assert split(reader.answer.text).ended


def test_a_reply_that_goes_on_gets_no_second_block() -> None:
    reader = Reader(continued=True)
    assert reader.delta(reasoning="Again?") == ""
    assert reader.delta(content=" two.") == " two."


def test_times_and_tokens() -> None:
    """Three tokens at 2, 3 and 4 s: the first after 2 s, and one a second from then on."""
    reader = Reader()
    reader.delta(role="assistant")
    for _ in range(3):
        reader.delta(content="x")
    reader.event({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 3, "total_tokens": 53}})
    usage = reader.answer.usage("host", "edited")
    assert (usage.prompt_tokens, usage.decode_tokens, usage.cells) == (50, 3, 53)
    assert usage.ttft_seconds == 2.0
    assert usage.decode_tokens / usage.decode_seconds == pytest.approx(1.0)
    assert (usage.remote, usage.cut) == ("host", "edited")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"usage": {"prompt_tokens": 50, "completion_tokens": 3}}, (50, 0, 0)),  # vLLM without its flag, Ollama
        ({"usage": {"prompt_tokens": 50, "completion_tokens": 3, "prompt_tokens_details": None}}, (50, 0, 0)),
        ({"usage": {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 0}}}, (50, 0, 50)),
        ({"usage": {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 48}}}, (50, 48, 2)),
        ({"usage": {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 99}}}, (50, 50, 0)),
        ({"usage": {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": True}}}, (50, 0, 0)),
        ({"usage": {"prompt_tokens": -3, "completion_tokens": "many"}}, (0, 0, 0)),
        ({"timings": {"cache_n": 48, "prompt_n": 2, "predicted_n": 3}}, (50, 48, 2)),  # llama-server
        ({"usage": {"prompt_tokens": 50}, "timings": {"cache_n": 48, "prompt_n": 2}}, (50, 48, 2)),
        ({}, (0, 0, 0)),
    ],
)
def test_what_servers_say_of_their_cache(event: dict[str, Any], expected: tuple[int, int, int]) -> None:
    """Prompt, reused, computed; both 0 where a server does not say how much it had."""
    reader = Reader()
    reader.event({"choices": [], **event})
    usage = reader.answer.usage("host", None)
    assert (usage.prompt_tokens, usage.reused, usage.computed) == expected


def test_the_progress_of_llama_server() -> None:
    reader = Reader()
    reader.event(
        {"choices": [{"delta": {}}], "prompt_progress": {"total": 9, "cache": 4, "processed": 6, "time_ms": 500}}
    )
    assert reader.answer.progress == Progress(total=9, cached=4, done=6, seconds=0.5)


@pytest.mark.parametrize(
    ("total", "cache", "processed", "right"),
    [
        (9, 4, 1, (9, 4, 4)),
        (9, 4, 12, (9, 4, 9)),
        (9, 12, 4, (9, 9, 9)),
        (9, -1, None, (9, 0, 0)),
        (-9, 4, 4, (0, 0, 0)),
    ],
)
def test_progress_that_cannot_be(total: int, cache: int, processed: int | None, right: tuple[int, int, int]) -> None:
    """What the server had is read, and no more is read than there is."""
    reader = Reader()
    reader.event({"choices": [], "prompt_progress": {"total": total, "cache": cache, "processed": processed}})
    assert reader.answer.progress == Progress(*right, seconds=0.0)


@pytest.mark.parametrize("event", [{"id": "x"}, {"choices": [7]}, {"choices": [{"delta": "x"}]}])
def test_another_form(event: dict[str, Any]) -> None:
    with pytest.raises(Strange):
        Reader().event(event)


def test_a_reply_without_an_end() -> None:
    reader = Reader()
    for _ in range(16):
        reader.delta(content="x" * (1 << 20))
    with pytest.raises(Strange, match="without an end"):
        reader.delta(content="x")
