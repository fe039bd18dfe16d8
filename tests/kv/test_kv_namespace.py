from __future__ import annotations

import json

import pytest
from kv_pages import namespace

from kvchat.errors import FormatError
from kvchat.kv.namespace import loads


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "cd" * 16},
        {"lora": "poet.gguf:0.5"},
        {"rope": (("base", 10000.0), ("factors", "long"))},
        {"rope": (("base", 10000), ("factors", "short"), ("scale", 1.0))},
        {"rope": ()},
        {"type_k": "q8_0"},
        {"type_v": "q8_0"},
        {"rotation": True},
        {"backend_version": "0.3.37"},
        {"page_version": 3},
    ],
)
def test_whatever_changes_the_state_changes_the_root(changes: dict[str, object]) -> None:
    assert namespace(**changes).root != namespace().root
    assert namespace(**changes).id != namespace().id


def test_names_do_not_change_the_root() -> None:
    assert namespace(model="Other").root == namespace().root
    assert namespace(rope=(("factors", "short"), ("base", 10000.0))).root == namespace().root


def test_types_of_k_and_v_are_not_interchangeable() -> None:
    assert namespace(type_k="q8_0").root != namespace(type_v="q8_0").root


def test_id_names_a_folder() -> None:
    assert len(namespace().root) == 32
    assert namespace().root.hex().startswith(namespace().id)
    assert len(namespace().id) == 16


def test_description_round_trip() -> None:
    made = namespace(lora="x", rope=(("base", 1e6), ("factors", "long"), ("yarn", True), ("n", 4)), rotation=True)
    assert loads(made.dumps()) == made
    assert loads(made.dumps()).root == made.root


FIELDS = json.loads(namespace().dumps())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[1]",
        b"null",
        b"{}",
        json.dumps(FIELDS | {"surprise": 1}),
        json.dumps({name: value for name, value in FIELDS.items() if name != "lora"}),
        json.dumps(FIELDS | {"rope": [["base", 1.0]]}),
        json.dumps(FIELDS | {"rope": {"base": [1.0]}}),
        json.dumps(FIELDS | {"type_k": 1}),
        json.dumps(FIELDS | {"rotation": "no"}),
        json.dumps(FIELDS | {"page_version": "1"}),
    ],
)
def test_malformed_descriptions_are_refused(text: str | bytes) -> None:
    with pytest.raises(FormatError):
        loads(text)
