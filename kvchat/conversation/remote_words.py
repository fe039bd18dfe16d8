"""What is said of answers that came from a server. Owns those words, for the app and for commands alike; pure."""

from __future__ import annotations

from kvchat.backend.choices import REMOTE
from kvchat.backend.values import Remote, Usage

UNTOLD = "reuse unknown: the server does not say"


def reuse_is_known(usage: Usage) -> bool:
    """Whether it was said how much of the prompt was reused: an engine of this machine always does."""
    return usage.remote is None or (usage.prompt_tokens > 0 and usage.reused + usage.computed == usage.prompt_tokens)


def server_of(path: str) -> str:
    """The name of a server by what stands in place of a model's path; "" for a model of this machine."""
    return path.removeprefix(REMOTE) if path.startswith(REMOTE) else ""


def place_of(remote: Remote) -> str:
    """Where a server is, and what that means for what is sent to it."""
    if not remote.leaves:
        return f"{remote.host}, on this machine"
    return f"text leaves this machine{', not encrypted' if remote.bare else ''}: {remote.host}"
