"""The stable part of drafts in a real vocabulary: `stable_probe.py MODEL`.

A message is typed character by character, in the model's own template, after an exchange. Prints JSON: [tokens of the
prompt up to the end of the message, tokens that were stable at the last character, drafts of which the stable part is
not the beginning of the prompt that is sent in the end, drafts].
"""

import json
import sys

from kvchat.backend.values import EngineConfig, PromptMessage
from kvchat.engine import llama
from kvchat.engine.history import build_prompt
from kvchat.engine.model import Model
from kvchat.engine.stable import stable_part

MESSAGE = (
    "Don't trust 3.14159 as a value of pi: it's only an approximation, isn't it?\n\nSee also:\n  - `x = y**2`\n"
    "  - naïve café, 日本語の文章、ありがとう。 Straßenbahn 🙂 ok...\n\tif (a <= b) { return foo_bar(baz[10]); }"
)
PAST = [PromptMessage("system", "Be brief."), PromptMessage("user", "Hello"), PromptMessage("assistant", "Hi there!")]


def main() -> None:
    llama.start(lambda text, error: None)
    model = Model(EngineConfig(sys.argv[1], threads=1, extra_buffers=False), lambda fraction: True)

    def ids_of(text: str) -> tuple[int, ...]:
        messages = (*PAST, PromptMessage("user", text))
        return build_prompt(messages, template=model.template, tokenizer=model, history="append", clock=0.0).ids

    sent = ids_of(MESSAGE)
    wrong, stable = [], 0
    for end in range(1, len(MESSAGE) + 1):
        draft = MESSAGE[:end]
        ids = ids_of(draft)
        stable = stable_part(ids, draft, ids_of, done=False)
        if ids[:stable] != sent[:stable]:
            wrong.append(draft[-12:])
    print(json.dumps([len(sent), stable, wrong, len(MESSAGE)]))


main()
