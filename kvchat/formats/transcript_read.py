"""Conversations out of a file of any program that is known. Owns which format it is, told by what is in it.

Must not read more of a file than fits into memory piece by piece, and must not give out half a conversation: one that
is broken is told as such, and the next one is read.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, BinaryIO

from kvchat.clean import clean_line
from kvchat.errors import FormatError
from kvchat.formats.json_stream import BrokenJson, json_values
from kvchat.formats.transcript import Broken, Transcript
from kvchat.formats.transcript_chatgpt import read_chatgpt
from kvchat.formats.transcript_json import MARK, read_json
from kvchat.formats.transcript_llama import read_llama

LARGEST = 1 << 30  # bytes of a file, or of one in an archive
LARGEST_IN_ALL = 4 << 30  # bytes of all that is read of an archive
MOST_MESSAGES = 100_000  # of one conversation
_ZIP = b"PK\x03\x04"
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNKNOWN = "it is no conversation of kvchat, ChatGPT or llama.cpp's server"


def read_transcripts(file: BinaryIO) -> Iterator[Transcript | Broken]:
    """The conversations in a file, or in the JSON files of a ZIP archive, in their order. FormatError for a file that
    is neither; what came before it holds."""
    begin = file.read(len(_ZIP))
    file.seek(0)
    if begin == _ZIP:
        yield from _archive(file)
    else:
        yield from _text(file)


def _archive(file: BinaryIO) -> Iterator[Transcript | Broken]:
    """What else is in an archive, such as the account of a person, is passed over."""
    try:
        with zipfile.ZipFile(file) as archive:
            left = LARGEST_IN_ALL
            for member in archive.infolist():
                if not member.filename.lower().endswith((".json", ".jsonl")):
                    continue
                if member.compress_type not in _PACKED:
                    raise FormatError(f"{clean_line(member.filename)[:200]} in it is packed in an unusual way")
                if member.file_size > LARGEST:
                    raise FormatError(f"{clean_line(member.filename)[:200]} in it is too large")
                left -= member.file_size  # more than it says is never read of it
                if left < 0:
                    raise FormatError("what is packed in it is too large")
                with archive.open(member) as stream:
                    yield from (found for found in _text(stream) if found != Broken("", _UNKNOWN))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise FormatError(f"the archive is damaged or locked: {error}") from error


def _text(stream: IO[bytes]) -> Iterator[Transcript | Broken]:
    lines = _Lines()
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
    try:
        for value in json_values(text):
            taken = lines.take(value)
            if not taken:
                lines.finish()
            yield from lines.finished()
            if not taken:
                yield _conversation(value)
        lines.finish()
        yield from lines.finished()
    finally:
        text.detach()  # the file is the caller's, and would be closed with it


def _conversation(value: object) -> Transcript | Broken:
    if isinstance(value, BrokenJson):
        return Broken("", value.problem)
    if not isinstance(value, dict):
        return Broken("", _UNKNOWN)
    try:
        return _known(value) or Broken("", _UNKNOWN)
    except FormatError as error:
        return Broken(_title(value), error.message)


def _known(value: dict[str, Any]) -> Transcript | None:
    parts = (value.get("messages"), value.get("mapping"))
    if any(len(part) > MOST_MESSAGES for part in parts if isinstance(part, list | dict)):
        raise FormatError(f"it has more than {MOST_MESSAGES:,} messages")
    if MARK in value:
        return read_json(value)
    if "mapping" in value:
        return read_chatgpt(value)
    if "conv" in value and "messages" in value:
        return read_llama(value["conv"], value["messages"])
    return None


def _title(value: dict[str, Any]) -> str:
    conversation = value.get("conv")
    named = value | conversation if isinstance(conversation, dict) else value
    return clean_line(str(named.get("title") or named.get("name") or ""))[:200]


class _Lines:
    """The records of llama.cpp's line format, until the conversation that they make is complete."""

    def __init__(self) -> None:
        self._session: dict[str, Any] | None = None
        self._messages: list[object] = []
        self._problem = ""
        self._finished: list[Transcript | Broken] = []

    def take(self, value: object) -> bool:
        """Whether this value is such a record, or a broken one among them."""
        if isinstance(value, BrokenJson) and self._session is not None:
            self._problem = self._problem or value.problem
            return True
        if not isinstance(value, dict) or MARK in value or "mapping" in value:
            return False
        if value.get("type") == "session" and "messages" not in value:
            self.finish()
            self._session = value
        elif value.get("type") == "message" and self._session is not None:
            self._messages.append(value.get("message"))
        else:
            return False
        return True

    def finish(self) -> None:
        """Nothing more belongs to the conversation that is being read."""
        if self._session is None:
            return
        whole = {"conv": self._session, "messages": self._messages}
        self._finished.append(Broken(_title(whole), self._problem) if self._problem else _conversation(whole))
        self._session, self._messages, self._problem = None, [], ""

    def finished(self) -> Iterator[Transcript | Broken]:
        """The conversations that are complete, each once."""
        while self._finished:
            yield self._finished.pop(0)
