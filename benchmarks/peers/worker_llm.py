"""`llm`'s SmolLM2 plugin, asked in the way in which `llm chat` asks it, in the environment of `llm`.

Called is `execute`, what `llm` calls: only so an answer can end after a number of tokens, which the plugin has no
option for. Context (512), threads (half of the cores, all for prompts) and cache are the plugin's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import llm
from wire import Wire


def conversation(messages: list[dict[str, str]], model: Any) -> SimpleNamespace:
    """The turns before the last message, as the plugin reads them."""
    system, *turns = messages[:-1]
    pairs = zip(turns[::2], turns[1::2], strict=True)
    responses = [
        SimpleNamespace(
            prompt=llm.Prompt(asked["content"], model=model, system=system["content"]),
            text=lambda said=said: said["content"],
        )
        for asked, said in pairs
    ]
    return SimpleNamespace(responses=responses)


def ask(wire: Wire, model: Any, command: dict[str, Any]) -> None:
    """One turn, broken off after as many tokens as are wanted."""
    messages = command["messages"]
    prompt = llm.Prompt(messages[-1]["content"], model=model, system=messages[0]["content"])
    pieces: list[str] = []
    try:
        for piece in model.execute(prompt, True, None, conversation(messages, model)):
            wire.tell("text")
            pieces.append(piece)
            if len(pieces) == command["tokens"]:
                break
    except ValueError as error:
        wire.tell("failed", why=str(error))
        return
    wire.tell("done", tokens=len(pieces), prompt=None, computed=None, text="".join(pieces))


def main() -> None:
    wire = Wire()
    model = llm.get_model("SmolLM2")
    model.get_model()  # loaded before the first question, as the others are
    wire.tell("ready")
    for command in wire.commands():
        ask(wire, model, command)


if __name__ == "__main__":
    main()
