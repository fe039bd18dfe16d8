"""The branch of a conversation that is shown, as Markdown for people to read. Owns that form; nothing reads it back.

It may end on a terminal, so it is cleaned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from kvchat.clean import clean, clean_line
from kvchat.formats.transcript import Transcript, TranscriptMessage, branch

_ENDS = {
    None: "not finished",
    "length": "ended at the limit of new tokens",
    "context": "ended because the context was full",
    "cancelled": "stopped",
    "error": "ended by an error",
    "died": "ended because the engine died",
}


def write_markdown(transcript: Transcript) -> str:
    """The conversation as text."""
    return "\n".join(_lines(transcript)) + "\n"


def _lines(transcript: Transcript) -> Iterator[str]:
    shown = branch(transcript)
    others = len(transcript.messages) - len(shown)
    yield f"# {clean_line(transcript.title) or 'Untitled'}"
    yield ""
    yield _clock(transcript.created) + _elsewhere(others)
    if transcript.system:
        yield from ("", "## System", "", clean(transcript.system).strip("\n"))
    for message in shown:
        yield from ("", f"## {_who(message)} · {_clock(message.created)}", "", clean(message.text).strip("\n"))
        if message.role == "assistant" and message.finish != "stop":
            yield from ("", f"*{_ENDS.get(message.finish, clean_line(str(message.finish)))}*")


def _elsewhere(others: int) -> str:
    if others == 1:
        return " · 1 message of another branch is not here"
    return f" · {others} messages of other branches are not here" if others else ""


def _who(message: TranscriptMessage) -> str:
    return "You" if message.role == "user" else clean_line(message.model) or "Assistant"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
