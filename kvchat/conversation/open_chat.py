"""The chat that is open and the branch of it that is shown. Owns these two values; whoever has a part in a conversation
reads and replaces them here, all on its one thread.

Must not reach the disk or the backend.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kvchat.chats.ids import new_ulid
from kvchat.chats.types import Branch, Chat, Message, Role
from kvchat.conversation.summarized import Reading, reading
from kvchat.errors import KvchatError


class OpenChat:
    """`chat` and `branch` go together: the chat's head is that of the branch. `unsummarized`: a summary was taken back
    since it was opened."""

    def __init__(self, chat: Chat, branch: Branch) -> None:
        self.chat = chat
        self.branch = branch
        self.unsummarized = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The branch, root to head."""
        return self.branch.messages

    @property
    def saved(self) -> bool:
        """Whether the chat has a row: its title comes from its first message, which is written with it."""
        return self.chat.title != ""

    def show(self, branch: Branch) -> None:
        """Another branch takes the place of this one."""
        self.branch = branch
        self.chat = replace(self.chat, head=branch.head)

    def adopt(self, chat: Chat, branch: Branch) -> None:
        """Shows a branch that grew elsewhere since it was this chat's. What is known here of its messages but the last
        one is newer."""
        newer = {message.id: message for message in self.messages if message.id != branch.head}
        around = {each: each_of for each_of in self.branch.siblings.values() for each in each_of}
        messages = tuple(newer.get(message.id, message) for message in branch.messages)
        siblings = {message.id: around.get(message.id, branch.siblings[message.id]) for message in messages}
        here = tuple(each for each in self.branch.summaries if each.message in siblings)
        own = tuple(each for each in branch.summaries if each.message not in newer)
        self.show(Branch(messages, siblings, (*here, *own)))
        self.chat = replace(
            self.chat, model=chat.model or self.chat.model, updated=max(self.chat.updated, chat.updated)
        )

    def have_siblings(self, ids: Sequence[str]) -> None:
        """What stands in the place of the last message is, besides what stood there before it, all of these."""
        last = self.messages[-1].id
        older = tuple(each for each in self.branch.siblings[last] if each not in ids)
        self.branch = replace(self.branch, siblings={**self.branch.siblings, last: (*older, *ids)})

    def has_more_siblings(self, around: Sequence[str]) -> bool:
        """Takes over what stands in the place of a message of the branch by now, itself among it. False: nothing that
        was not known."""
        mine = next((each for each in around if each in self.branch.siblings), None)
        if mine is None or set(around) <= set(self.branch.siblings[mine]):
            return False
        self.branch = replace(self.branch, siblings={**self.branch.siblings, mine: tuple(around)})
        return True

    def replace_last(self, message: Message) -> None:
        """The last message in a newer form."""
        self.branch = replace(self.branch, messages=(*self.messages[:-1], message))

    def place(self, message_id: str) -> int:
        """Where a message stands in the branch. KvchatError when it does not."""
        for index, message in enumerate(self.messages):
            if message.id == message_id:
                return index
        raise KvchatError("this message is not in the branch that is shown", "look at the chat again")

    def grown(self, messages: tuple[Message, ...], new: int) -> Branch:
        """The branch `messages`, of which the last `new` are not in the tree yet. The first of these becomes the
        youngest sibling of the message whose place it takes."""
        siblings = {message.id: self.branch.siblings[message.id] for message in messages[: len(messages) - new]}
        for index in range(len(messages) - new, len(messages)):
            replaced = self.messages[index] if index == len(messages) - new < len(self.messages) else None
            older = self.branch.siblings[replaced.id] if replaced is not None else ()
            siblings[messages[index].id] = (*older, messages[index].id)
        stay = {message.id for message in messages}
        return Branch(messages, siblings, tuple(each for each in self.branch.summaries if each.message in stay))

    def reading(self, messages: Sequence[Message] | None = None) -> Reading:
        """What a model reads of the branch, or of these messages, which begin as it does."""
        return reading(self.chat.system, self.messages if messages is None else messages, self.branch.summaries)

    def new_message(self, role: Role, parent: str | None, text: str, finish: str | None) -> Message:
        """A message of this chat that is in no tree yet."""
        return Message(new_ulid(), self.chat.id, parent, role, text, time.time(), finish)
