"""What of a draft stays however the person goes on: by many templates, and in real vocabularies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from toy_vocabulary import BOS, EOS, ToyVocabulary, with_ids

from kvchat.backend.values import PromptMessage
from kvchat.engine.history import build_prompt
from kvchat.engine.stable import continued, stable_part
from kvchat.engine.template import ChatTemplate

HERE = Path(__file__).parent
TEMPLATES = sorted((HERE.parent / "data" / "templates").glob("*.jinja"))
MESSAGE = "Ask the user:\n\n what is the answer, as it stands? <s>?"


def typed(template: ChatTemplate, past: list[PromptMessage], *, history: str, step: int) -> tuple[int, int, int]:
    """Types the message, `step` letters at a time: tokens of the prompt in the end, those that were stable before the
    last letter, those of the past. Every stable part is the beginning of the prompt that is sent."""
    vocabulary = ToyVocabulary()

    def ids_of(text: str) -> tuple[int, ...]:
        messages = (*past, PromptMessage("user", text))
        return build_prompt(messages, template=template, tokenizer=vocabulary, history=history, clock=0.0).ids

    sent, stable = ids_of(MESSAGE), 0
    for end in reversed(range(len(MESSAGE) - 1, 0, -step)):
        draft = MESSAGE[:end]
        ids = ids_of(draft)
        stable = stable_part(ids, draft, ids_of, done=False)
        assert ids[:stable] == sent[:stable], draft
    return len(sent), stable, sum(len(message.ids or ()) for message in past)


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_of_every_template_the_stable_part_is_sent(file):
    template = ChatTemplate(file.read_text(), bos=BOS, eos=EOS)
    past: list[PromptMessage] = []
    for history, step in (("append", 1), ("exact", 3)):
        tokens, stable, before = typed(template, past, history=history, step=step)
        assert stable < tokens
        assert history == "exact" or stable > before
        vocabulary = ToyVocabulary()
        messages = [PromptMessage("user", "Question?")]
        prompt = build_prompt(messages, template=template, tokenizer=vocabulary, history="append", clock=0.0)
        past = [
            *with_ids(messages, prompt.segments),
            PromptMessage("assistant", "Answer.", vocabulary.sampled("Answer.")),
        ]


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_in_a_real_vocabulary(request, name):
    """Merges of byte pairs behind a splitting rule, and pieces with scores over the whole text."""
    model = request.getfixturevalue(name)
    done = subprocess.run(
        [sys.executable, HERE / "stable_probe.py", model], capture_output=True, text=True, check=True, timeout=240
    )
    tokens, stable, wrong, drafts = json.loads(done.stdout)
    assert wrong == []
    assert drafts > 190
    assert tokens - 20 < stable < tokens


@pytest.mark.parametrize(
    ("draft", "kept"),
    [
        ("tell me wha", "tell me"),
        ("tell me ", "tell me"),
        ("tell me: ", "tell me:"),
        ("2 *", "2"),
        ("if (a <", "if (a"),
        ("a list:\n\n  - it", "a list:\n\n  -"),
        ("言葉" * 40, "言葉" * 36),
        ("Wha", ""),
        ("", ""),
    ],
)
def test_what_may_grow_is_left_out(draft, kept):
    more = {text.removeprefix(kept) for text in continued(draft, done=False)}
    assert all(text.startswith(kept) for text in continued(draft, done=False))
    assert len({text[0] for text in more}) == len(more) == 3


def test_when_the_draft_has_rested_its_last_word_is_at_its_end():
    assert continued("tell me what", done=True) == ("tell me what a", "tell me what\n", "tell me what.")
