"""A conversation from the web interface of llama.cpp's server, read. Owns that format; must not know where it stands.

Its export is one JSON record a line, a `session` with the properties of the conversation, then a `message` for each
message; before that it was an object {"conv", "messages"}, or an array of such. Messages have `parent`, and times in
milliseconds; the root has the type "root" and says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kvchat.clean import clean, clean_line
from kvchat.errors import FormatError
from kvchat.formats.transcript import Transcript, TranscriptMessage, checked, moment
from kvchat.formats.transcript_tree import Node, grow

_MILLISECONDS = 1000.0
_WITH_TEXT = ("TEXT", "context", "PDF", "MCP_PROMPT", "MCP_RESOURCE")


def read_llama(conversation: object, messages: object) -> Transcript:
    """The conversation with these properties and messages. FormatError when it is broken."""
    if not isinstance(conversation, dict) or not isinstance(messages, list):
        raise FormatError("it is not what an export of llama.cpp's server has")
    nodes: dict[str, Node] = {}
    for message in messages:
        node = _node(message)
        if node.id in nodes:
            raise FormatError(f"two messages have the id {clean_line(node.id[:40])!r}")
        nodes[node.id] = node
    times = [node.created for node in nodes.values() if node.created]
    updated = moment(conversation.get("lastModified"), _MILLISECONDS) or max(times, default=0.0)
    created = min(times, default=updated)
    grown = grow(nodes, created)
    shown = grown.shown(conversation.get("currNode"))
    system = _system(messages)
    skipped = grown.skipped - Counter({"system": 1} if system else {})
    return checked(
        Transcript(
            source="llama.cpp",
            id=str(conversation.get("id") or ""),
            title=clean_line(str(conversation.get("name") or "")),
            created=created,
            updated=updated,
            messages=tuple(grown.messages),
            head=shown.id if shown else None,
            system=system,
            clock=created,
            model=shown.model if shown else "",
            pinned_at=updated if conversation.get("pinned") is True else None,
            skipped=dict(skipped),
        )
    )


def _node(message: object) -> Node:
    if not isinstance(message, dict) or message.get("id") is None:
        raise FormatError("a message is not what it should be")
    name, parent = str(message["id"]), message.get("parent")
    above = None if parent is None else str(parent)
    created = moment(message.get("timestamp"), _MILLISECONDS)
    role, text = message.get("role"), message.get("content")
    if message.get("type") == "root":
        return Node(name, above, None)
    if role in ("system", "tool") or message.get("isSynthetic") is True:
        return Node(name, above, created, left_out="system" if role == "system" else "tool")
    if role not in ("user", "assistant") or not isinstance(text, str):
        raise FormatError(f"a message is by {clean_line(str(role)[:40])!r}, or has no text")
    attached, also = _attached(message.get("extra") or [])
    also += ["reasoning"] if message.get("reasoningContent") or message.get("thinking") else []
    text = "\n\n".join(filter(None, (text, *attached)))
    if not text.strip():
        return Node(name, above, created, also=also)
    spoken = TranscriptMessage(
        id=name,
        parent=None,
        role="user" if role == "user" else "assistant",
        text=clean(text),
        created=0.0,
        finish="" if role == "user" else "stop",
        model="" if role == "user" else clean_line(str(message.get("model") or "")),
    )
    return Node(name, above, created, spoken, also=also)


def _attached(extras: object) -> tuple[list[str], list[str]]:
    """The attachments that are text, each in a fence, and as what the others are left out."""
    if not isinstance(extras, list):
        raise FormatError("the attachments of a message are no list")
    texts: list[str] = []
    also: list[str] = []
    for extra in extras:
        content = extra.get("content") if isinstance(extra, dict) and extra.get("type") in _WITH_TEXT else None
        if isinstance(content, str):
            longest = max(map(len, re.findall("`+", content)), default=0)
            fence = "`" * max(3, longest + 1)
            texts.append(f"{clean_line(str(extra.get('name') or 'file'))}\n{fence}\n{content}\n{fence}")
        else:
            also.append("attachments")
    return texts, also


def _system(messages: Sequence[Mapping[str, Any]]) -> str:
    """The first system message: there is one at most, unless branches begin with different ones."""
    texts = (message.get("content") for message in messages if message.get("role") == "system")
    return next((clean(text) for text in texts if isinstance(text, str) and text.strip()), "")
