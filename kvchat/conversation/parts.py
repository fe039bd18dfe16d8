"""An open chat put together from its parts. Owns which these are, when they are brought up to date, and what can be
done with a chat at any time: look at it, change what is its own, ask the engine ahead of a turn.

The base of `Conversation`, which adds turns and moves. What runs on the store thread is taken over by `_settle` at the
beginning of every method and property.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from kvchat.backend.client import Backend
from kvchat.backend.protocol import Forecasted, Previewed, ReadingAhead, Warmed
from kvchat.backend.values import DraftMode, EngineConfig, History, OverflowPolicy, Sampling
from kvchat.chats.thread import StoreThread
from kvchat.chats.types import Branch, Chat, Message
from kvchat.conversation.alternatives import Alternatives
from kvchat.conversation.branches import Branches
from kvchat.conversation.open_chat import OpenChat
from kvchat.conversation.outlooks import Outlooks
from kvchat.conversation.preferences import UNSAID, Defaults, EngineChoice, Own, Preferences, Said
from kvchat.conversation.sight import Sight, look
from kvchat.conversation.summaries import Summaries
from kvchat.conversation.titling import Titling
from kvchat.conversation.turning import Turning
from kvchat.conversation.turns import LiveTurn, Options, ids_key
from kvchat.errors import KvchatError


class Parts:
    """See `Conversation`."""

    def __init__(
        self,
        store: StoreThread,
        backend: Backend,
        chat: Chat,
        branch: Branch,
        *,
        sampling: Sampling,
        history: History = "append",
        keep_kv: bool = True,
        draft: DraftMode = "auto",
        overflow: OverflowPolicy = "stop",
        new: Said = UNSAID,
    ) -> None:
        """`branch` is the one that ends with the chat's head. `sampling`, `history`, `draft` and `overflow` hold where
        the chat has no values of its own, `new` before those which it has."""
        self._store = store
        self._backend = backend
        self._keep_kv = keep_kv
        self._open = OpenChat(chat, branch)
        self._turning = Turning(store, backend, self._open)
        self._alternatives = Alternatives(store, backend, self._open)
        self._branches = Branches(store, self._open)
        self._preferences = Preferences(store, self._open, Defaults(sampling, history, draft, overflow), new)
        self._outlooks = Outlooks(store, backend, self._open)
        self._titling = Titling(store, backend, self._open)
        self._summaries = Summaries(store, backend, self._open)

    # ------------------------------------------------------------------ what is there

    @property
    def chat(self) -> Chat:
        """The chat as of the last turn. It is on disk once it has a message."""
        self._settle()
        return self._open.chat

    @property
    def incognito(self) -> bool:
        """Whether nothing of the chat comes to any disk: it lies in memory, and so does its KV."""
        return self._store.incognito

    @property
    def store(self) -> StoreThread:
        """Where the chat lies."""
        return self._store

    @property
    def messages(self) -> tuple[Message, ...]:
        """The branch, root to head. While a turn is going on, the last one is the reply so far."""
        self._settle()
        self._turning.catch_up()
        return self._open.messages

    @property
    def live(self) -> LiveTurn | None:
        """The turn that is going on."""
        self._settle()
        return self._turning.live

    @property
    def unsaved(self) -> KvchatError | None:
        """Why the reply of the last turn could not be written as it stands in `messages`; None: it was, or waits for
        its turn. Once the store is closed, this is how it stays."""
        self._settle()
        return self._turning.unsaved

    @property
    def went_on(self) -> str:
        """That another process has added to this chat what was not known here when the last turn began, in a sentence;
        "": none has, as far as is known."""
        self._settle()
        return self._turning.went_on

    def siblings(self, message_id: str) -> tuple[str, ...]:
        """The ids of all that stands in the place of this message, itself too, the oldest first; none for a message
        that is not (or, since `messages` was read, no longer) in the branch."""
        self._settle()
        return self._open.branch.siblings.get(message_id, ())

    # ------------------------------------------------------------------ the chat's own; from the next turn on

    @property
    def sampling(self) -> Sampling:
        """How replies are sampled: as told, where the chat has no values of its own."""
        self._settle()
        return self._preferences.sampling

    @property
    def engine_settings(self) -> EngineChoice | None:
        """With which model and cache the chat was last run, if `set_engine` was told."""
        self._settle()
        return self._preferences.engine

    @property
    def history(self) -> History:
        """What becomes of the past when the template would render it otherwise, see `Generate`."""
        self._settle()
        return self._preferences.history

    @property
    def draft(self) -> DraftMode:
        """What drafts in its turns."""
        self._settle()
        return self._preferences.draft

    @property
    def overflow(self) -> OverflowPolicy:
        """What happens when the context is full."""
        self._settle()
        return self._preferences.overflow

    @property
    def overflow_said(self) -> bool:
        """Whether somebody has said so for this chat."""
        self._settle()
        return self._preferences.overflow_said

    @property
    def own(self) -> Own:
        """What the chat has of its own; for the rest the `defaults` hold."""
        self._settle()
        return self._preferences.own

    @property
    def defaults(self) -> Defaults:
        """What holds where the chat has nothing of its own."""
        return self._preferences.defaults

    @defaults.setter
    def defaults(self, defaults: Defaults) -> None:
        self._settle()
        self._outlooks.forget()
        self._preferences.defaults = defaults

    def set_own(self, own: Own) -> Future[None]:
        """Makes this all that the chat has of its own."""
        self._settle()
        self._outlooks.forget()
        return self._preferences.set_own(own)

    def set_history(self, history: History) -> Future[None]:
        """Another way to keep history."""
        self._settle()
        self._outlooks.forget()
        return self._preferences.set_history(history)

    def set_draft(self, draft: DraftMode) -> Future[None]:
        """Something else that drafts. What a send reuses and computes stays the same."""
        self._settle()
        return self._preferences.set_draft(draft)

    def set_overflow(self, overflow: OverflowPolicy) -> Future[None]:
        """Something else that happens when the context is full."""
        self._settle()
        self._outlooks.forget()
        return self._preferences.set_overflow(overflow)

    def set_system(self, text: str) -> Future[None]:
        """Another system prompt."""
        self._settle()
        self._outlooks.forget()
        return self._preferences.set_system(text)

    def set_sampling(self, sampling: Sampling) -> Future[None]:
        """Other sampling. Values that are as told when the chat was opened do not become its own."""
        self._settle()
        return self._preferences.set_sampling(sampling)

    def set_engine(self, choice: EngineChoice) -> Future[None]:
        """Keeps with which model and cache the chat is run."""
        self._settle()
        return self._preferences.set_engine(choice)

    # ------------------------------------------------------------------ what has left the context

    def sight(self) -> Future[Sight]:
        """How much the running model still sees of each message, as far as it has ids of the branch."""
        self._settle()
        ready, read = self._backend.ready, self._open.reading()
        key = "" if ready is None else ids_key(ready.model.text_key, read.system)
        return self._store.run(look, read if ready is not None else replace(read, messages=()), key)

    # ------------------------------------------------------------------ ahead of a turn

    @property
    def warmed(self) -> Warmed | None:
        """The answer to the last `warm`, while it holds."""
        self._settle()
        return self._outlooks.warmed

    @property
    def forecasted(self) -> Forecasted | None:
        """The answer for the draft of the last `forecast`; None while it is not known or does not hold any more."""
        self._settle()
        return self._outlooks.forecasted

    @property
    def previewed(self) -> Previewed | None:
        """The answer for the configuration of the last `preview`, while it holds."""
        self._settle()
        return self._outlooks.previewed

    def warm(self) -> None:
        """Brings the KV of the branch back. Nothing, during a turn, without a model, and where no KV is kept."""
        self._settle()
        if self._turning.live is None and self._keep_kv and not self.incognito:
            self._outlooks.warm()

    def forecast(self, draft: str, edited: str | None = None) -> None:
        """Asks what a submit of `draft` would reuse and cost, or an edit: the message that it takes the place of is
        `edited`. Nothing, when it could not be submitted now, and where no KV is kept; the last forecast is void in any
        case."""
        self._settle()
        self._outlooks.forecasted = None
        past = self._before_draft(edited)
        if past is not None and self._keep_kv:
            self._outlooks.forecast(past, draft, self._options())

    @property
    def reading_ahead(self) -> ReadingAhead | None:
        """How much of the draft of the last `read_ahead` is read, or of the one before it; None while it is not known
        or does not hold any more."""
        self._settle()
        return self._outlooks.reading_ahead

    def read_ahead(self, draft: str, edited: str | None = None, *, done: bool = False) -> None:
        """Has read what is stable of a message that is being written, see `ReadAhead`. `edited` as in `forecast`.
        Nothing, when it could not be submitted now."""
        self._settle()
        past = self._before_draft(edited)
        if past is not None:
            self._outlooks.read_ahead(past, draft, self._options(), done=done)

    def _before_draft(self, edited: str | None) -> tuple[Message, ...] | None:
        """The messages in front of one that is being written; None: it could not be submitted now."""
        messages = self._open.messages
        past = messages[: next((at for at, each in enumerate(messages) if each.id == edited), len(messages))]
        waits = past and past[-1].role == "user"
        return None if waits or self._turning.live is not None else past

    @property
    def wants_title(self) -> bool:
        """Whether `ask_title` would have the model name the chat, once no turn is going on."""
        self._settle()
        self._turning.catch_up()
        return self._titling.is_wanted

    def ask_title(self) -> str | None:
        """Have the model name the chat, if nobody has yet. The turn of the `Titled` that answers; None: nobody was
        asked, as during a turn."""
        self._settle()
        return self._titling.ask() if self._turning.live is None else None

    def preview(self, config: EngineConfig) -> None:
        """Asks what the branch would find on disk with another configuration of the same model. Nothing, where none of
        it may be there."""
        self._settle()
        if not self.incognito:
            self._outlooks.preview(config)

    def _settle(self) -> None:
        """Takes over what became of a turn or a move on the store thread."""
        self._turning.settle()
        if self._branches.settle():
            self._outlooks.forget()

    def _check_idle(self) -> None:
        self._settle()
        self._turning.check_idle()
        self._branches.check_idle()

    def _check_ready(self) -> None:
        self._check_idle()
        self._turning.check_model()

    def _options(self) -> Options:
        preferences = self._preferences
        return Options(
            sampling=preferences.sampling,
            history=preferences.history,
            keep_kv=self._keep_kv,
            draft=preferences.draft,
            overflow=preferences.overflow,
            incognito=self.incognito,
        )
