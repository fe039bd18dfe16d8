"""Files that are made to hurt: they end in bounded memory, with words, and what came before them is read."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kvchat.errors import FormatError
from kvchat.formats import json_stream, transcript_read
from kvchat.formats.transcript import Broken, Transcript
from kvchat.formats.transcript_read import read_transcripts

GOOD: dict[str, Any] = {
    "title": "Good",
    "id": "g",
    "current_node": "1",
    "mapping": {
        "1": {
            "id": "1",
            "parent": None,
            "children": [],
            "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hi"]}},
        }
    },
}


def read(data: bytes) -> list[str]:
    """What is in it: titles, and what is wrong."""
    found: list[str] = []
    try:
        found.extend(
            each.problem if isinstance(each, Broken) else each.title for each in read_transcripts(io.BytesIO(data))
        )
    except FormatError as error:
        found.append(error.message)
    return found


def packed(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def tree(count: int, **node: object) -> bytes:
    mapping = {
        str(number): GOOD["mapping"]["1"] | {"id": str(number), "parent": str(number - 1) if number else None} | node
        for number in range(count)
    }
    return json.dumps([GOOD, GOOD | {"title": "Bad", "mapping": mapping}]).encode()


def test_names_that_lead_elsewhere_are_only_names(tmp_path: Path) -> None:
    good = json.dumps([GOOD]).encode()
    names = ("../../../evil.json", "/etc/evil.json", "C:\\evil.json", "a/../../b.json", "\x1b[31m\u202e.json")
    assert read(packed(dict.fromkeys(names, good))) == ["Good"] * len(names)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_unpacks_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_read, "LARGEST", 1 << 20)
    monkeypatch.setattr(transcript_read, "LARGEST_IN_ALL", 3 << 20)
    good = json.dumps([GOOD]).encode()
    bomb = b"[" + b" " * (2 << 20) + b"]"
    assert read(packed({"a.json": good, "b.json": bomb})) == ["Good", "b.json in it is too large"]
    many = {f"{number}.json": b"[" + b" " * 900_000 + b"]" for number in range(9)}
    assert read(packed({"a.json": good} | many)) == ["Good", "what is packed in it is too large"]


def test_an_archive_in_an_archive_is_not_opened() -> None:
    inner = packed({"a.json": json.dumps([GOOD]).encode()})
    assert read(packed({"inner.zip": inner, "b.json": json.dumps([GOOD]).encode()})) == ["Good"]


def test_an_archive_that_lies_about_its_sizes() -> None:
    """No more is read than it says, and then it is damaged."""
    data = bytearray(packed({"a.json": json.dumps([GOOD] * 50).encode()}))
    size = len(json.dumps([GOOD] * 50)).to_bytes(4, "little")
    at = data.rindex(size)
    data[at : at + 4] = (100).to_bytes(4, "little")
    assert all(each == "Good" or "damaged" in each or "breaks off" in each for each in read(bytes(data)))


def test_a_value_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LONGEST_VALUE", 4 << 20)
    for endless in (b'"' + b"a" * (12 << 20), b"[" + b"1," * (6 << 20), b'{"mapping": {' + b'"x": {}, ' * (1 << 20)):
        assert read(b"[" + json.dumps(GOOD).encode() + b"," + endless) == [
            "Good",
            "a value in it has more than 4 million characters",
        ]


@pytest.mark.parametrize("opening", ["[", '{"mapping":', '[{"a":'])
def test_a_deep_nest(opening: str) -> None:
    deep = (opening * 200_000).encode()
    assert read(b"[" + json.dumps(GOOD).encode() + b"," + deep)[0] == "Good"


def test_too_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_read, "MOST_MESSAGES", 1000)
    assert read(tree(1000)) == ["Good", "Bad"]
    assert read(tree(1001)) == ["Good", "it has more than 1,000 messages"]


def test_circles() -> None:
    assert read(tree(3, parent="1")) == ["Good", "its messages run in a circle"]
    for parents in ({"0": "0"}, {"0": "1", "1": "0"}):
        nodes = {name: GOOD["mapping"]["1"] | {"id": name, "parent": parent} for name, parent in parents.items()}
        assert read(json.dumps([GOOD | {"mapping": nodes}]).encode()) == ["its messages run in a circle"]


LIMITED = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from kvchat.cli import main
code = main(["chats", "import", *sys.argv[1:]])
sys.exit(0 if time.process_time() < 100 else f"{time.process_time()} seconds")
"""


def test_half_a_million_messages_within_three_gigabytes(tmp_path: Path, home: Path) -> None:
    """The limits of the program. Time is that of the processor, and a bound far from what it takes."""
    million = tmp_path / "million.json"
    node = json.dumps(
        GOOD["mapping"]["1"] | {"message": {"author": {"role": "assistant"}, "content": {"parts": ["x"]}}}
    )
    with million.open("w") as file:
        file.write('[{"title": "Bad", "mapping": {')
        file.writelines(f'"{number}": {node}, ' for number in range(400_000))
        file.write(f'"last": {node}}}}}]')
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json", b'["' + b"a" * (200 << 20) + b'"]')
    words = [sys.executable, "-c", LIMITED, str(million), str(bomb)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "it has more than 100,000 messages" in done.stdout
    assert "a value in it has more than 32 million characters" in done.stdout
    assert home.is_dir()


def test_types_are_what_they_say() -> None:
    """A good one is still read after all this."""
    (found,) = read_transcripts(io.BytesIO(json.dumps([GOOD]).encode()))
    assert isinstance(found, Transcript)
