"""Source code to coloured spans. Owns the lexers and what their tokens are called here; must not know rows, themes."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

Span = tuple[int, int, str]

_INKS = (
    ("Comment.Preproc", "code-name"),
    ("Comment", "code-comment"),
    ("Keyword.Constant", "code-number"),
    ("Keyword", "code-keyword"),
    ("Literal.String.Doc", "code-comment"),
    ("Literal.String", "code-string"),
    ("Literal.Number", "code-number"),
    ("Name.Function", "code-name"),
    ("Name.Class", "code-name"),
    ("Name.Decorator", "code-name"),
    ("Name.Tag", "code-keyword"),
    ("Name.Attribute", "code-name"),
    ("Name.Builtin", "code-name"),
    ("Operator.Word", "code-keyword"),
    ("Generic.Inserted", "code-string"),
    ("Generic.Deleted", "code-deleted"),
    ("Generic.Heading", "code-name"),
    ("Generic.Subheading", "code-keyword"),
)
_KNOWN_CHUNKS = 64


def highlighted(language: str, lines: list[str], *, passing: bool = False) -> list[list[Span]]:
    """Spans of each line, without gaps. `passing`: nobody will ask for these lines again."""
    spans = _spans.__wrapped__ if passing else _spans
    return spans(language.lower(), "\n".join(lines) + "\n")


@lru_cache(_KNOWN_CHUNKS)
def _spans(language: str, text: str) -> list[list[Span]]:
    """The text, which ends with a line feed, is the key: the end of an answer is rendered anew, and finds here what its
    writing left."""
    lines: list[list[Span]] = [[]]
    column = at = 0
    for index, end, kind in (*_tokens(language, text), (len(text), len(text), "")):
        for stop, ink in ((index, "text"), (end, _ink(kind))):
            for number, part in enumerate(text[at:stop].split("\n")):
                if number:
                    lines.append([])
                    column = 0
                if part:
                    _extend(lines[-1], column, column + len(part), ink)
                    column += len(part)
            at = max(at, stop)
    return lines[:-1]


def _extend(line: list[Span], start: int, end: int, ink: str) -> None:
    """Lexers give what they do not know letter by letter; spans cut in a grapheme would be drawn too wide."""
    if line and line[-1][2] == ink:
        start = line.pop()[0]
    line.append((start, end, ink))


def _tokens(language: str, text: str) -> list[tuple[int, int, str]]:
    """Where each token begins and ends, and what it is; none for a language that nobody knows."""
    lexer = _lexer(language)
    if lexer is None:
        return []
    try:
        return [(index, index + len(value), str(kind)) for index, kind, value in lexer.get_tokens_unprocessed(text)]
    except Exception:  # noqa: BLE001 (one of hundreds of lexers failed at what a model wrote: no colours then)
        return []


@cache
def _ink(kind: str) -> str:
    name = kind.removeprefix("Token.")
    return next((ink for prefix, ink in _INKS if name == prefix or name.startswith(prefix + ".")), "text")


@lru_cache(_KNOWN_CHUNKS)
def _lexer(language: str) -> Any:
    """None for a language that nobody knows. Loaded when code is first drawn."""
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
