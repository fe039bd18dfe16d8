"""Chats under the heads of the list: pinned ones, then by how long ago, in days as a person counts them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from kvchat.chats.types import Chat

PINNED = "Pinned"
OLDER = "Older"
_DAYS = ((0, "Today"), (1, "Yesterday"), (7, "Previous 7 days"))


def grouped(chats: Sequence[Chat], now: float) -> list[tuple[str, list[Chat]]]:
    """The groups that have a chat, each with its chats in the given order; pinned ones as they were pinned."""
    pinned = sorted((chat for chat in chats if chat.pinned_at is not None), key=lambda chat: (chat.pinned_at, chat.id))
    groups: dict[str, list[Chat]] = {PINNED: pinned, **{name: [] for _, name in _DAYS}, OLDER: []}
    today = _day(now)
    for chat in chats:
        if chat.pinned_at is None:
            groups[_age(today, chat.updated)].append(chat)
    return [(name, members) for name, members in groups.items() if members]


def _age(today: date, updated: float) -> str:
    """By the local calendar; what a clock that was wrong put into the future is of today."""
    days = (today - _day(updated)).days
    return next((name for most, name in _DAYS if days <= most), OLDER)


def _day(seconds: float) -> date:
    return datetime.fromtimestamp(seconds).date()
