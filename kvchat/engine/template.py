"""Chat templates: the conversation as the text that a model was trained on.

Owns the choice of the template (the model file's own, or ChatML), what is known about it (does it take a system
message, how does it want content), and rendering. Must not know about tokens or about what was rendered before.

The names that templates find are those that llama.cpp gives them (common/chat.cpp). `tools` and `documents` are left
undefined and not None: of seventy real templates three iterate over them at once. The clock that they see is a value of
the chat, so that a prompt does not change overnight.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvchat.backend.values import Role
from kvchat.engine.sandbox import MAX_SOURCE, TEMPLATE_ERRORS, BudgetError, MeteredEnvironment, fail
from kvchat.errors import KvchatError

GGUF_NAME = "GGUF"
FALLBACK_NAME = "ChatML (fallback)"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
CHATML_STOPS = ("<|im_end|>", "<|im_start|>")

_HINT = "another model file, or another build of this one, may have a working chat template"
_PROBE_TIME = 1_700_000_000.0
_SYSTEM, _USER, _REPLY, _LAST = ("48151623421", "48151623422", "48151623423", "48151623424")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one party says, as a template sees it."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class _Form:
    """How a template wants its input. `parts`: content as a list of typed parts. `functions`: with the variables that
    llama.cpp gives to templates of Firefunction."""

    parts: bool = False
    functions: bool = False


_FORMS = (_Form(), _Form(parts=True), _Form(functions=True))


class ChatTemplate:
    """One compiled template. `system_role` says whether it takes a system message; `stops` are texts that end a reply
    where the vocabulary has no token for them.

    Raises KvchatError if `source` does not compile or cannot render a conversation. Not for several threads at once.
    """

    def __init__(self, source: str, *, bos: str, eos: str, name: str = GGUF_NAME, stops: tuple[str, ...] = ()) -> None:
        self.name = name
        self.stops = stops
        self._variables = {"bos_token": bos, "eos_token": eos}
        self._environment = MeteredEnvironment()  # one budget for all that follows
        self._compile(source)
        self._form = self._find_form()
        self.system_role = self._takes_system()

    def render(self, turns: Sequence[Turn], clock: float) -> str:
        """The text of the conversation with the beginning of the next reply. `clock`: seconds since the epoch.

        Raises KvchatError with the template's own words when it refuses the conversation, and when it takes more time
        or memory than any template needs.
        """
        self._environment.start(len(turns))
        return self._render(turns, clock, self._form)

    def _compile(self, source: str) -> None:
        if len(source) > MAX_SOURCE:
            raise KvchatError(f"the chat template is longer than {MAX_SOURCE:,} characters", _HINT)
        try:
            self._compiled = self._environment.from_string(source)
        except TEMPLATE_ERRORS as error:
            raise KvchatError(f"the chat template does not compile: {_words(error)}", _HINT) from error

    def _render(self, turns: Sequence[Turn], clock: float, form: _Form) -> str:
        try:
            return self._compiled.render(self._context(turns, clock, form))
        except BudgetError as error:
            raise KvchatError(f"the chat template takes too much: {_words(error)}", _HINT) from error
        except TEMPLATE_ERRORS as error:
            raise KvchatError(f"the chat template refuses this conversation: {_words(error)}", _HINT) from error

    def _context(self, turns: Sequence[Turn], clock: float, form: _Form) -> dict[str, Any]:
        context: dict[str, Any] = {
            **self._variables,
            "messages": [_message(turn, form) for turn in turns],
            "add_generation_prompt": True,
            "raise_exception": fail,
            "strftime_now": datetime.fromtimestamp(clock).strftime,
        }
        if form.functions:
            context |= {"functions": "", "datetime": time.strftime("%b %d %Y %H:%M:%S GMT", time.gmtime(clock))}
        return context

    def _find_form(self) -> _Form:
        turns = (Turn("user", _USER), Turn("assistant", _REPLY), Turn("user", _LAST))
        reasons = []
        for form in _FORMS:
            try:
                first, second = (self._render(turns[:n], _PROBE_TIME, form) for n in (1, 3))
                if _USER in first and _LAST in second:
                    return form
                reasons.append("the chat template leaves out what the user says")
            except KvchatError as error:
                reasons.append(error.message)
                if isinstance(error.__cause__, BudgetError):
                    break
        raise KvchatError(reasons[0], _HINT)

    def _takes_system(self) -> bool:
        turns = (Turn("system", _SYSTEM), Turn("user", _USER))
        try:
            text = self._render(turns, _PROBE_TIME, self._form)
        except KvchatError:
            return False  # a probe: refusing is the answer
        return _SYSTEM in text and _USER in text


def choose_template(source: str | None, bos: str, eos: str) -> tuple[ChatTemplate, str, str | None]:
    """The template to use, its name, and why it is not the model file's own (None if it is).

    `source`: the template in the model file, None if there is none. `bos`, `eos`: the texts of these tokens, or "".
    """
    if source is None or not source.strip():
        why = "the model file has no chat template"
    else:
        try:
            return ChatTemplate(source, bos=bos, eos=eos), GGUF_NAME, None
        except KvchatError as error:
            why = error.message
    fallback = ChatTemplate(CHATML, bos=bos, eos=eos, name=FALLBACK_NAME, stops=CHATML_STOPS)
    return fallback, FALLBACK_NAME, f"{why}; ChatML is used instead"


def _message(turn: Turn, form: _Form) -> dict[str, Any]:
    content = [{"type": "text", "text": turn.text}] if form.parts else turn.text
    return {"role": turn.role, "content": content}


def _words(error: BaseException) -> str:
    """The error in one line of bounded length: a template can put anything into its message."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 300 else words[:300] + "..."
