"""Where the person writes. Owns the draft, its chips and the recall of sent texts; must not know chats or commands.

All editing keys run in the order in which they were typed: a binding with priority, or one that takes the way over the
app, would overtake characters that still wait in this widget's queue. A companion (menus, searches) is asked first, in
the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from kvchat.clean import clean, normal
from kvchat.ui.chip_area import ChipArea
from kvchat.ui.chips import Chips, Written, is_long
from kvchat.ui.inline_keys import run_bound

NEW_LINE_KEYS = frozenset({"ctrl+j", "shift+enter", "ctrl+enter", "shift+\r"})
FOR_THE_SCREEN = frozenset({"ctrl+c", "ctrl+d", "pageup", "pagedown"})
LONGEST_DRAFT = 50_000  # characters that are put into the prompt as they are; more would make each key slow
JOINERS = frozenset({"\u200c", "\u200d"})  # not printable for Python, so no text for TextArea, but part of emoji


def _editing_keys() -> list[BindingType]:
    """TextArea's bindings without the keys that mean something else here, with ids."""
    found: list[BindingType] = [
        Binding("ctrl+r", "search", "Search what was sent", show=False, id="prompt.search"),
        Binding("ctrl+g", "edit_elsewhere", "Edit in $EDITOR", show=False, id="prompt.editor"),
    ]
    for binding in TextArea.BINDINGS:
        assert isinstance(binding, Binding)
        keys = [key for key in binding.key.split(",") if key not in FOR_THE_SCREEN]
        if keys:
            name = "prompt." + binding.description.lower().replace(" ", "-")
            found.append(Binding(",".join(keys), binding.action, binding.description, show=False, id=name))
    return found


class Companion(Protocol):
    """Who offers something for what is being written. Called in the order of the keys."""

    async def takes(self, event: events.Key) -> bool:
        """Deal with a key; False leaves it to the prompt."""

    async def takes_paste(self, text: str) -> bool:
        """Deal with a pasted text; False leaves it to the prompt."""

    def wrote(self, changed: bool) -> None:
        """The prompt has dealt with a key. `changed`: the text is another one, else only the cursor moved."""

    def closed(self) -> None:
        """What was offered makes no sense any more: another draft, no keyboard."""

    async def search(self) -> None:
        """Look for what was sent before."""

    async def edit_elsewhere(self) -> None:
        """Edit the draft in another program."""


class Submit(Protocol):
    """Who takes what was written. Called at once: the next key may be for the screen that it opens."""

    def __call__(self, text: str, literal: bool, written: Written, /) -> None:
        """`literal`: the text was pasted and begins with a slash, so it is no command. `written` is the same with
        labels for its files."""


class Prompt(ChipArea, inherit_bindings=False):
    """Enter sends, Ctrl+J (Shift+Enter, a backslash before Enter) makes a new line."""

    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 12;
        border: round $edge; padding: 0 1; background: $background; scrollbar-size-vertical: 1;
        &:focus { border: round $primary; background: $background; }
        & .text-area--cursor { background: $foreground; color: $background; }
        & .text-area--placeholder { color: $meta; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = _editing_keys()

    class Edged(Message):
        """Up in an empty prompt that has nothing to recall."""

    def __init__(self, placeholder: str, submit: Submit, *, id: str | None = None) -> None:
        super().__init__(placeholder, id=id)
        self._submit = submit
        self.companion: Companion | None = None
        self._sent: list[Written] = []
        self._recalled: int | None = None
        self._stashed = Written()
        self._pasted_slash = False

    @property
    def draft(self) -> str:
        """What was written: pastes in full, files by their names."""
        return self._chips.plain(self.text)

    @property
    def written(self) -> Written:
        """What was written: pastes in full, files by their labels."""
        return self._chips.written(self.text)

    @property
    def outgoing(self) -> str:
        """What would be sent, as far as its files have been read."""
        return self._chips.message(self.text)

    @property
    def is_literal(self) -> bool:
        """Whether a slash at the beginning was pasted, and so begins no command."""
        return self._pasted_slash

    @property
    def is_recalled(self) -> bool:
        """Whether what stands here was sent before, and the one before that or after it may be wanted."""
        return self._recalled is not None

    def remember(self, texts: Sequence[str]) -> None:
        """What Up brings back, the oldest first."""
        self._sent = [Written(text) for text in texts]
        self._recalled = None

    def put(self, text: str | Written) -> None:
        """Replace the draft, with the cursor at its end."""
        self._close()
        written = Written(text) if isinstance(text, str) else text
        self._chips = Chips()
        self._chips.restore(written.files)
        text = clean(written.text)
        self.text = text if len(text) < LONGEST_DRAFT else self._chips.fold(text)
        self.move_cursor(self.document.end)

    def put_back(self, text: str | Written) -> None:
        """Return a text that could not be sent, before whatever was written since."""
        returned = Written(text) if isinstance(text, str) else text
        since = self.written
        if since.text:
            returned = Written(f"{returned.text}\n{since.text}", {**returned.files, **since.files})
        self.put(returned)

    def replace_draft(self, text: str) -> None:
        """Put a text in place of the draft; Up brings the draft back."""
        if self.text.strip():
            self._sent.append(self.written)
        self._recalled = None
        self.put(text)

    # ------------------------------------------------------------------ keys

    async def _on_key(self, event: events.Key) -> None:
        if self.companion is None:
            await self._act(event)
            return
        if await self.companion.takes(event):
            _take(event)
            return
        before = self._place()
        await self._act(event)
        self.companion.wrote(self._place() != before)

    async def _act(self, event: events.Key) -> None:
        await self._edit(event)
        # What is typed into an emptied prompt begins anew.
        self._pasted_slash = self._pasted_slash and bool(self.text)

    def _place(self) -> tuple[int, str]:
        """Enough of the text to see that a key changed it."""
        return self.document.line_count, self.document.get_line(self.cursor_location[0])

    async def _edit(self, event: events.Key) -> None:
        if event.key == "enter":
            _take(event)
            self._enter()
        elif event.key in NEW_LINE_KEYS:
            _take(event)
            self.type_text("\n")
        elif event.character in JOINERS:
            _take(event)
            self.type_text(event.character)
        elif event.key == "ctrl+d" and self.text:
            _take(event)
            self.action_delete_right()
        elif not event.is_printable and (bindings := self._bindings.key_to_bindings.get(event.key)):
            _take(event)
            for binding in bindings:
                await self.run_action(binding.action)
        elif not await run_bound(self.screen, event):  # on its way there it would be overtaken
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        _take(event)
        text = clean(normal(event.text))
        if self.companion is not None and await self.companion.takes_paste(text):
            return
        self._close()
        if not self.text and text.startswith("/"):
            self._pasted_slash = True
        if is_long(text) and not self.unfold_again(text):
            text = self._chips.fold(text)
        self.type_text(text)

    def _enter(self) -> None:
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        if self.unfold_chip():
            return
        text, written = self.draft, self.written
        literal = self._pasted_slash or (text.startswith("/") and not self.text.startswith("/"))
        if not text.strip():
            return
        self.clear_draft()
        self._submit(text, literal, written)

    def clear_draft(self) -> None:
        """Empty the prompt; Up brings the text back."""
        self._close()
        if self.text.strip():
            self._sent.append(self.written)
        self._recalled = None
        self._pasted_slash = False
        self.clear()
        self._chips = Chips()
        self.history.clear()

    # ------------------------------------------------------------------ companion

    async def action_search(self) -> None:
        """Look for what was sent before."""
        if self.companion is not None:
            await self.companion.search()

    async def action_edit_elsewhere(self) -> None:
        """Edit the draft in another program."""
        if self.companion is not None:
            await self.companion.edit_elsewhere()

    def _close(self) -> None:
        if self.companion is not None:
            self.companion.closed()

    def on_blur(self) -> None:
        """The keyboard went elsewhere."""
        self._close()

    def on_click(self) -> None:
        """The cursor went elsewhere."""
        self._close()

    # ------------------------------------------------------------------ recall

    def action_cursor_up(self, select: bool = False) -> None:
        """Up; from the first row, the text sent before."""
        at_edge = self.wrapped_document.location_to_offset(self.cursor_location).y == 0
        before = len(self._sent) if self._recalled is None else self._recalled
        if not self.text and not before and not select:
            self.post_message(self.Edged())
            return
        if select or not at_edge or before == 0:
            super().action_cursor_up(select)
            return
        self._recall(before - 1)

    def action_cursor_down(self, select: bool = False) -> None:
        """Down; from the last row, the text sent after, and in the end the draft."""
        row = self.wrapped_document.location_to_offset(self.cursor_location).y
        if select or self._recalled is None or row < self.wrapped_document.height - 1:
            super().action_cursor_down(select)
            return
        following = self._recalled + 1
        self._recall(following if following < len(self._sent) else None)

    def _recall(self, place: int | None) -> None:
        """Another sent text, or the draft for None; what became of the present one is found again where it was."""
        if self._recalled is None:
            self._stashed = self.written
        else:
            self._sent[self._recalled] = self.written
        self._recalled = place
        self._pasted_slash = False
        self.put(self._stashed if place is None else self._sent[place])


def _take(event: events.Event) -> None:
    """The event is dealt with: neither the base class nor the screen may act on it."""
    event.stop()
    event.prevent_default()
