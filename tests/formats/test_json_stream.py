"""JSON values one after the other: in pieces of any size, behind broken ones, and with bounded work."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kvchat.formats import json_stream
from kvchat.formats.json_stream import BrokenJson, json_values

VALUES: list[Any] = [{"a": [1, {"b": '}]\\" '}]}, {"한": "👩‍💻\n"}, {}, [1.5, None, True], {"deep": [[[{}]]]}]
FORMS = [
    json.dumps(VALUES),
    json.dumps(VALUES, indent=2, ensure_ascii=False),
    "\n".join(map(json.dumps, VALUES[:3])),
    "\n".join(json.dumps(value, indent=1) for value in VALUES[:3]),
    "".join(map(json.dumps, VALUES[:3])),
]


class Slow(io.StringIO):
    """Gives at most `most` characters at a time, and counts all."""

    def __init__(self, text: str, most: int = 1 << 30) -> None:
        super().__init__(text)
        self.most = most
        self.given = 0

    def read(self, size: int | None = -1) -> str:
        piece = super().read(self.most if size is None or size < 0 else min(size, self.most))
        self.given += len(piece)
        return piece


def read(text: str, most: int = 1 << 30) -> list[object]:
    return list(json_values(Slow(text, most)))


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("most", [1, 3, 7, 64, 1 << 30])
def test_pieces_of_any_size(text: str, most: int) -> None:
    assert read(text, most) == VALUES[: 5 if text.startswith("[") else 3]


def kinds(text: str, most: int = 1 << 30) -> list[object]:
    return ["broken" if isinstance(value, BrokenJson) else value for value in read(text, most)]


@pytest.mark.parametrize("most", [1, 5, 1 << 30])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"a": 1}, {"b": x}, {"c": 3}]', [{"a": 1}, "broken", {"c": 3}]),
        ('[{"a": 1}, {"b": "}" "{"}, {"c": 3}]', [{"a": 1}, "broken", {"c": 3}]),
        ('[{"a": 1}, foo, {"c": 3}]', [{"a": 1}, "broken", {"c": 3}]),
        ('[{"a": 1}, {"b": [1, 2', [{"a": 1}, "broken"]),  # cut off
        ('[{"a": 1}, {"b": "text', [{"a": 1}, "broken"]),
        ('[{"a": 1}', [{"a": 1}]),
        ('[{"a": 1}, {"b": "\\u12"}, {"c": 3}]', [{"a": 1}, "broken", {"c": 3}]),
        ('{"a": 1}\n{"b": "cut\n{"c": 3}', [{"a": 1}, "broken", {"c": 3}]),
        ('{"a": 1}\n{"b": [}\n{"c": 3}\n', [{"a": 1}, "broken", {"c": 3}]),
        ('{"a": 1}\n}}\n{"c": 3}\n', [{"a": 1}, "broken", {"c": 3}]),
        ('[{"a": 1}] {"b": 2}', [{"a": 1}, {"b": 2}]),
    ],
)
def test_broken_values(text: str, expected: list[object], most: int) -> None:
    assert kinds(text, most) == expected


def test_nested_too_deeply_and_numbers_too_long() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert kinds(f'[{{"a": 1}}, {deep}, {{"b": {"9" * 5000}}}, {{"c": 3}}]') == [{"a": 1}, "broken", "broken", {"c": 3}]


def test_a_long_text_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is read than a piece beyond the value that is given out."""
    monkeypatch.setattr(json_stream, "_PIECE", 1000)
    stream = Slow(json.dumps([{"text": "x" * 100}] * 1000))
    values = json_values(stream)
    for count in range(1, 1001):
        next(values)
        assert stream.given <= count * 115 + 2000
    assert list(values) == []


def test_work_does_not_grow_with_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long value is begun anew only when what was read of it has doubled."""
    decoded = 0
    original = json.JSONDecoder.raw_decode

    def counting(self: json.JSONDecoder, text: str, at: int = 0) -> Any:
        nonlocal decoded
        decoded += len(text) - at
        return original(self, text, at)

    monkeypatch.setattr(json_stream, "_PIECE", 1000)
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counting)
    for text in (json.dumps([{"text": "x" * 1_000_000}]), '[{"text": ["' + "x" * 1_000_000):
        decoded = 0
        assert len(list(json_values(io.StringIO(text)))) == 1
        assert decoded < 3 * len(text)
