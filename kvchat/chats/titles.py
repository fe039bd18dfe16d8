"""What a first message is about, in a few words: its first sentence as plain text. Pure; must not know chats.

Fenced blocks are passed over (they are files and code that the question is about), unless there is nothing else. Marks
of Markdown go, their words stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvchat.clean import cell_width, clean, clean_line

_LONGEST, _LONGEST_LINE = 1 << 20, 500  # characters that are looked at
_SHORTEST_SENTENCE = 8  # cells: what is shorter, such as "Hi!", goes on with the next one
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LINE_MARK = re.compile(r"\s*(?:#{1,6}\s+|>\s?|(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?)")
_RULE = re.compile(r"\s*(?:([-*_=])\s*)(?:\1\s*){2,}")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()\s]*(?:\s+\"[^\"]*\")?\)|\[[^\[\]]*\])")
_CODE = re.compile(r"(`+)\s*(.+?)\s*\1")
_STRONG = re.compile(r"(?<!\w)(\*{1,3}|~~|_{1,3}(?!\w+__))(?=\S)(.+?)(?<=\S)\1(?!\w)")
# The end of a sentence: a wide mark ends one anywhere, the others where a space and no small letter follows.
_END = re.compile(r"[。！？]+[」』”’）]*|[.!?…]+[\"'”’)\]]*(?=\s+[^\sa-zà-ÿ]|$)")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:\w{1,2}|(?:\w\.)+\w|[Pp]rof|etc|approx|Mrs|vs|bzw|ca)\.$")


def headline(text: str, cells: int) -> str:
    """The first sentence of a message without marks of Markdown, at most `cells` wide. "" where nothing shows."""
    inside = ""
    for line, fenced in _lines(text):
        if fenced:
            inside = inside or _plain(line)
        elif plain := _plain(line):
            return _fitting(_first_sentence(plain), cells)
    return _fitting(inside, cells)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of a text, and whether each is inside a fenced block. The fences themselves and rules are left out."""
    fence = ""
    for line in text[:_LONGEST].splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
        elif not _RULE.fullmatch(line[:_LONGEST_LINE]):
            yield line[:_LONGEST_LINE], bool(fence)


def _plain(line: str) -> str:
    line = clean(line)
    while mark := _LINE_MARK.match(line):
        line = line[mark.end() :]
    line = _LINK.sub(r"\1", line)
    line = _CODE.sub(r"\2", line)
    for _ in range(2):  # one inside another
        line = _STRONG.sub(r"\2", line)
    return clean_line(line)


def _first_sentence(line: str) -> str:
    for end in _END.finditer(line):
        sentence = line[: end.end()]
        if cell_width(sentence) >= _SHORTEST_SENTENCE and not _ABBREVIATION.search(sentence):
            line = sentence
            break
    whole = line.rstrip("。")
    return whole[:-1] if whole.endswith(".") and not whole.endswith("..") else whole


def _fitting(text: str, cells: int) -> str:
    if cell_width(text) <= cells:
        return text
    from wcwidth import iter_graphemes

    kept, used = "", 0
    for grapheme in iter_graphemes(text):
        used += cell_width(grapheme)
        if used > cells - 1:
            break
        kept += grapheme
    return kept.rstrip() + "…"
