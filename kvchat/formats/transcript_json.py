"""A conversation as kvchat's own JSON: written, and read without any change. Owns that format and its version.

One object per conversation, in ASCII, so that it is the same bytes on every terminal and in every editor. `usage` and
`settings` are JSON themselves: they stand in it as objects where that gives them back exactly, else as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args, get_type_hints

from kvchat.clean import clean_line, encodable
from kvchat.errors import FormatError
from kvchat.formats.transcript import LATEST, Transcript, TranscriptMessage, TranscriptSummary, checked

MARK = "kvchat"  # the key that says whose object this is; its value is the version
VERSION = 1
_LARGEST_ID = 1 << 31
_TITLE_BY = get_args(get_type_hints(Transcript)["title_by"])


def write_json(transcript: Transcript) -> str:
    """The conversation as text, one message a line."""
    head = {
        MARK: VERSION,
        "id": transcript.id,
        "title": transcript.title,
        "title_by": transcript.title_by,
        "created": transcript.created,
        "updated": transcript.updated,
        "pinned_at": transcript.pinned_at,
        "system": transcript.system,
        "clock": transcript.clock,
        "model": transcript.model,
        "settings": _nested(transcript.settings),
        "head": transcript.head,
    }
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    if transcript.summaries:
        fields.append(f'"summaries": {json.dumps([asdict(summary) for summary in transcript.summaries])}')
    messages = ",\n".join(f"  {json.dumps(_written(message))}" for message in transcript.messages)
    return "{\n" + ",\n".join(fields) + f',\n"messages": [\n{messages}\n]}}\n'


def read_json(found: Mapping[str, Any]) -> Transcript:
    """The conversation in this object. FormatError when it is broken or of a newer version."""
    if found.get(MARK) != VERSION:
        raise FormatError(f"it was written by another kvchat (version {str(found.get(MARK))[:20]})")
    title_by = found.get("title_by", "person")
    if title_by not in _TITLE_BY:
        raise FormatError("who gave the title is not known")
    messages, summaries = found.get("messages"), found.get("summaries", [])
    if not isinstance(messages, list):
        raise FormatError("it has no list of messages")
    if not isinstance(summaries, list):
        raise FormatError("its summaries are not what they should be")
    return checked(
        Transcript(
            source="kvchat",
            id=_text(found, "id"),
            title=_text(found, "title"),
            created=_time(found, "created"),
            updated=_time(found, "updated"),
            messages=tuple(map(_read, messages)),
            head=_text_or_none(found, "head"),
            system=_text(found, "system"),
            clock=_time(found, "clock"),
            model=_text(found, "model"),
            settings=_flat(found.get("settings", {}), "settings") or "{}",
            title_by=title_by,
            pinned_at=None if found.get("pinned_at") is None else _time(found, "pinned_at"),
            summaries=tuple(map(_read_summary, summaries)),
        )
    )


def _written(message: TranscriptMessage) -> dict[str, object]:
    written: dict[str, object] = {
        "id": message.id,
        "parent": message.parent,
        "role": message.role,
        "text": message.text,
        "created": message.created,
        "finish": message.finish,
        "model": message.model,
        "usage": None if message.usage is None else _nested(message.usage),
    }
    if message.pinned:
        written["pinned"] = True
    return written | ({"ids": {key: list(ids) for key, ids in message.ids.items()}} if message.ids else {})


def _read(message: object) -> TranscriptMessage:
    if not isinstance(message, dict):
        raise FormatError("a message is not what it should be")
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise FormatError(f"a message is by {clean_line(str(role)[:40])!r}")
    return TranscriptMessage(
        id=_text(message, "id"),
        parent=_text_or_none(message, "parent"),
        role="user" if role == "user" else "assistant",
        text=_text(message, "text"),
        created=_time(message, "created"),
        finish=_text_or_none(message, "finish"),
        model=_text(message, "model"),
        usage=_flat(message.get("usage"), "usage"),
        ids=_ids(message.get("ids", {})),
        pinned=message.get("pinned") is True,
    )


def _read_summary(summary: object) -> TranscriptSummary:
    if not isinstance(summary, dict):
        raise FormatError("a summary is not what it should be")
    return TranscriptSummary(
        message=_text(summary, "message"),
        text=_text(summary, "text"),
        created=_time(summary, "created"),
        model=_text(summary, "model"),
        tokens=_count(summary, "tokens"),
        replaced=_count(summary, "replaced"),
    )


def _ids(found: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(found, dict) or not all(isinstance(ids, list) for ids in found.values()):
        raise FormatError("the token ids of a message are not what they should be")
    for ids in found.values():
        if not all(type(value) is int and -_LARGEST_ID <= value < _LARGEST_ID for value in ids):
            raise FormatError("a token id is no number that one can be")
    return {encodable(key): tuple(ids) for key, ids in found.items()}


def _nested(text: str) -> object:
    """A JSON text as what it holds, where writing that gives the same text."""
    try:
        found = json.loads(text)
        same = isinstance(found, dict) and json.dumps(found, allow_nan=False) == text
    except (ValueError, RecursionError):
        return text
    return found if same else text


def _flat(value: object, what: str) -> str | None:
    if isinstance(value, dict):
        return json.dumps(value)
    if value is None or isinstance(value, str):
        return value if value is None else encodable(value)
    raise FormatError(f"the {what} are not what they should be")


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name, "")
    if not isinstance(value, str):
        raise FormatError(f"{name!r} is no text")
    return encodable(value)


def _text_or_none(found: Mapping[str, Any], name: str) -> str | None:
    return None if found.get(name) is None else _text(found, name)


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int or not 0 <= value < _LARGEST_ID:
        raise FormatError(f"{name!r} is no number of tokens")
    return value


def _time(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST:
        raise FormatError(f"{name!r} is no time")
    return float(value)
