"""Summaries in the words of seventy real templates: what is asked for one keeps the ids of the chat, and one that
stands is read once, in the system prompt or, where a template takes none, in front of what the person says.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_vocabulary import BOS, EOS, WORDS, ToyVocabulary

from kvchat.backend.values import PromptMessage
from kvchat.engine.history import build_prompt
from kvchat.engine.summaries import BEGUN, question
from kvchat.engine.template import choose_template

FOLDER = Path(__file__).parents[1] / "data" / "templates"
TEMPLATES = sorted(file.stem for file in FOLDER.glob("*.jinja"))
NO_SYSTEM = "google-gemma-2-2b-it"  # it raises "System role not supported"
SUMMARY = "Summary of the earlier conversation:\nAda keeps bees (7)."


def told(ids: tuple[int, ...], vocabulary: ToyVocabulary) -> str:
    """The text of ids."""
    control = {number: text.encode() for text, number in vocabulary.control.items()}
    pieces = (
        control[token] if token in control else WORDS[token - 2000].encode() if token >= 2000 else bytes([token - 1000])
        for token in ids
    )
    return b"".join(pieces).decode("utf-8", "replace")


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_question_for_a_summary_keeps_the_ids_of_the_chat(name: str) -> None:
    template, _, _ = choose_template((FOLDER / f"{name}.jinja").read_text(), BOS, EOS)
    vocabulary = ToyVocabulary()

    def build(messages: list[PromptMessage], *, continued: bool = False) -> tuple[tuple[int, ...], ...]:
        built = build_prompt(
            messages,
            template=template,
            tokenizer=vocabulary,
            history="append",
            clock=1.0e9,
            continue_reply=continued,
        )
        assert built.past == sum(len(message.ids or ()) for message in messages)
        return built.segments

    messages = [PromptMessage("system", SUMMARY, ()), PromptMessage("user", "And then?")]
    first = build(messages)[1]
    text = told(first, vocabulary)
    assert text.count(SUMMARY) == 1
    assert text.index(SUMMARY) < text.index("And then?")
    messages[1:] = [
        PromptMessage("user", "And then?", first),
        PromptMessage("assistant", "Hm.", vocabulary.sampled("Hm.")),
    ]
    asked = [*messages, PromptMessage("user", question(100)), PromptMessage("assistant", BEGUN)]
    segments = build(asked, continued=True)
    assert segments[1] == first
    assert told(segments[3], vocabulary).count(question(100)) == 1
    assert told(segments[4], vocabulary) == BEGUN


def test_a_template_without_a_system_role() -> None:
    """The same turn of the person has both."""
    template, _, _ = choose_template((FOLDER / f"{NO_SYSTEM}.jinja").read_text(), BOS, EOS)
    assert not template.system_role
    vocabulary = ToyVocabulary()
    messages = [PromptMessage("system", SUMMARY, ()), PromptMessage("user", "And then?")]
    prompt = build_prompt(messages, template=template, tokenizer=vocabulary, history="append", clock=0.0)
    assert f"<start_of_turn>user\n{SUMMARY}\n\nAnd then?<end_of_turn>" in told(prompt.ids, vocabulary)
