"""What a server is asked: the past stays as it was, byte for byte, and what changes it is named."""

from __future__ import annotations

import json

import pytest

from kvchat.backend.protocol import Generate
from kvchat.backend.remote_request import LLAMA, OLLAMA, SGLANG, VLLM, Sent, body, said
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.errors import KvchatError

SYSTEM = PromptMessage("system", "Be brief.")
THOUGHT = "<think>\nHm, 7 times 6.\n</think>\n\nForty-two. "


def user(text: str) -> PromptMessage:
    return PromptMessage("user", text)


def reply(text: str) -> PromptMessage:
    return PromptMessage("assistant", text)


def generate(*messages: PromptMessage, continued: bool = False, **sampling: object) -> Generate:
    return Generate("t", messages, Sampling(**sampling), continue_reply=continued)  # type: ignore[arg-type]


def messages_of(raw: bytes) -> bytes:
    """The bytes of the list of messages, without its end."""
    return raw.partition(b'"messages":[')[2].partition(b'],"stream"')[0]


def test_a_later_request_begins_with_the_one_before() -> None:
    """Ten turns, with reasoning, line breaks and letters of other scripts in the replies."""
    past: list[PromptMessage] = [SYSTEM]
    before = b""
    for turn in range(10):
        past.append(user(f"Frage {turn}: wie heißt „{turn}“ auf Japanisch? 七"))
        raw = messages_of(body(generate(*past), "m", VLLM))
        assert raw.startswith(before)
        before = raw
        past.append(reply(THOUGHT + f"Nr. {turn}\n\n```py\nprint('{turn}')\n```"))
    assert json.loads(b"[" + before + b"]")[1]["content"] == "Frage 0: wie heißt „0“ auf Japanisch? 七"


def test_the_same_chat_is_the_same_request_in_another_process() -> None:
    """Nothing of the time, of the machine, or of the order of a dictionary is in it."""
    request = generate(SYSTEM, user("Hello"), temperature=0.5, seed=7, stop=("END",))
    expected = (
        b'{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}],'
        b'"stream":true,"temperature":0.5,"top_p":0.95,"seed":7,"stop":["END"],'
        b'"stream_options":{"include_usage":true}}'
    )
    assert body(request, "m", OLLAMA) == expected
    assert body(Generate("other", request.messages, request.sampling, clock=9.0), "m", OLLAMA) == expected


def test_reasoning_of_replies_is_not_sent_back() -> None:
    assert said([user("6 times 7?"), reply(THOUGHT)])[-1] == ("assistant", "Forty-two. ")
    assert said([reply("<think>never ended")])[-1] == ("assistant", "")
    assert said([reply("Hm, 7 times 6.\n</think>\n\nForty-two.")])[-1] == ("assistant", "Forty-two.")
    assert said([user(THOUGHT)])[-1] == ("user", THOUGHT)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (LLAMA, {"top_k": 0, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": 64}),
        (VLLM, {"top_k": -1, "min_p": 0.05, "repetition_penalty": 1.1}),
        (SGLANG, {"top_k": -1, "min_p": 0.05, "repetition_penalty": 1.1}),
        (OLLAMA, {}),
        ("", {}),
    ],
)
def test_sampling_by_the_names_of_the_program(program: str, expected: dict[str, object]) -> None:
    usual = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 9}
    fields = json.loads(body(generate(user("x"), top_k=0, repeat_penalty=1.1, max_tokens=9), "m", program))
    others = {"model", "messages", "stream", "stream_options", "cache_prompt", "return_progress"}
    assert {name: value for name, value in fields.items() if name not in others} == usual | expected


@pytest.mark.parametrize("program", [LLAMA, VLLM, SGLANG])
def test_a_reply_is_continued_as_the_last_message(program: str) -> None:
    fields = json.loads(body(generate(user("Count."), reply("One, two,"), continued=True), "m", program))
    assert fields["messages"][-1] == {"role": "assistant", "content": "One, two,"}
    assert fields["continue_final_message"] is True
    assert fields["add_generation_prompt"] is False


@pytest.mark.parametrize(("program", "text"), [("", "One,"), (OLLAMA, "One,"), (VLLM, "<think>\nhalf a thought")])
def test_what_cannot_be_continued(program: str, text: str) -> None:
    with pytest.raises(KvchatError) as caught:
        body(generate(user("Count."), reply(text), continued=True), "m", program)
    assert "/retry" in caught.value.hint


class Server:
    """What it has read, and why it cannot find all of it."""

    def __init__(self) -> None:
        self.sent = Sent()

    def turn(self, *messages: PromptMessage, answer: str = "Yes.") -> str | None:
        cut = self.sent.cut(said(messages))
        self.sent.remember(said(messages), answer)
        return cut


def test_what_changes_the_past_is_named() -> None:
    server = Server()
    one, two = user("One?"), user("Two?")
    assert server.turn(SYSTEM, one) is None
    assert server.turn(SYSTEM, one, reply("Yes."), two) is None
    assert server.turn(SYSTEM, one, reply("Yes."), two) is None, "the same prompt once more loses nothing"
    assert server.turn(SYSTEM, user("One!"), reply("Yes."), two) is None, "nothing in common: another chat"
    assert server.turn(SYSTEM, one, reply("Yes."), user("Three?")) == "edited"
    assert server.turn(PromptMessage("system", "Be long."), one, reply("Yes."), two) == "system"
    assert server.turn(one, reply("Yes."), two) == "system", "it has none any more"


def test_reasoning_that_is_not_sent_back_is_named() -> None:
    server = Server()
    assert server.turn(user("6 times 7?"), answer=THOUGHT) is None
    assert server.turn(user("6 times 7?"), reply(THOUGHT), user("And 8?")) == "reasoning"
    assert server.turn(user("6 times 7?")) is None


def test_several_chats_are_told_apart() -> None:
    server = Server()
    for number in range(20):
        assert server.turn(SYSTEM, user(f"Chat {number}")) is None
    assert server.turn(SYSTEM, user("Chat 19"), reply("No."), user("More")) == "edited"
    assert server.turn(SYSTEM, user("Chat 0"), reply("No."), user("More")) is None, "so long ago that it is forgotten"


def test_a_reply_that_went_on_is_one_reply() -> None:
    sent = Sent()
    first = said([user("Count.")])
    sent.remember(first, "One,")
    continued = said([user("Count."), reply("One,")])
    assert sent.cut(continued) is None
    sent.remember(continued, "One, two.")
    assert sent.cut(said([user("Count."), reply("One, two."), user("On.")])) is None
    assert sent.cut(said([user("Count."), reply("One, ten."), user("On.")])) == "edited"
