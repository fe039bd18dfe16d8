"""The branch of a conversation that is shown, as Markdown for people to read. Owns that form; nothing reads it back.

It may end on a terminal, so it is cleaned. A message that ends inside a code block, as one that was cut off does, does
not take those after it into that block.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from kvchat.clean import clean, clean_line
from kvchat.formats.transcript import Transcript, TranscriptMessage, branch

_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)")
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
        yield from ("", "## System", "", _closed(transcript.system))
    for message in shown:
        yield from ("", f"## {_who(message)} · {_clock(message.created)}", "", _closed(message.text))
        if message.role == "assistant" and message.finish != "stop":
            yield from ("", f"*{_ENDS.get(message.finish, clean_line(str(message.finish)))}*")


def _closed(text: str) -> str:
    """A text, with the fence that it leaves open closed: as far to the right, since it may stand in a list."""
    text, opened = clean(text).strip("\n"), ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line.expandtabs(4))
        if found is None:
            continue
        indent, fence, after = found.groups()
        if not opened:
            opened = indent + fence
        elif fence.startswith(opened.lstrip()) and not after.strip():
            opened = ""
    return f"{text}\n{opened}" if opened else text


def _elsewhere(others: int) -> str:
    if others == 1:
        return " · 1 message of another branch is not here"
    return f" · {others} messages of other branches are not here" if others else ""


def _who(message: TranscriptMessage) -> str:
    return "You" if message.role == "user" else clean_line(message.model) or "Assistant"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
