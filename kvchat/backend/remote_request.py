"""What a server is asked: from the messages of a chat to the body of a request. Pure; must not send anything.

A server finds its KV again by the beginning of the prompt, so the past is written the same way each time, byte for
byte: a later request begins with the messages of the one before. What changes it all the same is named by `Sent.cut`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvchat.backend.protocol import Generate
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.errors import KvchatError
from kvchat.reasoning import split_whole

Said = tuple[str, str]  # role and content of a message, as they are sent

LLAMA, VLLM, SGLANG, OLLAMA = "llama-server", "vLLM", "SGLang", "Ollama"
# What /v1/models says of the owner of a model -> the program that says so.
PROGRAMS: Mapping[str, str] = {"llamacpp": LLAMA, "vllm": VLLM, "sglang": SGLANG, "library": OLLAMA}
_CONTINUES = frozenset((LLAMA, VLLM, SGLANG))
_MOST_REMEMBERED = 16  # chats


def said(messages: Sequence[PromptMessage]) -> tuple[Said, ...]:
    """The messages as they are sent. Of replies their answer: reasoning is not sent back, as these APIs want it."""
    return tuple((each.role, _answer(each.text) if each.role == "assistant" else each.text) for each in messages)


def _answer(text: str) -> str:
    thought = split_whole(text, counted=False)
    return text[thought.answer :].lstrip() if thought.answer else text


def body(request: Generate, model: str, program: str, *, usage: bool = True) -> bytes:
    """The JSON of a request for a streamed answer. KvchatError: this server cannot do what is asked."""
    messages = said(request.messages)
    fields: dict[str, object] = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in messages],
        "stream": True,
        **_sampled(request.sampling, program),
    }
    if usage:
        fields["stream_options"] = {"include_usage": True}
    if program == LLAMA:
        fields |= {"cache_prompt": True, "return_progress": True}
    if request.continue_reply:
        _check_continues(messages, program)
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _check_continues(messages: Sequence[Said], program: str) -> None:
    again = "/retry has the answer written again"
    if program not in _CONTINUES:
        raise KvchatError("this server cannot go on with an answer", again)
    if not messages[-1][1]:
        raise KvchatError("the answer stopped inside its reasoning, and a server cannot go on there", again)


def _sampled(sampling: Sampling, program: str) -> dict[str, object]:
    """Sampling by the names of the program; one that is not known gets what all of them have."""
    fields: dict[str, object] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.max_tokens is not None:
        fields["max_tokens"] = sampling.max_tokens
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if program == LLAMA:
        fields |= {"top_k": sampling.top_k, "min_p": sampling.min_p}
        fields |= {"repeat_penalty": sampling.repeat_penalty, "repeat_last_n": sampling.repeat_last_n}
    elif program in (VLLM, SGLANG):  # -1 turns top_k off there
        fields |= {"top_k": sampling.top_k or -1, "min_p": sampling.min_p}
        fields["repetition_penalty"] = sampling.repeat_penalty
    return fields


def left_out(program: str) -> str:
    """What of the sampling such a server does not take, for the person; "" where it takes all. vLLM and SGLang count
    all tokens for the repeat penalty, not the last ones."""
    return "" if program in (LLAMA, VLLM, SGLANG) else "top_k, min_p and the repeat penalty are left to the server"


@dataclass(slots=True)
class Sent:
    """What a server has read of each of the last chats, the newest last: its messages with the reply, and whether that
    was written with reasoning, which is not sent back."""

    chats: list[tuple[tuple[Said, ...], bool]] = field(default_factory=list)

    def cut(self, now: Sequence[Said]) -> str | None:
        """Why the server cannot find all of what it had of this chat: see `Usage.cut`."""
        before, thought = self._of(now)
        common = _common(before, now)
        if not before or common >= min(len(before), len(now)):
            return "reasoning" if thought and before and common == len(before) else None
        return "edited" if _system(before) == _system(now) else "system"

    def remember(self, messages: Sequence[Said], reply: str) -> None:
        """This was read, and answered with `reply`."""
        before, _ = self._of(messages)
        self.chats = [chat for chat in self.chats if chat[0] != before][1 - _MOST_REMEMBERED :]
        past = messages[:-1] if messages[-1][0] == "assistant" else messages
        self.chats.append(((*past, ("assistant", _answer(reply))), _answer(reply) != reply))

    def _of(self, now: Sequence[Said]) -> tuple[tuple[Said, ...], bool]:
        """What was sent of the same chat: what begins alike, whatever its system prompt."""
        lengths = [_common(_spoken(messages), _spoken(now)) for messages, _ in self.chats]
        best = max(range(len(lengths)), key=lambda index: (lengths[index], index), default=None)
        return self.chats[best] if best is not None and lengths[best] else ((), False)


def _common(one: Sequence[Said], other: Sequence[Said]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _system(messages: Sequence[Said]) -> str:
    return messages[0][1] if messages and messages[0][0] == "system" else ""


def _spoken(messages: Sequence[Said]) -> Sequence[Said]:
    return messages[1:] if messages and messages[0][0] == "system" else messages
