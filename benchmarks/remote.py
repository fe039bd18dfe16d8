"""A chat of ten turns on a server: what it had of each prompt, and how fast it answered.

python benchmarks/remote.py http://127.0.0.1:8080 [--model NAME] [--turns 10] [--predict 48]
"""

from __future__ import annotations

import argparse
import queue

from kvchat.backend.choices import EngineConfig
from kvchat.backend.protocol import Event, Generate, Ready, TextDelta, TurnFinished
from kvchat.backend.remote import RemoteEngine
from kvchat.backend.values import PromptMessage, Sampling
from kvchat.config_remote import remote_named
from kvchat.conversation.remote_words import reuse_is_known

QUESTIONS = (
    "Name three colours.",
    "Which of them is the sky?",
    "And which one is grass?",
    "What is a river?",
    "Name a big one.",
    "Where does it end?",
    "What is rain?",
    "Who needs it?",
    "What is snow?",
    "Thank you. Say goodbye.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", default="")
    parser.add_argument("--turns", type=int, default=len(QUESTIONS))
    parser.add_argument("--predict", type=int, default=48)
    given = parser.parse_args()
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = RemoteEngine(EngineConfig("").on(remote_named(given.url, (), given.model)), events.put)
    engine.start()
    ready = events.get()
    if not isinstance(ready, Ready):
        raise SystemExit(str(ready))
    print(f"{ready.model.name}; {'; '.join(ready.notes)}")
    print("turn  prompt  reused  computed  first, s  tokens/s  cut")
    messages: list[PromptMessage] = []
    for turn in range(given.turns):
        messages.append(PromptMessage("user", QUESTIONS[turn % len(QUESTIONS)]))
        sampling = Sampling(temperature=0, max_tokens=given.predict)
        engine.submit(Generate(f"t{turn}", tuple(messages), sampling))
        text, event = "", events.get()
        while not isinstance(event, TurnFinished):
            text += event.text if isinstance(event, TextDelta) else ""
            event = events.get()
        if event.failure is not None:
            raise SystemExit(event.failure.message)
        messages.append(PromptMessage("assistant", text))
        usage = event.usage
        known = reuse_is_known(usage)
        speed = usage.decode_tokens / usage.decode_seconds if usage.decode_seconds else 0.0
        told = f"{usage.reused:>6}  {usage.computed:>8}" if known else f"{'?':>6}  {'?':>8}"
        print(
            f"{turn + 1:>4}  {usage.prompt_tokens:>6}  {told}  {usage.ttft_seconds:>8.3f}  {speed:>8.1f}  {usage.cut}"
        )
    engine.close()


if __name__ == "__main__":
    main()
