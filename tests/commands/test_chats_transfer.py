"""`kvchat chats export` and `import`: nothing is lost on the way, nothing comes twice, nothing comes half."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvchat.chats.export import write_over
from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.commands.transfer import run_export, run_import
from kvchat.errors import KvchatError, UsageError
from kvchat.paths import Paths

EVIL = "\x1b]0;owned\x07 \x9b2J \u202e one\r\ntwo"
USAGE = json.dumps({"prompt_tokens": 10, "reused": 7})


@pytest.fixture
def paths() -> Paths:
    return Paths.find(os.environ)


@pytest.fixture
def other(tmp_path: Path) -> Paths:
    """Another machine."""
    return Paths.find({"KVCHAT_HOME": str(tmp_path / "other")})


def fill(paths: Paths) -> None:
    """A tree with two answers, of which the first is shown, and a part that was deleted."""
    with closing(ChatStore(paths.chats_db)) as store:
        chat = Chat("01C0", "A title 한", 1.0, 2.5, "be " + EVIL, 0.1 + 0.2, "m", None, settings='{"sampling":{}}')
        store.add_turn(
            chat,
            [
                Message("u", chat.id, None, "user", EVIL, 3.0, ""),
                Message("a", chat.id, "u", "assistant", "one", 4.0, "stop", "m", USAGE),
            ],
        )
        store.add_turn(chat, [Message("b", chat.id, "u", "assistant", "two", 5.0, None)])
        store.add_turn(chat, [Message("d", chat.id, "u", "assistant", "a secret", 5.0, "stop")])
        store.set_ids("key 1", {"u": (1, 2, 3), "a": (-1, 2**31 - 1)})
        store.set_ids("key 2", {"u": ()})
        store.delete_message(store.path("d")[1])
        store.show(chat.id, "a")
        store.pin(chat.id)
        store.name_by_model(chat.id, "Named by the model")


def everything(paths: Paths) -> dict[str, Any]:
    """All that is kept of the chats."""
    with closing(ChatStore(paths.chats_db)) as store:
        return {
            summary.chat.id: (
                summary,
                store.branch(summary.chat.id, summary.chat.head),
                store.export(summary.chat.id),
                store.known_ids(summary.chat.head or "", "key 1"),
            )
            for summary in store.chats()
        }


def export(paths: Paths, chat: str | None, *, target: Path | None = None, **more: Any) -> str:
    out = io.StringIO()
    options = {"everything": False, "form": None, "json": False, "target": str(target) if target else None} | more
    assert run_export(paths, chat, out=out, **options) == 0
    return out.getvalue()


def import_(paths: Paths, *files: Path, code: int = 0, as_json: bool = False) -> Any:
    out = io.StringIO()
    assert run_import(paths, list(map(str, files)), json=as_json, out=out) == code, out.getvalue()
    return json.loads(out.getvalue()) if as_json else out.getvalue()


def test_a_round_trip_is_exact(paths: Paths, other: Paths, tmp_path: Path) -> None:
    fill(paths)
    target = tmp_path / "chat.json"
    assert export(paths, "named by", target=target) == f'"Named by the model" is in {target}\n'
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert "secret" not in target.read_text()  # what was deleted does not go out
    assert import_(other, target) == f"{target} (kvchat): 1 chat imported\n"
    assert everything(other) == everything(paths)
    with closing(ChatStore(other.chats_db)) as store:
        assert store.branch("01C0", "a").siblings["a"] == ("a", "b")
        assert store.search("two")[0].message == "b"


def test_what_is_imported_goes_on(paths: Paths, other: Paths, tmp_path: Path) -> None:
    """A second export of the imported chat is the same file."""
    fill(paths)
    export(paths, "01C0", target=tmp_path / "1.json")
    import_(other, tmp_path / "1.json")
    export(other, "01C0", target=tmp_path / "2.json")
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_importing_twice_does_not_duplicate(paths: Paths, other: Paths, tmp_path: Path) -> None:
    fill(paths)
    target = tmp_path / "chat.json"
    export(paths, "01C0", target=target)
    import_(other, target)
    before = everything(other)
    assert import_(other, target, target).splitlines()[:2] == [
        f"{target} (kvchat): 0 chats imported, 1 already here",
        '  already here: "Named by the model"',
    ]
    assert everything(other) == before
    with closing(ChatStore(other.chats_db)) as store:
        store.trash("01C0")
    assert "kvchat chats restore 01C0" in import_(other, target)
    assert everything(other) == {}


def test_ids_that_are_taken_are_replaced(paths: Paths, tmp_path: Path) -> None:
    """The messages of a file may have the ids of others here; those stay what they are."""
    fill(paths)
    found = json.loads(export(paths, "01C0", form="json"))
    before = everything(paths)["01C0"]
    for name in ("another", "../evil \x1b[2J"):
        file = tmp_path / "file.json"
        file.write_text(json.dumps(found | {"id": name}))
        import_(paths, file)
        assert "1 already here" in import_(paths, file)
    after = everything(paths)
    assert after.pop("01C0") == before and len(after) == 2
    for name, (_, branch, transcript, _) in after.items():
        assert name.isalnum() and [message.text for message in branch.messages] == [EVIL, "one"]
        assert transcript.messages[0].ids == {"key 1": (1, 2, 3), "key 2": ()}


CHATGPT = {
    "title": "From \x1b[2J elsewhere",
    "create_time": 1700000000.0,
    "update_time": 1700000100.0,
    "current_node": "a",
    "conversation_id": "uuid",
    "mapping": {
        "s": {"parent": None, "message": {"author": {"role": "system"}, "content": {"parts": [""]}}},
        "u": {"parent": "s", "message": {"author": {"role": "user"}, "content": {"parts": ["hi \x1b[2J"]}}},
        "a": {"parent": "u", "message": {"author": {"role": "assistant"}, "content": {"parts": ["ho"]}}},
    },
}


def test_chats_of_another_program(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    broken = CHATGPT | {"title": "Half", "mapping": {"u": {"message": 7}}}
    untitled = CHATGPT | {"title": None, "conversation_id": "", "id": None}
    file.write_text(json.dumps([CHATGPT, broken, untitled])[:-1] + ', {"cut')
    said = import_(paths, file, code=1).splitlines()
    assert said[0] == f"{file} (ChatGPT): 2 chats imported, 2 not read"
    assert said[1] == "  left out: system 2"
    assert said[2] == '  not read: "Half": a message is not what it should be'
    assert "breaks off" in said[3]
    with closing(ChatStore(paths.chats_db)) as store:
        by_title = {summary.chat.title: summary for summary in store.chats()}
        assert set(by_title) == {"From ␛[2J elsewhere", "hi ␛[2J"}
        chat = by_title["From ␛[2J elsewhere"].chat
        assert (chat.updated, chat.title_by, by_title["hi ␛[2J"].chat.title_by) == (1700000100.0, "person", "message")
        assert [message.text for message in store.path(chat.head)] == ["hi ␛[2J", "ho"]
    assert "2 already here" in import_(paths, file, code=1)  # also the one without a name


def test_json_of_an_import(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([CHATGPT, {}]))
    first, second = import_(paths, file, code=1, as_json=True)
    assert (first["outcome"], first["source"], first["messages"], first["skipped"]) == ("imported", "chatgpt", 2, 1)
    assert first["problem"] is None and first["file"] == str(file)
    assert (second["outcome"], second["chat"]) == ("broken", None) and second["problem"]
    assert first.keys() == second.keys()


def test_files_that_cannot_be_read_do_not_stop_the_others(paths: Paths, tmp_path: Path) -> None:
    good, archive = tmp_path / "good.json", tmp_path / "chats.zip"
    good.write_text(json.dumps(CHATGPT))
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("conversations.json", json.dumps([CHATGPT, CHATGPT | {"conversation_id": "2"}]))
    (tmp_path / "notes.json").write_text("# no JSON")
    os.mkfifo(tmp_path / "pipe.json")
    said = import_(
        paths, tmp_path / "nothing.json", tmp_path / "notes.json", tmp_path / "pipe.json", archive, good, code=1
    )
    assert "pipe.json: 0 chats imported, 1 not read\n  not read: it is no file that can be read" in said
    assert "nothing.json: 0 chats imported, 1 not read\n  not read: No such file" in said
    assert "notes.json: 0 chats imported, 1 not read\n  not read: it is no JSON" in said
    assert "chats.zip (ChatGPT): 2 chats imported" in said
    assert "good.json (ChatGPT): 0 chats imported, 1 already here" in said


def test_a_folder_without_chats_is_told(paths: Paths, tmp_path: Path) -> None:
    folder, good = tmp_path / "downloads", tmp_path / "good.json"
    folder.mkdir()
    (folder / "notes.txt").write_text("no chats")
    good.write_text(json.dumps(CHATGPT))
    said = import_(paths, folder, good, code=1)
    assert "downloads: 0 chats imported, 1 not read\n  not read: no file in it ends in .json, .jsonl, .zip" in said
    assert "good.json (ChatGPT): 1 chat imported" in said


def test_the_home_of_nobody_is_a_place_where_nothing_is(paths: Paths) -> None:
    fill(paths)
    nowhere = Path("~no-such-user-here/x.json")
    assert "not read: No such file" in import_(paths, nowhere, code=1)
    with pytest.raises(KvchatError, match="cannot be written"):
        export(paths, "01C0", target=nowhere)


def test_all_chats_into_a_folder_and_back(paths: Paths, other: Paths, tmp_path: Path) -> None:
    fill(paths)
    with closing(ChatStore(paths.chats_db)) as store:
        for number in range(120):
            chat = Chat(f"c{number}", "t", 1.0, float(number), "", 1.0, "", None)
            store.add_turn(chat, [Message(f"m{number}", chat.id, None, "user", f"text {number}", 1.0, "")])
        store.rename("c0", "../../etc/passwd\x1b " + "键" * 100)
    folder = tmp_path / "all"
    for _ in range(2):  # again into the same folder
        assert export(paths, None, everything=True, target=folder) == f"121 chats are in {folder}\n"
    files = sorted(folder.iterdir())
    assert len(files) == 121 and {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    import_(other, folder)
    assert everything(other) == everything(paths)


@pytest.mark.parametrize("name", ["chat.json", "chat.json.tmp"])
def test_a_folder_where_a_file_is_to_be(tmp_path: Path, name: str) -> None:
    """It stays, no half of a file does, and the reason is told."""
    (tmp_path / name).mkdir()
    with pytest.raises(KvchatError, match=r"cannot be written: Is a directory"):
        write_over("words", tmp_path / "chat.json")
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_forms(paths: Paths, tmp_path: Path) -> None:
    fill(paths)
    text = export(paths, "01C0")
    assert text.startswith("# Named by the model\n") and "\n\none\n" in text and "\n\ntwo\n" not in text
    assert not set(text) & set("\x1b\x07\r\x9b\u202e")
    assert json.loads(export(paths, "01C0", json=True)) == json.loads(export(paths, "01C0", form="json"))
    export(paths, "01C0", target=tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == text
    export(paths, "01C0", target=tmp_path / "a.json", form="md")
    assert (tmp_path / "a.json").read_text() == text  # the flag says it
    (row,) = json.loads(export(paths, "01C0", target=tmp_path / "b.json", json=True))
    assert row == {"chat": "01C0", "title": "Named by the model", "file": str(tmp_path / "b.json"), "messages": 3}


def test_refusals(paths: Paths, tmp_path: Path) -> None:
    fill(paths)
    there = tmp_path / "there.md"
    there.write_text("mine")
    with pytest.raises(KvchatError, match="is there already"):
        export(paths, "01C0", target=there)
    assert there.read_text() == "mine"
    with pytest.raises(KvchatError, match="cannot be written"):
        export(paths, "01C0", target=tmp_path / "no" / "folder.md")
    for wrong in ({"chat": None}, {"chat": "01C0", "everything": True}, {"chat": "01C0", "form": "xml"}):
        with pytest.raises(UsageError):
            export(paths, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="folder"):
        export(paths, None, everything=True)
    with closing(ChatStore(paths.chats_db)) as store:
        store.delete_message(store.path("u")[0])
    with pytest.raises(KvchatError, match="no messages"):
        export(paths, "01C0")
    assert export(paths, None, everything=True, target=tmp_path / "x") == "There are no chats yet.\n"
