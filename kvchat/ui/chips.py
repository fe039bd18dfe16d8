"""Labels in the draft that stand for more: long pastes, files. Owns what is behind the labels; must not know widgets or
read files.

A chip stands in one line of the draft and is deleted as a unit. A paste goes out in its place; a file goes out in front
of the text, so that what the person asks about it can be changed without all of it being computed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kvchat.clean import clean_line

LEAST_LINES = 20
LEAST_CHARACTERS = 2_000


def is_long(text: str) -> bool:
    """Whether a pasted text becomes a chip."""
    return len(text) >= LEAST_CHARACTERS or text.count("\n") + 1 >= LEAST_LINES


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file, or its lines `first` to `last`, from 1 (None: all). `name` is how it was written behind the @."""

    path: str
    name: str
    first: int | None = None
    last: int | None = None

    @property
    def shown(self) -> str:
        """The name, with the lines, as it stands in a text."""
        lines = "" if self.first is None else f"#{self.first}-{self.last}"
        return f"@{clean_line(self.name)}{lines}"


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in a prompt, pastes in full. Of a file there is its label, which `files` explains."""

    text: str = ""
    files: Mapping[str, FileRef] = field(default_factory=dict)

    def message(self, blocks: Mapping[str, str]) -> str:
        """What goes out: `blocks`, by label, in front, each once, and in the text the name in place of the label."""
        pattern = _any_of(self.files)
        if pattern is None:
            return self.text
        used = dict.fromkeys(found[0] for found in pattern.finditer(self.text))
        front = dict.fromkeys(blocks[label] for label in used if label in blocks)
        text = pattern.sub(lambda found: self.files[found[0]].shown, self.text)
        return "\n\n".join((*front, text))


class Chips:
    """The chips of one draft. Labels that a chip had before still mean it: an undo brings them back."""

    def __init__(self) -> None:
        self._pastes: dict[str, str] = {}
        self._files: dict[str, FileRef] = {}
        self._blocks: dict[FileRef, str] = {}
        self._counted: set[str] = set()
        self._bare: dict[str, str] = {}  # label with a number of tokens -> the one that it was without
        self._pattern: re.Pattern[str] | None = None
        self._folded = 0

    @property
    def is_empty(self) -> bool:
        """Whether there was no label yet."""
        return self._pattern is None

    # ------------------------------------------------------------------ making labels

    def fold(self, text: str) -> str:
        """The label that stands for a paste from now on."""
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines >= LEAST_LINES else f"{len(text):,} characters"
        self._folded += 1
        return self._know(f"[Pasted #{self._folded} · {size}]", text)

    def refer(self, file: FileRef, size: str) -> str:
        """The label that stands for a file from now on; `size` says what is known of how much it is."""
        return self._know(f"{file.shown} · {size}", file)

    def restore(self, files: Mapping[str, FileRef]) -> None:
        """Labels that stand in a draft from elsewhere."""
        for label, file in files.items():
            self._know(label, file)

    def count(self, label: str, tokens: int) -> str:
        """The label that takes the place of `label`, with its number of tokens; `label` itself, when the draft has been
        sent meanwhile and it means nothing any more."""
        if label not in self._files and label not in self._pastes:
            return label
        size = f"{tokens:,} token{'' if tokens == 1 else 's'}"
        bare = self._bare.get(label, label)
        file = self._files.get(label)
        if file is not None:
            new = self._know(f"{file.shown} · {size}", file)
        else:
            new = self._know(f"{bare[:-1]} · {size}]", self._pastes[label])
        self._bare[new] = bare
        self._counted |= {label, new}
        return new

    def settle(self, label: str) -> None:
        """Nobody can say how many tokens this is."""
        self._counted.add(label)

    def recount(self) -> None:
        """Another vocabulary: the numbers are not known any more."""
        self._counted.clear()

    def keep_block(self, file: FileRef, block: str) -> None:
        """What was read of a file, as it goes out."""
        self._blocks[file] = block

    def _know(self, label: str, what: str | FileRef) -> str:
        if isinstance(what, str):
            self._pastes[label] = what
        else:
            self._files[label] = what
        self._pattern = _any_of((*self._pastes, *self._files))
        return label

    # ------------------------------------------------------------------ what they stand for

    def written(self, draft: str) -> Written:
        """The draft with its pastes in full."""
        text = self._unfold(draft)
        return Written(text, {label: file for label, file in self._files.items() if label in text})

    def message(self, draft: str) -> str:
        """What would go out, as far as the files have been read."""
        known = {label: self._blocks[file] for label, file in self._files.items() if file in self._blocks}
        return self.written(draft).message(known)

    def plain(self, draft: str) -> str:
        """The draft with its pastes in full and the names of its files."""
        return self.written(draft).message({})

    def text(self, label: str) -> str | None:
        """What a label stands for in the draft: a paste, or the name of a file as it was typed."""
        file = self._files.get(label)
        return self._pastes.get(label) if file is None else file.shown

    def is_file(self, label: str) -> bool:
        """Whether a label is that of a file."""
        return label in self._files

    def unread(self, draft: str) -> Iterator[tuple[str, FileRef]]:
        """Labels in the draft of files that were not read yet."""
        for label in _found(self._pattern, draft):
            file = self._files.get(label)
            if file is not None and file not in self._blocks:
                yield label, file

    def uncounted(self, draft: str) -> Iterator[tuple[str, str]]:
        """Labels in the draft whose tokens are not known, with the text that is to be counted."""
        for label in _found(self._pattern, draft):
            text = self._blocks.get(self._files[label]) if label in self._files else self._pastes[label]
            if label not in self._counted and text:
                yield label, text

    def _unfold(self, draft: str) -> str:
        if self._pattern is None:
            return draft
        return self._pattern.sub(lambda found: self._pastes.get(found[0], found[0]), draft)

    # ------------------------------------------------------------------ where they stand

    def before(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that ends at `column`."""
        return next((span for span in self.spans(line) if span[1] == column), None)

    def at(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that begins at `column`: the one that the cursor is drawn on."""
        return next((span for span in self.spans(line) if span[0] == column), None)

    def around(self, line: str, column: int) -> tuple[int, int] | None:
        """The chip that `column` lies within, not at its edge."""
        return next((span for span in self.spans(line) if span[0] < column < span[1]), None)

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        """All chips of a line."""
        if self._pattern is not None:
            yield from (found.span() for found in self._pattern.finditer(line))


def _any_of(labels: Mapping[str, object] | tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds the labels, the longest first: one may begin like another."""
    return re.compile("|".join(map(re.escape, sorted(labels, key=len, reverse=True)))) if labels else None


def _found(pattern: re.Pattern[str] | None, text: str) -> list[str]:
    return [found[0] for found in pattern.finditer(text)] if pattern is not None else []
