"""What /prefix does: chats on pinned prefixes, new ones, computing and letting go. Owns the prefixes that are being
computed, and what is told of them; must not wait for the disk or the engine.

A new prefix is on disk before it is computed, as words are before an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvchat.backend.protocol import Pinned, Pinning, Ready
from kvchat.chats.prefixes import Document, Prefix, proper_name
from kvchat.conversation.prefixes import PinsInTheMaking, computed_for, new_prefix, not_computed
from kvchat.errors import KvchatError
from kvchat.ui.chips import FileRef
from kvchat.ui.incognito import leave
from kvchat.ui.meters import size_text
from kvchat.ui.room import Room
from kvchat.ui.wording import sentences

if TYPE_CHECKING:
    from kvchat.conversation import Conversation
    from kvchat.kv.pinned import Held
    from kvchat.ui.inbox import News
    from kvchat.ui.prefixes_picker import Wanted

NONE = "Nothing is pinned yet. /prefix pin NAME keeps the beginning of this chat: its system prompt, and @files."
MOST_OFFERED = 5


@dataclass(frozen=True, slots=True)
class _New:
    """A prefix that is to be made, and the one whose place it takes."""

    prefix: Prefix
    old: Prefix | None


class Prefixes:
    """Carries out /prefix."""

    def __init__(self, room: Room, show: Callable[[Conversation], object]) -> None:
        """`show` shows another conversation."""
        self._room = room
        self._show = show
        self._pins = PinsInTheMaking(room.desk.store, room.desk.engine)
        self._welcome: Sequence[str] | None = None  # what stands in an empty chat without that
        self._waiting: list[Prefix] = []  # to be computed when a model is there

    def command(self, words: str, files: Mapping[str, FileRef] | None = None) -> None:
        """`/prefix`, `/prefix NAME`, `/prefix pin NAME [@FILE...]`, `/prefix compute NAME`, `/prefix drop NAME`.
        `files` are those whose labels stand in the words."""
        first, _, rest = words.partition(" ")
        verb, rest = first.lower(), rest.strip()
        if not words:
            self._list()
        elif verb == "pin":
            self._pin(rest, files or {})
        elif verb in ("compute", "drop"):
            self._with(rest, self._compute if verb == "compute" else self._drop)
        else:
            self._with(words, self.begin)

    # ------------------------------------------------------------------ what comes

    def apply(self, news: News) -> None:
        """How far the engine is."""
        match news:
            case Ready():
                waiting, self._waiting = self._waiting, []
                for prefix in waiting:
                    self._pins.begin(prefix)
            case Pinning():
                self._pins.apply(news)
                self._tell()
            case Pinned():
                self._ended(news)

    def _tell(self) -> None:
        """In the status line, while nobody is answered."""
        room = self._room
        making = next((each for each in self._pins.making if each.told is not None), None)
        if making is not None and making.told is not None and not room.is_busy:
            room.told = f"pinning {making.prefix.name} {making.told.done / max(1, making.told.total):.0%}"

    def _ended(self, pinned: Pinned) -> None:
        room, taken = self._room, self._pins.apply(pinned)
        if taken is None:
            return
        made, future = taken
        room.told = ""
        name = made.prefix.name
        if future is None:
            failure = pinned.failure
            why = sentences(failure.message, failure.hint) if failure is not None else "it was stopped."
            room.transcript.note(f"prefix {name} not computed: {why}", "warning")
            return
        took = f"{pinned.tokens:,} tokens, {size_text(pinned.size)}, kept on disk"
        said = f"Prefix {name} is pinned: {took}. /prefix {name} begins a chat on it at once."

        def looked(found: Prefix | None) -> None:
            if found is None:  # it was let go while it was computed
                self._unpin(made.prefix, lambda _: None)
            else:
                room.transcript.note(said)

        def kept(_: None) -> None:
            lookup = room.desk.store.run(lambda chats: chats.prefixes.get(made.prefix.id))
            room.wait(lookup, looked, lambda error: room.say(error, "not kept"))

        room.wait(future, kept, lambda error: room.say(error, "not kept"))

    def entered(self) -> None:
        """A chat is shown: what it begins with, or could where nothing is said yet."""
        room, conversation = self._room, self._room.conversation
        room.prefix = ""
        if conversation.incognito or (conversation.messages and conversation.chat.prefix is None):
            return

        def come(prefixes: tuple[Prefix, ...]) -> None:
            if conversation is not room.conversation:
                return
            on = next((each for each in prefixes if each.id == conversation.chat.prefix), None)
            if on is not None:
                room.prefix = on.name
                room.sync()
            if conversation.messages:
                return
            if on is None:
                self._offer(prefixes)
            else:
                room.transcript.note(f"This chat begins with the prefix {on.name}.{self._use_of(on)}")

        self._all(come)

    def _offer(self, prefixes: Sequence[Prefix]) -> None:
        """Below what stands in an empty chat."""
        transcript = self._room.transcript
        if self._welcome is None:
            self._welcome = transcript.welcome
        names = ", ".join(each.name for each in prefixes[:MOST_OFFERED])
        more = ", …" if len(prefixes) > MOST_OFFERED else ""
        offer = ("", f"/prefix begins a chat on what is pinned: {names}{more}") if prefixes else ()
        transcript.welcome = (*self._welcome, *offer)
        transcript.refresh()

    def _use_of(self, prefix: Prefix) -> str:
        ready = self._room.desk.engine.ready
        if ready is None or ready.remote is not None or not ready.cache.namespace:
            return ""
        found = computed_for(prefix, ready)
        if found is not None:
            return f" Its {found.tokens:,} tokens need not be computed."
        return f" {not_computed(prefix, ready).capitalize()}: /prefix compute {prefix.name} does so."

    # ------------------------------------------------------------------ listing

    def _all(self, come: Callable[[tuple[Prefix, ...]], object]) -> None:
        room = self._room
        room.wait(
            room.desk.store.run(lambda chats: chats.prefixes.all()), come, lambda error: room.say(error, "no prefixes")
        )

    def _with(self, name: str, then: Callable[[Prefix], object]) -> None:
        room = self._room
        if name:
            room.wait(room.desk.store.run(lambda chats: chats.prefixes.find(name)), then, room.refuse)
        else:
            room.toast("Which one? /prefix lists them.")

    def _list(self) -> None:
        from kvchat.kv.pinned import held  # the page store: the first frame does without

        room, folder = self._room, self._room.desk.kv_folder

        def come(prefixes: tuple[Prefix, ...]) -> None:
            if prefixes:
                room.aside(
                    lambda: held(folder) if folder is not None else [],
                    lambda found: self._show_list(prefixes, found),
                    room.refuse,
                )
            else:
                room.transcript.note(NONE)

        self._all(come)

    def _show_list(self, prefixes: Sequence[Prefix], found: Sequence[Held]) -> None:
        from kvchat.ui.prefixes_picker import PrefixPicker
        from kvchat.ui.prefixes_state import listed

        ready, making = self._room.desk.engine.ready, self._pins.making
        rows = [listed(each, ready, making, found) for each in prefixes]
        self._room.screen.app.push_screen(PrefixPicker(rows), self._chosen)

    def _chosen(self, wanted: Wanted | None) -> None:
        if wanted is not None:
            act = {"begin": self.begin, "compute": self._compute, "drop": self._drop}[wanted.what]
            act(wanted.prefix)

    # ------------------------------------------------------------------ doing

    def begin(self, prefix: Prefix) -> None:
        """A new chat on it."""
        room = self._room
        leave(room, lambda: self._show(room.desk.new_conversation(prefix=prefix)))

    def _compute(self, prefix: Prefix) -> None:
        room = self._room
        if any(each.prefix.id == prefix.id for each in self._pins.making) or prefix in self._waiting:
            room.toast(f"{prefix.name} is being computed.")
        elif room.desk.kv_folder is None or not room.desk.settings.kv:
            room.toast("Nothing is kept on disk now, so a prefix cannot be.")
        elif room.desk.engine.ready is None:
            self._waiting.append(prefix)
            room.toast(f"{prefix.name} is computed when a model is there.")
        else:
            self._pins.begin(prefix)
            room.toast(f"{prefix.name} is being computed, while nothing else is wanted.")

    def _drop(self, prefix: Prefix) -> None:
        from kvchat.ui.dialogs import Confirm

        room = self._room
        begun = (
            f"{prefix.chats} chats begin with it, and keep" if prefix.chats != 1 else "A chat begins with it, and keeps"
        )
        chats = f"\n{begun} its text." if prefix.chats else ""
        question = f"Let the prefix {prefix.name} go? Its text goes with it.{chats}"

        def gone(_: object) -> None:
            room.toast(f"{prefix.name} is not pinned any more.")

        def removed(_: object) -> None:
            self._unpin(prefix, gone)

        def answered(yes: bool | None) -> None:
            if yes:
                self._stop(prefix)
                removal = room.desk.store.run(lambda chats: chats.prefixes.remove(prefix.id))
                room.wait(removal, removed, lambda error: room.say(error, "not removed"))

        room.screen.app.push_screen(Confirm(question, "let it go"), answered)

    def _unpin(self, prefix: Prefix, then: Callable[[object], object]) -> None:
        from kvchat.kv.pinned import unpin

        folder = self._room.desk.kv_folder
        self._room.aside(lambda: 0 if folder is None else unpin(folder, prefix.id), then, self._room.refuse)

    def _stop(self, prefix: Prefix) -> None:
        self._waiting = [each for each in self._waiting if each.id != prefix.id]
        for each in self._pins.making:
            if each.prefix.id == prefix.id:
                self._pins.cancel(each.turn)

    # ------------------------------------------------------------------ a new one

    def _pin(self, words: str, files: Mapping[str, FileRef]) -> None:
        """The system prompt of this chat, with files behind it."""
        room, conversation = self._room, self._room.conversation
        if conversation.incognito:
            room.refuse(KvchatError("a prefix is kept on disk", "not from an incognito chat"))
            return
        from kvchat.ui.prefixes_words import read_words

        try:
            name, wanted = read_words(words, files)
            name = proper_name(name)
        except KvchatError as error:
            room.refuse(error)
            return
        system = conversation.chat.system
        if not system and not wanted:
            room.toast("This chat has no system prompt to pin. /system sets one; @file adds a document.")
            return

        def read() -> Prefix:
            from kvchat.ui.files_reading import read_block

            return new_prefix(name, system, [Document(file.shown[1:], read_block(file)) for file in wanted])

        def made(prefix: Prefix) -> None:
            lookup = room.desk.store.run(lambda chats: chats.prefixes.named(name))
            room.wait(lookup, lambda old: self._made(prefix, old), lambda error: room.say(error, "not pinned"))

        room.aside(read, made, lambda error: room.say(error, "not pinned"))

    def _made(self, prefix: Prefix, old: Prefix | None) -> None:
        if old is None:
            self._keep(_New(prefix, None))
        elif old.text == prefix.text:
            self._compute(old)
        else:
            from kvchat.ui.dialogs import Confirm

            question = f"There is a prefix {old.name} with another text. Put this one in its place?"

            def answered(yes: bool | None) -> None:
                if yes:
                    self._stop(old)
                    self._keep(_New(prefix, old))

            self._room.screen.app.push_screen(Confirm(question, "replace it"), answered)

    def _keep(self, new: _New) -> None:
        room, old = self._room, new.old

        def kept(_: object) -> None:
            if old is not None:
                self._unpin(old, lambda _: None)
            self._compute(new.prefix)

        put = room.desk.store.run(lambda chats: chats.prefixes.put(new.prefix))
        room.wait(put, kept, lambda error: room.say(error, "not pinned"))
