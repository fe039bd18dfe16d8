"""Some thousand mutated inputs for every reader of what others wrote. `benchmarks/fuzz.py` goes on for longer."""

from __future__ import annotations

import base64
import io
import random
import struct
import zipfile
from pathlib import Path

import pytest
from fuzz_targets import TARGETS
from fuzzing import MOST_BYTES, Target, fuzz, mutated

from kvchat.errors import FormatError
from kvchat.formats.state import COUNTS, MAGIC, PREFIX, ROWS, Layout, parse
from kvchat.formats.transcript_read import read_transcripts

INPUTS = 1000


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_an_answer_or_a_refusal(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    seeds = target.seeds(tmp_path)
    run = fuzz(target, tmp_path, INPUTS, seed=1)
    assert run.bad == [], [(base64.b64encode(raw), outcome) for raw, outcome in run.bad[:3]]
    assert run.inputs == INPUTS
    assert len(run.corpus) > len(seeds), "nothing that was tried led anywhere new"


def packed(how: int) -> bytearray:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", how) as file:
        file.writestr("conversations.json", "[]")
    return bytearray(archive.getvalue())


def test_an_archive_whose_directory_points_before_its_beginning() -> None:
    raw = packed(zipfile.ZIP_STORED)
    raw[-6:-2] = (0x7FFFFFFF).to_bytes(4, "little")  # where the directory begins, in the last record
    with pytest.raises(FormatError):
        list(read_transcripts(io.BytesIO(raw)))


def test_an_archive_with_a_name_that_is_not_text() -> None:
    raw = packed(zipfile.ZIP_STORED).replace(b"conversations", b"conversation\xff")
    raw[6:8] = (0x800).to_bytes(2, "little")  # "the name is UTF-8", in both places
    directory = raw.index(b"PK\x01\x02")
    raw[directory + 8 : directory + 10] = (0x800).to_bytes(2, "little")
    with pytest.raises(FormatError):
        list(read_transcripts(io.BytesIO(raw)))


@pytest.mark.parametrize("how", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_archive_that_is_packed_in_an_unusual_way(how: int) -> None:
    with pytest.raises(FormatError, match="unusual"):
        list(read_transcripts(io.BytesIO(packed(how))))


def test_a_state_without_cells_and_with_rows_of_any_size() -> None:
    """No byte of them is there, so the size of the blob does not bound them."""
    layout = Layout(("state",), True, False)
    blob = PREFIX.pack(MAGIC, 0) + struct.pack("<I", 0) + COUNTS.pack(0, 1) + 2 * ROWS.pack(0, 2**63)
    with pytest.raises(FormatError, match="rows of"):
        parse(blob, layout)


def test_the_generator_can_be_had_again_and_is_bounded() -> None:
    one, other = (random.Random(3) for _ in range(2))
    raw = bytes(range(256)) * 100
    for _ in range(200):
        made = mutated(one, raw, raw[::-1])
        assert made == mutated(other, raw, raw[::-1])
        assert len(made) <= MOST_BYTES


def test_what_breaks_a_rule_is_found(tmp_path: Path) -> None:
    """A reader that raises something else, one that takes for ever, and one that takes all memory."""

    def raises(data: bytes, _: Path) -> None:
        data.decode()

    def takes_memory(data: bytes, _: Path) -> None:
        bytearray(2**40)

    def takes_for_ever(data: bytes, _: Path) -> None:
        while True:
            pass

    for read, outcome in ((raises, "UnicodeDecodeError"), (takes_memory, "MemoryError"), (takes_for_ever, "TooSlow")):
        run = fuzz(Target(lambda _: [b"text"], lambda *_: None), tmp_path, 0, 1)
        assert run.bad == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fuzzing.MOST_SECONDS", 0.2)
            run = fuzz(Target(lambda _: [], read), tmp_path, 1, 1, corpus=[b"\xff\xff\xff\xff\xff\xff\xff\xff"])
        assert [found.split(":")[0] for _, found in run.bad] == [outcome]
