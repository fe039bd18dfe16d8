"""A reply as rows: its reasoning, folded, and its answer as Markdown. Owns which of both a text is; must not know
headings, footers or scrolling.
"""

from __future__ import annotations

from kvchat.reasoning import WITHOUT, Split, split_late, split_whole, undecided
from kvchat.ui.code_panel import code_of
from kvchat.ui.entry import NO_THOUGHT, ThoughtCost
from kvchat.ui.markdown_blocks import document
from kvchat.ui.markdown_rows import AnyRow, Block, Runs, runs_of
from kvchat.ui.markdown_stream import Stream
from kvchat.ui.reasoning_rows import ReasoningRows


class MarkdownBody:
    """Rows of a text that may grow. While it is `live`, only its end is rendered again."""

    def __init__(
        self, text: str, width: int, *, live: bool, cost: ThoughtCost = NO_THOUGHT, earlier: MarkdownBody | None = None
    ) -> None:
        """`earlier` is the same text at another width. `cost`: what the engine says of its reasoning."""
        self._width = width
        self._cost = cost
        self._live = live
        self._timed = live and not text
        before = None if earlier is None else earlier._reasoning
        self._reasoning: ReasoningRows | None = None if before is None else before.resized(width)
        self._answer = 0
        self._stream: Stream | None = None
        self._rows: list[AnyRow] = []
        self._blocks: list[Block] = []
        self._text = ""
        self._settle(text)

    # ------------------------------------------------------------------ text

    def told(self, cost: ThoughtCost) -> None:
        """What the engine says of the reasoning in the text that comes next."""
        self._cost = cost

    def grow(self, text: str) -> int:
        """More of the text, which begins with what it was. Returns the first row that changed."""
        before, self._text = len(self._text), text
        if self._stream is None:
            return self._begin(text)
        late = split_late(text, before) if self._reasoning is None else None
        if late is not None and late.end:
            self._think(text, late)
            return self._begin(text)
        return self._above + self._stream.feed(text)

    def finish(self, text: str) -> None:
        """The text is complete: all of it is rendered once more, for what its end changed about its beginning."""
        self._live = False
        self._settle(text)

    def _settle(self, text: str) -> None:
        self._text, self._stream = text, None
        found = self._split(text)
        if found != WITHOUT:
            self._think(text, found)
        if self._live:
            self._begin(text)
        else:
            self._rows, self._blocks = document(text, self._width, self._answer)

    def _begin(self, text: str) -> int:
        """As long as no answer has begun, or where it begins anew."""
        if self._reasoning is None or not self._reasoning.split.ended:
            found = self._split(text)
            if found != WITHOUT:
                self._think(text, found)
                if not found.ended:
                    return 0
            elif undecided(text):
                return 0
        self._stream = Stream(self._width, self._answer)
        self._stream.feed(text)
        return 0

    def _split(self, text: str) -> Split:
        """Where the reasoning is."""
        return split_whole(text, counted=bool(self._cost.tokens))

    def _think(self, text: str, found: Split) -> None:
        if self._reasoning is None:
            self._reasoning = ReasoningRows(self._width, found.start, timed=self._timed)
        self._reasoning.grow(text, found, self._cost, live=self._live)
        self._answer = found.answer

    # ------------------------------------------------------------------ rows

    @property
    def _thoughts(self) -> int:
        return 0 if self._reasoning is None else len(self._reasoning)

    @property
    def _above(self) -> int:
        """Rows above the answer."""
        return self._thoughts + bool(self._thoughts)

    @property
    def _answer_rows(self) -> int:
        return len(self._rows) if self._stream is None else len(self._stream.settled) + len(self._stream.tail)

    def __len__(self) -> int:
        answer = self._answer_rows
        while answer and not any(run.text for run in self._answer_row(answer - 1)):
            answer -= 1
        return self._above + answer if answer else self._thoughts

    def row(self, number: int) -> Runs:
        """Row `number`."""
        if self._reasoning is not None and number < self._thoughts:
            return self._reasoning.row(number)
        return () if number < self._above else self._answer_row(number - self._above)

    def _answer_row(self, number: int) -> Runs:
        if self._stream is None:
            return runs_of(self._rows[number])
        settled = self._stream.settled
        return runs_of(settled[number] if number < len(settled) else self._stream.tail[number - len(settled)])

    # ------------------------------------------------------------------ blocks

    @property
    def shown_from(self) -> int:
        """Where in the text what is shown begins: folded reasoning is not."""
        return 0 if self._reasoning is None or self._reasoning.unfolded else self._answer

    @property
    def blocks(self) -> list[Block]:
        """All blocks, the reasoning first."""
        blocks = self._blocks if self._stream is None else self._stream.blocks
        found = [block._replace(first=block.first + self._above) for block in blocks]
        if self._thoughts and self._reasoning is not None:
            thought = self._reasoning.split
            found.insert(0, Block("reasoning", thought.start, thought.end, 0, self._thoughts))
        return found

    def copied(self, block: Block) -> str:
        """What a copy of a block takes: of code without its fence."""
        text = self._text[block.start : block.end]
        return code_of(block.kind, text) if block.kind in ("fence", "code_block") else text.strip("\n")

    @property
    def answer(self) -> str:
        """The text without the reasoning."""
        return self._text[self._answer :].strip("\n")

    def fold(self, unfolded: bool) -> None:
        """Show all of the reasoning, or not."""
        if self._reasoning is not None:
            self._reasoning.unfolded = unfolded
