"""What the inspector has to read: token ids and answers from the chats, the model's header, the page store.

Owns the way there and back: everything is read away from the event loop, one reading at a time, and the newest counts.
Must not know widgets or words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backend.protocol import Ready
from kvchat.backend.values import EngineConfig
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.conversation.sight import Sight, look
from kvchat.conversation.summarized import Reading as Branch
from kvchat.conversation.turns import ids_key
from kvchat.errors import KvchatError
from kvchat.kv.needs import Subject
from kvchat.ui.inspector_memory import MemoryView, memory_view
from kvchat.ui.inspector_store import StoreView, store_view
from kvchat.ui.model_facts import ModelFacts, model_at, read_facts

if TYPE_CHECKING:
    from kvchat.ui.room import Room

NO_MODEL = "No model is chosen yet."
ON_SERVER = "On the server. What it keeps is its affair."


@dataclass(frozen=True, slots=True)
class Read:
    """`lengths`: tokens by message that have not left the context, where the running model has ids; `left`: those that
    have. `ids`: those of the branch up to the first message without. `answers` have no texts. `subject` None: there is
    no model that can be run."""

    lengths: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    ids: tuple[int, ...] = ()
    answers: tuple[Message, ...] = ()
    memory: MemoryView | str = "reading"
    store: StoreView | str = "reading"
    subject: Subject | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    chat: Chat
    read: Branch
    ready: Ready | None
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class _Stored:
    """`ids`: those of the branch up to the first message without."""

    lengths: dict[str, int]
    left: int
    ids: tuple[int, ...]
    sight: Sight
    answers: tuple[Message, ...]


class Reading:
    """`done` is called on the event loop with what was read, `failed` with what could not be."""

    def __init__(self, room: Room, done: Callable[[Read], object], failed: Callable[[KvchatError], object]) -> None:
        self._room = room
        self._done = done
        self._told = failed
        self._facts: ModelFacts | None = None
        self._draft: ModelFacts | None = None
        self._reading = self._again = False

    def begin(self) -> None:
        """Read all of it, now or when the reading that is going on is over."""
        if self._reading:
            self._again = True
            return
        self._reading = True
        room = self._room
        conversation, engine = room.conversation, room.desk.engine
        question = _Question(conversation.chat, conversation.reading, engine.ready, engine.config)
        stored = conversation.store.run(_stored, question)
        room.wait(stored, lambda found: self._look_further(question, found), self._failed)

    def _look_further(self, question: _Question, stored: _Stored) -> None:
        room, conversation = self._room, self._room.conversation

        def look() -> Read:
            folder = None if conversation.incognito else room.desk.kv_folder
            store = store_view(folder, question.config, question.ready, stored.sight)
            memory = self._memory(question)
            subject = self._facts.subject if self._facts is not None else None
            return Read(stored.lengths, stored.left, stored.ids, stored.answers, memory, store, subject)

        room.aside(look, self._over, self._failed)

    def _memory(self, question: _Question) -> MemoryView | str:
        path = question.config.model_path
        if question.config.remote is not None:
            return ON_SERVER
        if not path:
            return NO_MODEL
        facts = self._facts
        if facts is None or str(facts.model.path) != path:
            self._facts = facts = read_facts(model_at(Path(path), ()))
        return memory_view(
            facts, question.config, question.ready, self._room.desk.engine.memory, self._draft_of(question)
        )

    def _draft_of(self, question: _Question) -> ModelFacts | None:
        """The draft model that runs or, before there is an engine, the one that is to run."""
        ready, path = question.ready, question.config.draft_path
        if ready is not None:
            path = ready.draft.path if ready.draft is not None else None
        if path is None:
            return None
        if self._draft is None or str(self._draft.model.path) != path:
            self._draft = read_facts(model_at(Path(path), ()))
        return self._draft

    def _over(self, read: Read) -> None:
        self._next()
        self._done(read)

    def _failed(self, error: KvchatError) -> None:
        self._next()
        self._told(error)

    def _next(self) -> None:
        self._reading = False
        if self._again:
            self._again = False
            self.begin()


def _stored(store: ChatStore, question: _Question) -> _Stored:
    """On the store thread."""
    chat, ready = question.chat, question.ready
    answers = store.answers(chat.id)
    if ready is None or chat.head is None:
        return _Stored({}, 0, (), Sight(), answers)
    key = ids_key(ready.model.text_key, question.read.system)
    known, sight = store.known_ids(chat.head, key), look(store, question.read, key)
    seen = sight.messages
    found = {message: each.ids for message, each in known.items() if each.ids is not None}
    ids: list[int] = []
    for message in question.read.messages:
        if message.id not in found:
            break
        ids += found[message.id]
    lengths = {message: seen[message].live if message in seen else len(each) for message, each in found.items()}
    lengths |= dict.fromkeys(sight.replaced, 0)
    return _Stored(lengths, sum(each.tokens - each.live for each in seen.values()), tuple(ids), sight, answers)
