"""llama-cpp-python's own `Llama`, as its documentation shows it for chats: `create_chat_completion`, streamed, with
`set_cache(LlamaRAMCache())` or `LlamaDiskCache`, of 2 GiB as they come.

`cache` "none": what `Llama` has by itself, the prompt before this one. `draft`: `LlamaPromptLookupDecoding`, with as
many tokens as its documentation proposes for a CPU.
"""

from __future__ import annotations

from typing import Any

from llama_cpp import GGML_TYPE_F16, GGML_TYPE_Q8_0, Llama, LlamaDiskCache, LlamaRAMCache
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from wire import Wire, setup

_TYPES = {"f16": GGML_TYPE_F16, "q8_0": GGML_TYPE_Q8_0}


def loaded(given: dict[str, Any]) -> Llama:
    """The model, with its cache."""
    batches = {"n_batch": given["batch"], "n_ubatch": given["batch"]} if given["batch"] else {}
    llama = Llama(
        given["model"],
        n_ctx=given["context"],
        n_threads=given["threads"],
        n_threads_batch=given["threads"],
        flash_attn=given["flash"],
        type_k=_TYPES[given["type"]],
        type_v=_TYPES[given["type"]],
        draft_model=LlamaPromptLookupDecoding(num_pred_tokens=2) if given["draft"] else None,
        verbose=False,
        **batches,
    )
    if given["cache"] == "ram":
        llama.set_cache(LlamaRAMCache())
    elif given["cache"] == "disk":
        llama.set_cache(LlamaDiskCache(given["home"]))
    return llama


def ask(wire: Wire, llama: Llama, command: dict[str, Any]) -> None:
    """One turn. The generator is read to its end: after the last token the state goes into the cache."""
    text, tokens = "", 0
    try:
        for chunk in llama.create_chat_completion(
            command["messages"], stream=True, temperature=0.0, max_tokens=command["tokens"]
        ):
            piece = chunk["choices"][0]["delta"].get("content")
            if piece:
                wire.tell("text")
                text, tokens = text + piece, tokens + 1
    except ValueError as error:  # how it says that the context is too small
        wire.tell("failed", why=str(error))
        return
    wire.tell("done", tokens=tokens, prompt=None, computed=None, text=text)


def main() -> None:
    wire = Wire()
    llama = loaded(setup())
    wire.tell("ready")
    for command in wire.commands():
        ask(wire, llama, command)
    llama.close()


if __name__ == "__main__":
    main()
