"""What a turn is asked: its prompt in ids, and the history that this goes on from. Owns the reading of a request; must
not touch cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvchat.backend.protocol import Generate
from kvchat.backend.values import PromptMessage
from kvchat.engine.evicting import excess, prompt_past
from kvchat.engine.history import Prompt, build_prompt
from kvchat.engine.memory import Memory
from kvchat.engine.model import Model
from kvchat.errors import KvchatError
from kvchat.formats.past import Eviction, Numbering, Past


class TooLongError(KvchatError):
    """The prompt does not fit into the context: of what has to be in there, and the first token of an answer, `over`
    tokens have no cell."""

    def __init__(self, over: int, cells: int) -> None:
        super().__init__(
            f"the conversation is {over:,} token{'' if over == 1 else 's'} too long: it takes {over + cells - 1:,},"
            f" the context holds {cells:,}, and one must be left for the answer",
            "take a larger context or a shorter message, or start a new chat",
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was read. `past`: the history of the whole prompt, `numbering` its positions; `thought`: reasoning
    that leaves it now; `system`: tokens of the system prompt; `came`: when, as time.perf_counter tells."""

    request: Generate
    prompt: Prompt
    past: Past
    numbering: Numbering
    thought: Eviction | None
    system: int
    came: float

    @property
    def keeps(self) -> bool:
        """Whether what is computed may be kept on disk."""
        return self.request.keep_kv and not self.request.incognito

    @property
    def tokens(self) -> int:
        """Tokens of the prompt that have cells, or will."""
        return excess(self.past, 1)


def read_request(request: Generate, model: Model, memory: Memory, came: float = 0.0) -> Asked:
    """The prompt of a turn that came at this time. Raises KvchatError where the template does not take it."""
    request = replace(request, messages=tuple(known(message, model) for message in request.messages))
    prompt = build_prompt(
        request.messages,
        template=model.template,
        tokenizer=model,
        history=request.history,
        clock=request.clock,
        continue_reply=request.continue_reply,
    )
    can_evict = bool(memory.layout.parts) and not memory.recurrent
    thoughts = model.past_thoughts if request.history == "append" and can_evict else None
    past, numbering, thought = prompt_past(prompt, request.messages, request.evictions, thoughts)
    system = model.system_part.tokens(prompt.ids, request.messages, request.clock)
    return Asked(request, prompt, past, numbering, thought, system, came)


def known(message: PromptMessage, model: Model) -> PromptMessage:
    """The message, without ids that this vocabulary does not have."""
    size = model.native.vocab_size
    fits = message.ids is None or all(0 <= token < size for token in message.ids)
    return message if fits else replace(message, ids=None)
