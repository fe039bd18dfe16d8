"""What of a prompt stands before the person's words: over seventy real templates, and with a real vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from driver import Driver
from test_history import CLOCK, MOVES_THE_SYSTEM_PROMPT, TEMPLATES, template
from toy_vocabulary import BOS, ToyVocabulary

from kvchat.backend.protocol import PromptReady
from kvchat.backend.values import History, PromptMessage
from kvchat.engine.history import build_prompt
from kvchat.engine.system_part import SystemPart
from kvchat.engine.template import CHATML, ChatTemplate

SYSTEM, USER = "Be a pirate, always.", "Hello there"


def parts(
    chosen: ChatTemplate, system: str, *more: PromptMessage, history: History = "append", **vocabulary: object
) -> tuple[str, str]:
    """The text of the part, and of the rest."""
    words = ToyVocabulary(**vocabulary)  # type: ignore[arg-type]
    first = (PromptMessage("system", system, ()),) if system else ()
    messages = (*first, PromptMessage("user", USER), *more)
    prompt = build_prompt(messages, template=chosen, tokenizer=words, history=history, clock=CLOCK)
    count = SystemPart(chosen, words).tokens(prompt.ids, messages, CLOCK)
    return words.decode(prompt.ids[:count]), words.decode(prompt.ids[count:])


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_part_has_the_system_prompt_and_no_word_of_the_person(name: str) -> None:
    part, rest = parts(template(name), SYSTEM)
    assert SYSTEM in part and SYSTEM not in rest
    assert USER in rest and USER not in part


@pytest.mark.parametrize("name", TEMPLATES)
def test_without_a_system_prompt_it_is_what_the_template_begins_with(name: str) -> None:
    part, rest = parts(template(name), "")
    assert part.startswith(BOS)
    assert USER in rest and USER not in part


@pytest.mark.parametrize("history", ["append", "exact"])
@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != MOVES_THE_SYSTEM_PROMPT])
def test_it_stays_the_same_in_later_turns(name: str, history: History) -> None:
    later = (PromptMessage("assistant", "Ahoy."), PromptMessage("user", "And now?"))
    assert parts(template(name), SYSTEM, *later, history=history)[0] == parts(template(name), SYSTEM)[0]


def test_a_system_prompt_that_moved_is_not_at_the_beginning() -> None:
    later = (PromptMessage("assistant", "Ahoy."), PromptMessage("user", "And now?"))
    chosen = template(MOVES_THE_SYSTEM_PROMPT)
    assert parts(chosen, SYSTEM, *later, history="exact")[0] == ""


@pytest.mark.parametrize(
    "system",
    ["system", "user", "  spaced out \n", "Say <|im_end|> and <s>.", "<|im_start|>user", "\n", "a" * 5_000, "键 🚀"],
)
def test_any_system_prompt(system: str) -> None:
    chosen = ChatTemplate(CHATML, bos="", eos="")
    part, rest = parts(chosen, system, bos=None, add_bos=False, bos_text="")
    assert part == f"<|im_start|>system\n{system}"
    assert rest.startswith(f"<|im_end|>\n<|im_start|>user\n{USER}")


def test_bos_belongs_to_it() -> None:
    assert parts(ChatTemplate(CHATML, bos="", eos=""), SYSTEM)[0] == f"{BOS}<|im_start|>system\n{SYSTEM}"


def test_ids_of_another_beginning_have_no_part() -> None:
    """The chat's ids were made with another system prompt."""
    chosen, words = template("Qwen-Qwen3-0.6B"), ToyVocabulary()
    message = PromptMessage("user", USER)
    ids = build_prompt((message,), template=chosen, tokenizer=words, history="append", clock=CLOCK).ids
    part = SystemPart(chosen, words)
    assert part.tokens(ids, (PromptMessage("system", SYSTEM, ()), message), CLOCK) == 0
    assert part.tokens((), (message,), CLOCK) == 0


def test_a_real_prompt(start: Callable[..., Driver]) -> None:
    """The same count in every turn, told with the prompt and kept with the usage. The two system prompts differ by
    their own tokens only."""
    driver = start()
    counts = []
    for system in ("Hi.", "Hi. Hi. Hi."):
        driver.messages = [PromptMessage("system", system, ())]
        for _ in range(2):
            answer = driver.ask("Hello")
            told = next(event.system_tokens for event in answer.events if isinstance(event, PromptReady))
            assert answer.usage.system_tokens == told
            counts.append(told)
    first, again, longer, longer_again = counts
    assert (first, longer) == (again, longer_again)
    assert longer - first == 4  # " Hi" and "." twice
