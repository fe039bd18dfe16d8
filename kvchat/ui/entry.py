"""One entry of the transcript as lines of text. Owns its parts from heading to footer; must not know widgets, styles or
scrolling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len

from kvchat.clean import clean
from kvchat.ui.display import display, display_line
from kvchat.ui.markdown_rows import Block, PlainRows, Run, Runs

if TYPE_CHECKING:
    from kvchat.ui.markdown_body import MarkdownBody

NoteKind = Literal["info", "warning", "error"]
Kind = Literal["user", "assistant"] | NoteKind
LineRole = Literal["heading", "body", "footer", "blank"]
CARET = Run("▍", "text")


class ThoughtCost(NamedTuple):
    """What the engine says of the reasoning in a reply: its tokens, and the seconds that writing them took. 0 where it
    says nothing."""

    tokens: int = 0
    seconds: float = 0.0


NO_THOUGHT = ThoughtCost()


@dataclass(frozen=True, slots=True)
class Entry:
    """A message, or a note of the program's own. `live`: text is still coming. No string here is ever markup, except
    that the text of a reply is shown as Markdown."""

    id: str
    kind: Kind
    text: str
    heading: str = ""
    footer: str = ""
    live: bool = False
    thought: ThoughtCost = NO_THOUGHT


class Line(NamedTuple):
    """One line as it stands on the screen."""

    role: LineRole
    runs: Runs = ()


BLANK = Line("blank")


class PlainBody:
    """A text that is shown as it was written."""

    shown_from = 0

    def __init__(self, text: str, width: int) -> None:
        self._rows = PlainRows(width)
        self._text = ""
        self.grow(text)

    def grow(self, text: str) -> int:
        """More of the text, which begins with what it was. Returns the first row that changed."""
        self._text = text
        return self._rows.grow(text)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Runs:
        """Row `number`."""
        return self._rows.row(number)

    @property
    def blocks(self) -> list[Block]:
        """All of it is one."""
        return [Block("text", 0, len(self._text), 0, len(self))]

    def copied(self, block: Block) -> str:  # noqa: ARG002 (there is one)
        """All of it."""
        return self._text

    @property
    def answer(self) -> str:
        """All of it."""
        return self._text

    def fold(self, unfolded: bool) -> None:
        """There is nothing to fold."""

    def told(self, cost: ThoughtCost) -> None:
        """There is no reasoning."""


class Item:
    """An entry being shown. It is cleaned and rendered when it is first measured, which a long chat does for few."""

    __slots__ = (
        "_cleaned",
        "_footer",
        "_unfolded",
        "_width",
        "body",
        "footer",
        "heading",
        "id",
        "kind",
        "live",
        "text",
        "thought",
    )

    def __init__(self, entry: Entry, *, unfolded: bool = False) -> None:
        self.id = entry.id
        self.kind = entry.kind
        self.heading = display_line(entry.heading)
        self.footer = display(entry.footer)
        self.live = entry.live
        self.text = entry.text
        self.thought = entry.thought
        self._cleaned = False
        self._unfolded = unfolded
        self._width = 0
        self.body: PlainBody | MarkdownBody = PlainBody("", 1)
        self._footer = PlainRows(1)

    # ------------------------------------------------------------------ text and size

    def estimate(self, width: int) -> int:
        """Lines that it will probably have, without looking at each character."""
        lines = self.text.count("\n") + 1 + len(self.text) // max(1, width)
        return bool(self.heading) + lines + bool(self.footer) + 1

    def measure(self, width: int) -> int:
        """Render for `width` cells, if that is not done, and return the number of lines."""
        if width != self._width:
            self._width = width
            self._render()
        return self.height

    @property
    def height(self) -> int:
        """Lines at the width for which it was last measured."""
        return bool(self.heading) + self._body_height + len(self._footer) + 1

    @property
    def _body_height(self) -> int:
        """Rows of the text; a live entry has at least the caret's."""
        return max(len(self.body), int(self.live))

    def append(self, text: str, thought: ThoughtCost) -> int:
        """Add text at the end and return the first line that changed. Costs the new text and the last block."""
        self._tell(thought)
        if not self._width:
            self.text += text
            self._cleaned = False
            return 0
        before = max(0, self._body_height - 1)
        self.text += clean(text)
        first = min(before, self.body.grow(self.text))
        return bool(self.heading) + min(first, max(0, self._body_height - 1))

    def _tell(self, thought: ThoughtCost) -> None:
        self.thought = thought
        self.body.told(thought)

    def finish(self, footer: str, thought: ThoughtCost) -> None:
        """No more text comes. Everything is rendered once more: what came last may change what came before."""
        self._tell(thought)
        self.live = False
        self.footer = display(footer)
        if self._width:
            self._render(finished=True)

    def rename(self, heading: str | None, footer: str | None) -> None:
        """Another heading or footer; None: as it is."""
        if heading is not None:
            self.heading = display_line(heading)
        if footer is not None:
            self.footer = display(footer)
            if self._width:
                self._render_footer()

    def _render_footer(self) -> None:
        self._footer = PlainRows(self._width)
        self._footer.grow(self.footer)

    def clean_text(self) -> str:
        """The text without anything that a terminal would obey."""
        if not self._cleaned:
            self.text = clean(self.text)
            self._cleaned = True
        return self.text

    def _render(self, *, finished: bool = False) -> None:
        text = self.clean_text()
        if self.kind != "assistant":
            self.body = PlainBody(text, self._width)
        else:
            self._render_markdown(text, finished)
        self.body.fold(self._unfolded)
        self._render_footer()

    def _render_markdown(self, text: str, finished: bool) -> None:
        from kvchat.ui.markdown_body import MarkdownBody  # the first frame does without

        earlier = self.body if isinstance(self.body, MarkdownBody) else None
        if earlier is not None and finished:
            earlier.finish(text)
        else:
            self.body = MarkdownBody(text, self._width, live=self.live, cost=self.thought, earlier=earlier)

    # ------------------------------------------------------------------ lines

    def line(self, number: int) -> Line:
        """Line `number`, counted from the top of the entry."""
        if self.heading:
            if number == 0:
                return Line("heading", (Run(self.heading, "text"),))
            number -= 1
        body = self._body_height
        if number < body:
            return self._body_line(number, last=number == body - 1)
        number -= body
        return Line("footer", self._footer.row(number)) if number < len(self._footer) else BLANK

    def _body_line(self, number: int, *, last: bool) -> Line:
        runs = self.body.row(number) if number < len(self.body) else ()
        if self.live and last and sum(cell_len(run.text) for run in runs) < self._width:
            runs = (*runs, CARET)
        return Line("body", runs)

    # ------------------------------------------------------------------ blocks

    @property
    def blocks(self) -> list[Block]:
        """What browsing marks one by one; at least one."""
        return self.body.blocks or [Block("text", 0, len(self.text), 0, 0)]

    def block_lines(self, number: int) -> tuple[int, int]:
        """First and last line of a block; heading and footer belong to the first and the last one."""
        blocks = self.blocks
        block = blocks[number]
        first = 0 if number == 0 else bool(self.heading) + block.first
        last = self.height - 2 if number == len(blocks) - 1 else bool(self.heading) + block.first + block.rows - 1
        return first, last

    def block_text(self, number: int) -> str:
        """What a copy of a block takes."""
        return self.body.copied(self.blocks[number])

    @property
    def answer(self) -> str:
        """The text without the reasoning."""
        return self.body.answer

    @property
    def can_fold(self) -> bool:
        """Whether it has reasoning."""
        return any(block.kind == "reasoning" for block in self.blocks)

    @property
    def unfolded(self) -> bool:
        """Whether all of its reasoning is shown."""
        return self._unfolded

    def fold(self, unfolded: bool) -> None:
        """Show all of its reasoning, or one line."""
        self._unfolded = unfolded
        self.body.fold(unfolded)
