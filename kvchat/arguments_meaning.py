"""Which words of a command line mean something to which command. Owns that; must not parse.

A flag may stand before the name of the command, where the parser of the app takes it: by this it is found out that it
has no effect.
"""

from __future__ import annotations

from kvchat.config_options import BY_KEY, ENGINE_KEYS

PLAN_KEYS = (
    *("ctx_size", "cache_type_k", "cache_type_v", "flash_attn", "n_gpu_layers"),
    *("kv_offload", "batch_size", "ubatch_size", "lora", "parallel"),
)
SCREEN_KEYS = ("theme", "mouse", "follow", "auto_title", "read_ahead")
CHAT_KEYS = tuple(key for key in BY_KEY if key not in (*ENGINE_KEYS, *SCREEN_KEYS))
_OPENING = ("chat", "continue_last")

# By command, or command and action; "" is the app.
MEANING: dict[str, frozenset[str]] = {
    "": frozenset((*ENGINE_KEYS, *CHAT_KEYS, *SCREEN_KEYS, *_OPENING, "plain")),
    "ask": frozenset((*ENGINE_KEYS, *CHAT_KEYS, *_OPENING, "resume", "n", "json", "question", "prefix")),
    "chats": frozenset(
        ("action", "name", "json", "trash", "query", "title", "everything", "form", "output", "files", "purge", "yes")
    ),
    "models": frozenset(("action", "name", "json", "offline", "folders", "sha256", "yes")),
    "kv": frozenset(("action", "name", "json", "to", "to_k", "to_v", "kv_budget")),
    "kv pin": frozenset(
        (
            *(key for key in ENGINE_KEYS if key not in ("model_draft", "parallel", "favour")),
            *("action", "name", "json", "files", "prefix_name", "replace", "system"),
            *("kv_budget", "kv_type_disk", "fit"),
        )
    ),
    "plan": frozenset((*PLAN_KEYS, "name", "model_draft", "json")),
    "bench": frozenset(
        (
            *(*ENGINE_KEYS, "parts", "json", "fit", "quick", "types", "depths", "repeat", "html"),
            *("chat", "text"),
        )
    ),
    "paths": frozenset(("json",)),
    "completions": frozenset(("shell",)),
    "doctor": frozenset((*ENGINE_KEYS, "json")),
}
