"""Drafts that outlive a switch of chats and the end of the app. Owns when they are written and when they come back.

Written when the keys rest, and every few seconds where they do not; through the store thread, like all words. Must not
know what a draft is for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Any

from textual.timer import Timer

from kvchat.chats import drafts
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Draft, stored_object
from kvchat.clean import encodable
from kvchat.conversation import Conversation
from kvchat.ui.chips import FileRef, Written
from kvchat.ui.room import Room

REST = 0.7  # seconds without a key before the draft is written
LONGEST_UNWRITTEN = 3.0  # seconds that a crash may cost of a text that is typed without a rest


class Drafts:
    """The draft of the open chat, kept; those of the others, on disk."""

    def __init__(self, room: Room, unsent: Callable[[Conversation], Written]) -> None:
        """`unsent` is what would be lost now of the chat that the prompt belongs to: that, and what waits to be
        sent."""
        self._room = room
        self._unsent = unsent
        self._conversation: Conversation | None = None  # the chat that the prompt belongs to
        self._key: str | None = None  # under which its draft stands on disk
        self._written: dict[tuple[bool, str], Draft] = {}  # what was written last, by whether incognito and chat
        self._timer: Timer | None = None
        self._changed_at = self._unwritten_since = 0.0

    def typed(self) -> None:
        """The draft changed."""
        self._changed_at = monotonic()
        if self._timer is None:
            self._unwritten_since = self._changed_at
            self._timer = self._room.screen.set_timer(REST, self._rest)

    def entered(self, draft: Written | None = None) -> None:
        """Another chat is shown: keep what was written in the one before, bring back what was written in this one,
        which is `draft` where that is known. At the start what was typed already goes on in the chat that is opened."""
        room, left = self._room, self._conversation
        if left is room.conversation:
            return
        if left is not None:
            self.keep()
            room.prompt.put("")
        self._conversation = conversation = room.conversation
        self._key = _key(conversation)
        if draft is not None:
            room.prompt.put_back(draft)
            return
        asked = conversation.store.run(ChatStore.draft, _key(conversation))
        room.wait(asked, partial(self._bring, conversation), lambda error: room.say(error, "no draft"))

    def keep(self) -> None:
        """Write now what is not on disk."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = None
        conversation = self._conversation or self._room.conversation
        key, before = _key(conversation), self._key
        self._key = key
        self.write(conversation, self._unsent(conversation))
        if before is not None and before != key:  # the chat has got its first message
            self._write(conversation, before, Draft())

    def write(self, conversation: Conversation, written: Written) -> None:
        """Write what there is in a chat, open or not."""
        draft = Draft(encodable(written.text), _labels(written.files)) if written.text.strip() else Draft()
        self._write(conversation, _key(conversation), draft)

    def _write(self, conversation: Conversation, key: str, draft: Draft) -> None:
        where = conversation.incognito, key
        if self._written.get(where) != draft:
            self._written[where] = draft
            conversation.store.debounce(f"draft {key}", 0, ChatStore.set_draft, key, draft)

    def _bring(self, conversation: Conversation, draft: Draft) -> None:
        if conversation is not self._room.conversation:
            return
        self._written[conversation.incognito, _key(conversation)] = draft
        if draft.text:
            self._room.prompt.put_back(Written(draft.text, _files(draft.labels)))

    def _rest(self) -> None:
        self._timer = None
        if self._conversation is None:
            return
        now = monotonic()
        rested = now - self._changed_at >= REST * 0.9
        if rested or now - self._unwritten_since >= LONGEST_UNWRITTEN:
            self.keep()
        else:
            self._timer = self._room.screen.set_timer(REST, self._rest)


def _key(conversation: Conversation) -> str:
    return conversation.chat.id if conversation.messages else drafts.NEW


def _labels(files: Mapping[str, FileRef]) -> str:
    return json.dumps({label: asdict(file) for label, file in files.items()})


def _files(labels: str) -> dict[str, FileRef]:
    """What `_labels` wrote; what cannot be understood is left out."""
    return {label: file for label, stored in stored_object(labels).items() if (file := _file(stored)) is not None}


def _file(stored: Any) -> FileRef | None:
    if not isinstance(stored, dict):
        return None
    path, name, first, last = (stored.get(key) for key in ("path", "name", "first", "last"))
    lines = isinstance(first, int) and isinstance(last, int)
    if not isinstance(path, str) or not isinstance(name, str) or not (lines or (first is None and last is None)):
        return None
    return FileRef(path, name, first, last)
