from __future__ import annotations

import io
import json
import os
import sqlite3
from pathlib import Path

import pytest
from kv_pages import Disk, page_files, put_chat, put_states

from kvchat.commands.kv import run_ls, run_show, run_verify
from kvchat.errors import KvchatError
from kvchat.paths import Paths

CHAT = list(range(300))
CHAIN_FIELDS = [
    "chain",
    "parent",
    "model",
    "type_k",
    "type_v",
    "start",
    "tokens",
    "pages",
    "checkpoints",
    "bytes",
    "checkpoint_bytes",
    "last_use",
    "hits",
    "seconds_saved",
    "lineage",
    "draft",
    "pinned",
]
PAGE_FIELDS = [
    "page",
    "kind",
    "parent",
    "namespace",
    "tag",
    "start",
    "tokens",
    "bytes",
    "seconds",
    "last_use",
    "hits",
    "seconds_saved",
    "pinned",
]


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths.find(os.environ)


@pytest.fixture
def disk(paths: Paths) -> Disk:
    return Disk(paths.kv_folder)


def test_ls_json(paths: Paths, disk: Disk) -> None:
    keys = put_chat(disk.store(), CHAT)
    out = io.StringIO()
    assert run_ls(paths, json=True, out=out) == 0
    (chain,) = json.loads(out.getvalue())
    assert list(chain) == CHAIN_FIELDS
    assert chain["chain"] == keys[0].hex()[:12]
    assert (chain["parent"], chain["tokens"], chain["pages"], chain["pinned"]) == (None, 300, 3, False)
    assert (chain["checkpoints"], chain["checkpoint_bytes"]) == (0, 0)


def test_ls_json_counts_checkpoints(paths: Paths, disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    pages = sum(file.stat().st_size for file in page_files(paths.kv_folder))
    put_states(store, CHAT, [100, 299])
    out = io.StringIO()
    run_ls(paths, json=True, out=out)
    (chain,) = json.loads(out.getvalue())
    everything = sum(file.stat().st_size for file in page_files(paths.kv_folder))
    assert (chain["pages"], chain["checkpoints"], chain["tokens"]) == (3, 2, 300)
    assert (chain["bytes"], chain["checkpoint_bytes"]) == (everything, everything - pages)


def test_ls_of_nothing(paths: Paths) -> None:
    out = io.StringIO()
    assert run_ls(paths, json=True, out=out) == 0
    assert json.loads(out.getvalue()) == []
    assert run_ls(paths, json=False, out=out) == 0
    assert "no saved KV" in out.getvalue()
    assert not paths.kv_folder.exists()


def test_ls_table(paths: Paths, disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_chat(store, [*CHAT[:128], 1])
    out = io.StringIO()
    run_ls(paths, json=False, out=out)
    header, *lines = out.getvalue().splitlines()
    assert (
        " ".join(header.split())
        == "chain parent model k/v from start tokens pages states size last use hits saved pinned"
    )
    assert [line.split()[5:9] for line in lines[:3]].count(["0", "128", "1", "-"]) == 1
    assert all(line[header.index("model") :].startswith("Tiny") for line in lines[:3])
    assert lines[-1].startswith("4 pages, ")
    assert "checkpoint" not in lines[-1]


def test_ls_table_counts_checkpoints(paths: Paths, disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    for ends, words in (([299], "3 pages, 1 checkpoint, "), ([100, 128], "3 pages, 3 checkpoints, ")):
        put_states(store, CHAT, ends)
        out = io.StringIO()
        run_ls(paths, json=False, out=out)
        _, line, _, total = out.getvalue().splitlines()
        assert line.split()[5:9] == ["0", "300", "3", words.split()[2]]
        assert total.startswith(words)


def test_names_of_models_cannot_write_to_the_terminal(paths: Paths, disk: Disk) -> None:
    store = disk.store(model="evil\x1b]0;title\x07\nname", rope=(("\x1b[31m", "\x1b[0m"),))
    put_chat(store, CHAT)
    out = io.StringIO()
    run_ls(paths, json=False, out=out)
    run_show(paths, store.match(CHAT).hits[0].key.hex()[:8], json=False, out=out)
    run_ls(paths, json=True, out=out)
    assert "evil" in out.getvalue()
    assert not set(out.getvalue()) & {"\x1b", "\x07"}


def test_show(paths: Paths, disk: Disk) -> None:
    keys = put_chat(disk.store(), CHAT)
    out = io.StringIO()
    assert run_show(paths, keys[0].hex()[:5], json=True, out=out) == 0
    pages = json.loads(out.getvalue())
    assert [entry["page"] for entry in pages] == [key.hex() for key in keys]
    assert [(entry["start"], entry["tokens"]) for entry in pages] == [(0, 128), (128, 128), (256, 44)]
    out = io.StringIO()
    run_show(paths, keys[0].hex()[:5], json=False, out=out)
    for word in ("Tiny", "ab" * 16, "0.3.36", "f16 / f16", "base 10000.0", keys[2].hex()[:12]):
        assert word in out.getvalue()
    assert "checkpoint" not in out.getvalue()


def test_show_lists_checkpoints_behind_the_pages_in_which_they_lie(paths: Paths, disk: Disk) -> None:
    store = disk.store()
    keys = put_chat(store, CHAT)
    put_states(store, CHAT, [299, 100, 256, 128])
    order = [("page", 128), ("checkpoint", 100), ("checkpoint", 128), ("page", 256), ("checkpoint", 256)]
    order += [("page", 300), ("checkpoint", 299)]
    out = io.StringIO()
    run_show(paths, keys[0].hex()[:5], json=True, out=out)
    rows = json.loads(out.getvalue())
    assert [list(row) for row in rows] == [PAGE_FIELDS] * 7
    assert [(row["kind"], row["start"] + row["tokens"]) for row in rows] == order
    assert {row["page"] for row in rows} == {file.name for file in page_files(paths.kv_folder)}
    assert [row["parent"] for row in rows if row["kind"] == "checkpoint"][2:] == [keys[0].hex(), keys[1].hex()]
    out = io.StringIO()
    run_show(paths, keys[0].hex()[:5], json=False, out=out)
    facts, table = out.getvalue().split("\n\n")
    (line,) = [line for line in facts.splitlines() if line.startswith("checkpoints")]
    assert "4 recurrent states, " in line
    header, *lines = table.splitlines()
    assert " ".join(header.split()) == "page kind tag start tokens size computed in last use hits saved pinned"
    assert [(cells[1], int(cells[3]) + int(cells[4])) for cells in map(str.split, lines)] == order


def test_show_of_a_chain_without_description(paths: Paths, disk: Disk) -> None:
    store = disk.store()
    (key,) = put_chat(store, [1])
    (paths.kv_folder / "pages" / store.namespace.id / "namespace.json").write_bytes(b"{")
    out = io.StringIO()
    assert run_show(paths, key.hex(), json=False, out=out) == 0
    assert "unknown" in out.getvalue()


def test_show_of_nothing(paths: Paths) -> None:
    with pytest.raises(KvchatError) as caught:
        run_show(paths, "abc", json=False, out=io.StringIO())
    assert "kv ls" in caught.value.hint


def test_verify(paths: Paths, disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    out = io.StringIO()
    assert run_verify(paths, json=True, out=out) == 0
    (report,) = json.loads(out.getvalue())
    fields = ["pages", "bytes", "damaged", "unreadable", "foreign", "stale", "added", "corrected", "temporary"]
    assert list(report) == fields
    assert (report["pages"], report["damaged"]) == (3, 0)


def test_verify_says_what_it_did(paths: Paths, disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    first, second, _ = page_files(paths.kv_folder)
    os.truncate(first, 50)
    second.unlink()
    out = io.StringIO()
    assert run_verify(paths, json=False, out=out) == 0
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("1 page sound, ")
    assert lines[1] == f"1 page damaged, moved to {paths.kv_folder / 'damaged'}"
    assert lines[2] == "1 page in the index without a file, forgotten"


def test_verify_tells_of_other_versions_and_of_a_wrong_index(paths: Paths, disk: Disk) -> None:
    put_chat(disk.store(), CHAT)
    (first, *_) = page_files(paths.kv_folder)
    raw = bytearray(first.read_bytes())
    raw[8] = 9  # the version
    first.write_bytes(raw)
    with sqlite3.connect(paths.kv_folder / "index.db") as connection:
        connection.execute("UPDATE pages SET seconds = 77 WHERE key <> ?", (bytes.fromhex(first.name),))
    connection.close()
    out = io.StringIO()
    run_verify(paths, json=False, out=out)
    assert out.getvalue().splitlines()[1:] == [
        "1 page of another version of kvchat, left where they are",
        "2 pages wrong in the index, corrected",
    ]


def test_verify_sees_a_damaged_checkpoint(paths: Paths, disk: Disk) -> None:
    store = disk.store()
    put_chat(store, CHAT)
    put_states(store, CHAT, [100])
    (found,) = store.checkpoints(store.match(CHAT))
    file = disk.file(found.key)
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    out = io.StringIO()
    run_verify(paths, json=True, out=out)
    (report,) = json.loads(out.getvalue())
    assert (report["pages"], report["damaged"]) == (3, 1)
