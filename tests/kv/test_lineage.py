"""Tags of pages: what they say of the rows, and that nothing else can be read from them."""

from __future__ import annotations

import random

import pytest

from kvchat.kv.lineage import lineage, passed, sources_of, tag_of


@pytest.mark.parametrize(
    ("sources", "tag"),
    [
        ([""], ""),
        (["", "", ""], ""),
        (["f16", "f16"], "f16"),
        (["f16>q8_0"] * 128, "f16>q8_0"),
        (["f16", "f16", "", "", ""], "f16:2,computed:3"),
        (["", "q8_0/q4_0", ""], "computed:1,q8_0/q4_0:1,computed:1"),
    ],
)
def test_a_tag_says_what_each_row_was(sources: list[str], tag: str) -> None:
    assert tag_of(sources) == tag
    assert sources_of(tag, len(sources)) == sources


# A tag is what a file says: anything.
@pytest.mark.parametrize("tag", ["x", "f16:1", "f16:2,computed:9", "f16:-1,computed:4", ":", ",", "f16:٣", "a:b,c:d"])
def test_a_foreign_tag_is_a_source(tag: str) -> None:
    assert sources_of(tag, 3) == [tag] * 3


def test_any_runs_come_back() -> None:
    source = random.Random(5)
    for _ in range(500):
        rows = [source.choice(("", "f16", "q8_0>f16")) for _ in range(source.randint(1, 20))]
        assert sources_of(tag_of(rows), len(rows)) == rows


@pytest.mark.parametrize(
    ("source", "form", "after"),
    [
        ("", "f16", "f16"),
        ("f16", "q8_0", "f16>q8_0"),
        ("f16>q8_0", "q4_0", "f16>q8_0>q4_0"),
        ("f16>q8_0>q4_0", "f16", "q8_0>q4_0>f16"),  # named once, by its last visit
        ("f16>q8_0", "q8_0", "f16>q8_0"),
    ],
)
def test_the_way_of_a_row(source: str, form: str, after: str) -> None:
    assert passed(source, form) == after


def test_a_way_to_and_fro_does_not_grow() -> None:
    source = ""
    for _ in range(50):
        source = passed(passed(source, "f16"), "q8_0")
    assert source == "f16>q8_0"


def test_lineage_in_words() -> None:
    assert lineage([("", 128), ("", 7)]) == ""
    assert lineage([("f16", 128), ("f16:2,computed:1", 3)]) == "f16, computed"
