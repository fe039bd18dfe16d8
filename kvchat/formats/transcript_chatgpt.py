"""A conversation in ChatGPT's `conversations.json`, read. Owns that format; must not know where the object stands.

An object has `mapping`, from the id of a node to the node with `message`, `parent` and `children`, and `current_node`.
Written down from published exports, since there is no specification: what is not there is done without, what is of
another type than it always is makes the conversation broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvchat.clean import clean, clean_line
from kvchat.errors import FormatError
from kvchat.formats.transcript import Transcript, TranscriptMessage, checked, moment
from kvchat.formats.transcript_tree import Node, grow

_REASONING = ("thoughts", "reasoning_recap")
_ENDS = {"max_tokens": "length", "interrupted": "cancelled"}


def read_chatgpt(found: Mapping[str, Any]) -> Transcript:
    """The conversation in this object. FormatError when it is broken."""
    mapping = _is(found.get("mapping"), dict, "its mapping")
    above = _above(mapping)
    nodes = {name: _node(name, node, above.get(name)) for name, node in mapping.items()}
    times = [node.created for node in nodes.values() if node.created]
    created = moment(found.get("create_time")) or min(times, default=0.0)
    grown = grow(nodes, created)
    shown = grown.shown(found.get("current_node"))
    return checked(
        Transcript(
            source="chatgpt",
            id=str(found.get("conversation_id") or found.get("id") or ""),
            title=clean_line(str(found.get("title") or "")),
            created=created,
            updated=moment(found.get("update_time")) or max(times, default=created),
            messages=tuple(grown.messages),
            head=shown.id if shown else None,
            clock=created,
            model=shown.model if shown else "",
            skipped=dict(grown.skipped),
        )
    )


def _above(mapping: Mapping[str, Any]) -> dict[str, str]:
    """The parent of each node, as it says itself, else as the parent says."""
    above: dict[str, str] = {}
    for name, node in mapping.items():
        for child in _is(_is(node, dict, "a node").get("children") or [], list, "the children of a node"):
            above.setdefault(str(child), name)
    return above | {name: str(node["parent"]) for name, node in mapping.items() if node.get("parent")}


def _node(name: str, node: Mapping[str, Any], parent: str | None) -> Node:
    if node.get("message") is None:
        return Node(name, parent, None)
    message = _is(node["message"], dict, "a message")
    created = moment(message.get("create_time"))
    author = _is(message.get("author"), dict, "the author of a message")
    content = _is(message.get("content"), dict, "the content of a message")
    role, left_out = author.get("role"), _left_out(message, author, content)
    if left_out:
        return Node(name, parent, created, left_out=left_out)
    text, also = _text(content)
    if not text.strip():
        return Node(name, parent, created, also=also)
    metadata = message.get("metadata") if isinstance(message.get("metadata"), dict) else {}
    spoken = TranscriptMessage(
        id=name,
        parent=None,
        role="user" if role == "user" else "assistant",
        text=clean(text),
        created=0.0,
        finish="" if role == "user" else _finish(message, metadata),
        model="" if role == "user" else clean_line(str(metadata.get("model_slug") or "")),
    )
    return Node(name, parent, created, spoken, also=also)


def _left_out(message: Mapping[str, Any], author: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """As what a message is left out, "" for one that is kept."""
    role, kind = author.get("role"), content.get("content_type")
    if role in ("system", "tool"):
        return str(role)
    if role not in ("user", "assistant"):
        raise FormatError(f"a message is by {clean_line(str(role)[:40])!r}")
    if kind == "user_editable_context":
        return "system"
    if role == "assistant" and message.get("recipient") not in (None, "all"):
        return "tool"
    return "reasoning" if kind in _REASONING else ""


def _text(content: Mapping[str, Any]) -> tuple[str, list[str]]:
    """What a content says, and what of it is left out."""
    kind = content.get("content_type")
    if "parts" not in content:
        text = content.get("text", "")
        text = text if isinstance(text, str) else ""
        return (f"```\n{text}\n```" if kind == "code" and text else text), []
    pieces: list[str] = []
    also: list[str] = []
    for part in _is(content["parts"] or [], list, "the parts of a message"):
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            pieces.append(text)
        elif isinstance(part, dict):
            also.append("attachments")
        elif part is not None:
            raise FormatError("a part of a message is no text")
    return "\n\n".join(filter(None, pieces)), also


def _finish(message: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    details = metadata.get("finish_details")
    kind = details.get("type") if isinstance(details, dict) else None
    if kind is None and message.get("status") == "in_progress":
        return "cancelled"
    return _ENDS.get(str(kind), "stop")


def _is(value: Any, kind: type[Any], what: str) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"{what} is not what it should be")
    return value
