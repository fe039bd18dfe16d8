"""Text within a paragraph, heading or cell to runs. Owns how emphasis, links and code look, and where in the source
each run stands; must not know blocks or widths.

The parser does not say where its text came from. It comes in order, so that each piece is looked for behind the last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvchat.clean import clean, clean_line
from kvchat.ui.markdown_parse import LINE_BREAK, Parsed
from kvchat.ui.markdown_rows import Run, marked

if TYPE_CHECKING:
    from markdown_it.token import Token

_LINK_END = re.compile(r"\](?:\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)|\[[^\]]*\])?")
_MARKS = {"strong": "b", "em": "i", "s": "s"}


def inline_runs(parsed: Parsed, token: Token, first: int, last: int, ink: str = "text") -> list[Run]:
    """Runs of an inline token that stands in `[first, last)` of the parsed text."""
    reader = _Reader(parsed, first, last, ink)
    for child in token.children or ():
        reader.read(child)
    return reader.runs


class _Reader:
    """Goes through the tokens and the source side by side."""

    def __init__(self, parsed: Parsed, first: int, last: int, ink: str) -> None:
        self.runs: list[Run] = []
        self._text = parsed.text
        self._base = parsed.base
        self._at = first
        self._last = last
        self._ink = ink
        self._marks: list[str] = []
        self._links: list[str] = []

    def read(self, token: Token) -> None:
        """Take one token."""
        match token.type:
            case "text" | "math":
                self._add(token.content, token.content)
            case "text_special":
                self._special(token)
            case "softbreak" | "hardbreak":
                self._add("\n", "\n")
            case "code_inline":
                self._skip(token.markup)
                self._add(token.content, token.content, "code")
                self._skip(token.markup)
            case "html_inline" if LINE_BREAK.fullmatch(token.content):
                self._add("\n", token.content)
            case "link_open":
                self._open_link(token)
            case "link_close":
                self._close_link(token)
            case "image":
                self._image(token)
            case kind if kind.endswith(("_open", "_close")):
                self._skip(token.markup)
                self._mark(kind)
            case _:
                self._add(token.content, token.content)

    def _special(self, token: Token) -> None:
        """An escape or an entity. An entity may stand for what a terminal would obey. Brackets after a backslash are
        the edge of a formula whose other edge is missing."""
        escaped_bracket = token.info == "escape" and token.content in "()[]"
        self._add(token.markup if escaped_bracket else clean(token.content), token.markup)

    def _mark(self, kind: str) -> None:
        name, _, side = kind.rpartition("_")
        mark = _MARKS.get(name, "")
        if side == "open":
            self._marks.append(mark)
        elif mark in self._marks:
            self._marks.remove(mark)

    def _open_link(self, token: Token) -> None:
        self._skip("<" if token.info == "auto" else "[")
        self._links.append("" if token.info == "auto" else str(token.attrs.get("href", "")))

    def _close_link(self, token: Token) -> None:
        address = self._links.pop() if self._links else ""
        if token.info == "auto":
            self._skip(">")
        else:
            self._end_link()
            self._address(address)

    def _image(self, token: Token) -> None:
        self._skip("![")
        self._links.append("")
        self._add(token.content or "image", token.content)
        self._links.pop()
        self._end_link()
        self._address(str(token.attrs.get("src", "")))

    def _end_link(self) -> None:
        if found := _LINK_END.match(self._text, self._at, self._last):
            self._at = found.end()

    def _address(self, address: str) -> None:
        if address and not (self.runs and self.runs[-1].text == address):
            self.runs.append(Run(f" ({clean_line(address)})", "meta"))

    def _skip(self, markup: str) -> None:
        found = self._text.find(markup, self._at, self._last)
        if found >= 0:
            self._at = found + len(markup)

    def _add(self, text: str, written: str, ink: str = "") -> None:
        """Text, and what stands for it in the source."""
        if not text:
            return
        found = self._text.find(written, self._at, self._last)
        start = end = -1
        if found >= 0:
            self._at = found + len(written)
            start, end = self._base + found, self._base + self._at
        self.runs.append(Run(text.replace("\t", " "), self._style(ink), start, end))

    def _style(self, ink: str) -> str:
        return marked(ink or ("link" if self._links else self._ink), "".join(self._marks))
