"""`kv pin`, `kv unpin`, pins in `kv ls`, and `ask --prefix`, with an engine that says what it is told to."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import Asked, Terminal
from fake_backend import finished, make_ready, turn_events
from kv_pages import Disk, put_chat
from scripted_engine import ScriptedEngine

from kvchat.backend.protocol import EngineDied, Event, Generate, LoadFailed, Loading, Pin, Pinned, Pinning
from kvchat.backend.values import Failure
from kvchat.chats.prefixes import Prefix
from kvchat.chats.store import ChatStore
from kvchat.commands.kv import run_ls
from kvchat.commands.prefixes import run_unpin
from kvchat.commands.prefixes_pin import Wanted, run_pin
from kvchat.config import Settings
from kvchat.errors import KvchatError, UsageError
from kvchat.kv.pinned import held
from kvchat.paths import Paths

TEXT = "Be brief.\n\n```markdown doc.md\n# Rules\n```"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a document."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc.md").write_text("# Rules\n\n")
    return tmp_path


@pytest.fixture
def disk(paths: Paths) -> Disk:
    return Disk(paths.kv_folder)


def computing(disk: Disk, paths: Paths) -> Callable[[Pin], Iterable[Event]]:
    """What an engine does that pins 300 tokens, of which it had to compute 40."""

    def play(command: Pin) -> Iterable[Event]:
        store = disk.store()
        keys = put_chat(store, [sum(command.system.encode()), *range(299)])
        size = store.pin(command.prefix, keys, 300)
        model = str(paths.models_folder / "first.gguf")
        yield Pinning(command.turn, 260, 300, 260)
        yield Pinned(
            command.turn,
            command.prefix,
            tokens=300,
            computed=40,
            size=size,
            seconds=3.0,
            namespace=store.namespace.id,
            last_key=keys[-1],
            model="first",
            model_path=model,
            fingerprint="0" * 32,
            type_k="f16",
            type_v="f16",
        )

    return play


@pytest.fixture
def pin(paths: Paths, engine: ScriptedEngine, disk: Disk, folder: Path) -> Callable[..., Asked]:
    """Runs `kv pin`; what is not named is not given."""
    engine.pinned = computing(disk, paths)

    def run(name: str, *, json: bool = False, settings: Settings | None = None, **wanted: Any) -> Asked:
        asked = Asked()
        asked.code = run_pin(
            Wanted(name, **wanted),
            settings or Settings(),
            paths,
            json=json,
            out=asked.out,
            err=asked.err,
            stdin=asked.stdin,
            engine_factory=engine,
        )
        return asked

    return run


def prefixes(paths: Paths) -> Sequence[Prefix]:
    with closing(ChatStore(paths.chats_db)) as store:
        return store.prefixes.all()


def ls(paths: Paths) -> list[dict[str, Any]]:
    out = io.StringIO()
    run_ls(paths, json=True, out=out)
    return [each for each in json.loads(out.getvalue()) if "prefix" in each]


def test_a_new_prefix(pin: Callable[..., Asked], paths: Paths, engine: ScriptedEngine) -> None:
    asked = pin("brief", files=["doc.md"], system="Be brief.")
    assert asked.code == 0
    assert asked.out.getvalue().startswith("brief: 300 tokens for first (f16), ")
    assert "40 were computed now" in asked.out.getvalue()
    (command,) = engine.pins
    (kept,) = prefixes(paths)
    assert (command.system, command.prefix, command.clock) == (TEXT, kept.id, kept.clock)
    assert (kept.name, kept.text, kept.system) == ("brief", TEXT, "Be brief.")
    (found,) = kept.computations
    assert (found.tokens, found.seconds, found.model) == (300, 3.0, "first")
    assert engine.configs[0].draft_path is None
    assert engine.closed


def test_it_is_listed(pin: Callable[..., Asked], paths: Paths) -> None:
    pin("brief", files=["doc.md"], system="Be brief.")
    (found,) = ls(paths)
    size = found.pop("bytes")
    assert size == held(paths.kv_folder)[0].bytes
    assert {name: found[name] for name in ("prefix", "model", "type_k", "type_v", "tokens", "pages", "missing")} == {
        "prefix": "brief",
        "model": "first",
        "type_k": "f16",
        "type_v": "f16",
        "tokens": 300,
        "pages": 3,
        "missing": 0,
    }
    assert (found["uses"], found["seconds_saved"], found["chats"]) == (0, 0.0, 0)
    assert (found["documents"], found["state"], found["pinned"]) == (["doc.md"], "pinned", True)
    out = io.StringIO()
    run_ls(paths, json=False, out=out)
    header, row = out.getvalue().splitlines()[-2:]
    assert header.split()[:4] == ["prefix", "model", "k/v", "tokens"]
    assert row.split()[:4] == ["brief", "first", "f16/f16", "300"]
    assert row.endswith("pinned")


def test_as_json(pin: Callable[..., Asked]) -> None:
    (made,) = json.loads(pin("brief", system="Be brief.", json=True).out.getvalue())
    assert (made["prefix"], made["tokens"], made["computed"], made["state"]) == ("brief", 300, 40, "pinned")


def test_a_name_that_is_taken(pin: Callable[..., Asked], paths: Paths, engine: ScriptedEngine) -> None:
    pin("brief", system="Be brief.")
    with pytest.raises(KvchatError, match='there is a prefix "brief"') as caught:
        pin("Brief", system="Be long.")
    assert "--replace" in caught.value.hint
    assert "kvchat kv pin brief" in caught.value.hint
    assert len(engine.pins) == 1
    pin("Brief", system="Be brief.")  # that one once more
    assert len(engine.pins) == 2
    old = prefixes(paths)[0].id
    pin("Brief", system="Be long.", replace=True)
    (kept,) = prefixes(paths)
    assert (kept.name, kept.system, kept.id == old) == ("Brief", "Be long.", False)
    assert [each.pin.prefix for each in held(paths.kv_folder)] == [kept.id]


def test_computed_again(pin: Callable[..., Asked], engine: ScriptedEngine) -> None:
    pin("brief", system="Be brief.")
    pin("BRIEF")
    assert engine.pins[0].prefix == engine.pins[1].prefix
    assert engine.pins[0].system == engine.pins[1].system
    with pytest.raises(KvchatError, match='there is no prefix "other"') as caught:
        pin("other")
    assert "--system" in caught.value.hint
    with pytest.raises(UsageError, match="--replace"):
        pin("brief", replace=True)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("gone.md", None, "is not there"),
        ("empty.md", b" \n", "is empty"),
        ("image.md", b"\x89PNG\x00\x01", "is no text"),
        ("latin.md", "é".encode("latin-1"), "is no text in UTF-8"),
        ("huge.md", b"x" * ((1 << 20) + 1), "is too large"),
    ],
)
def test_files_that_cannot_be(
    pin: Callable[..., Asked], paths: Paths, engine: ScriptedEngine, folder: Path, name: str, data: bytes, said: str
) -> None:
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(KvchatError, match=said) as caught:
        pin("brief", files=[name])
    assert name in caught.value.message
    assert engine.configs == []
    assert not paths.chats_db.exists()


def test_a_folder_or_a_pipe_is_no_file(pin: Callable[..., Asked], folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(KvchatError, match="no file"):
            pin("brief", files=[name])


def test_what_a_file_says_is_no_markup_and_no_escape(pin: Callable[..., Asked], paths: Paths, folder: Path) -> None:
    (folder / "doc.md").write_bytes(b"a\x1b[2Jb\n````\n[bold]c[/]\r\n")
    pin("brief", files=[str(folder / "doc.md")])
    assert prefixes(paths)[0].text == "`````markdown doc.md\nab\n````\n[bold]c[/]\n`````"


@pytest.mark.parametrize("failure", [None, Failure("the disk is full", "free some")])
def test_one_that_ends_without_pages_leaves_nothing(
    pin: Callable[..., Asked], paths: Paths, engine: ScriptedEngine, failure: Failure | None
) -> None:
    engine.pinned = lambda command: [Pinning(command.turn, 1, 9), Pinned(command.turn, command.prefix, failure=failure)]
    if failure is None:
        assert pin("brief", system="Be brief.").code == 130
    else:
        with pytest.raises(KvchatError, match="the disk is full"):
            pin("brief", system="Be brief.")
    assert prefixes(paths) == ()
    assert engine.closed


def test_one_that_fails_leaves_the_old_one(pin: Callable[..., Asked], paths: Paths, engine: ScriptedEngine) -> None:
    pin("brief", system="Be brief.")
    engine.pinned = lambda command: [Pinned(command.turn, command.prefix, failure=Failure("too long"))]
    with pytest.raises(KvchatError, match="too long"):
        pin("brief", system="Be long.", replace=True)
    (kept,) = prefixes(paths)
    assert kept.system == "Be brief."
    assert ls(paths)[0]["state"] == "pinned"


def test_a_model_that_cannot_be_loaded(pin: Callable[..., Asked], paths: Paths, engine: ScriptedEngine) -> None:
    engine.begin = [Loading(0.1), LoadFailed(Failure("no such architecture"))]
    with pytest.raises(KvchatError, match="no such architecture"):
        pin("brief", system="Be brief.")
    assert prefixes(paths) == ()


def test_an_engine_that_dies_is_told(pin: Callable[..., Asked], engine: ScriptedEngine) -> None:
    engine.pinned = lambda command: [
        EngineDied("the engine was killed by SIGKILL", (), True),
        make_ready(name="first"),
        Pinned(command.turn, command.prefix, failure=Failure("the engine was killed by SIGKILL")),
    ]
    with pytest.raises(KvchatError, match="SIGKILL"):
        pin("brief", system="Be brief.")


@pytest.mark.parametrize("settings", [Settings(kv=False), Settings(incognito=True)])
def test_where_nothing_is_kept_nothing_is_pinned(
    pin: Callable[..., Asked], engine: ScriptedEngine, settings: Settings
) -> None:
    with pytest.raises(KvchatError, match="kept on disk"):
        pin("brief", system="Be brief.", settings=settings)
    assert engine.configs == []


def test_how_far_it_is_stands_on_a_terminal(paths: Paths, engine: ScriptedEngine, disk: Disk, folder: Path) -> None:
    engine.pinned = computing(disk, paths)
    err = Terminal()
    run_pin(
        Wanted("brief", system="Be brief."),
        Settings(),
        paths,
        json=False,
        out=io.StringIO(),
        err=err,
        stdin=Terminal(),
        engine_factory=engine,
    )
    assert "\rcomputing: 260 of 300 tokens" in err.getvalue()
    assert err.getvalue().endswith("\r")


def test_unpin(pin: Callable[..., Asked], paths: Paths) -> None:
    pin("brief", system="Be brief.")
    out = io.StringIO()
    assert run_unpin(paths, "BRIEF", json=False, out=out) == 0
    assert out.getvalue().startswith("brief is not pinned any more")
    assert (prefixes(paths), held(paths.kv_folder), ls(paths)) == ((), [], [])
    with pytest.raises(KvchatError, match="there is no prefix"):
        run_unpin(paths, "brief", json=False, out=out)


def test_pages_that_are_missing_are_told(pin: Callable[..., Asked], paths: Paths) -> None:
    pin("brief", system="Be brief.")
    (found,) = held(paths.kv_folder)
    Disk(paths.kv_folder).store().condemn([sum(b"Be brief."), *range(299)])
    assert ls(paths)[0]["state"] == "3 of 3 pages missing"
    assert ls(paths)[0]["missing"] == len(found.pin.keys)
    for file in (paths.kv_folder / "pins").iterdir():
        file.unlink()
    assert ls(paths)[0]["state"] == "not pinned any more"


def test_pins_that_nobody_knows_are_let_go_in_time(pin: Callable[..., Asked], paths: Paths, disk: Disk) -> None:
    """A program was killed between the two."""
    store = disk.store()
    keys = put_chat(store, [7] * 200)
    store.pin("01LOST", keys, 200)
    pin("brief", system="Be brief.")
    assert len(held(paths.kv_folder)) == 2  # it may just be made
    (lost,) = (paths.kv_folder / "pins").glob("01LOST*")
    os.utime(lost, (1.0, 1.0))
    pin("brief")
    assert [each.pin.prefix for each in held(paths.kv_folder)] == [prefixes(paths)[0].id]


# ------------------------------------------------------------------ ask --prefix


def answering(reused: int) -> Callable[[Generate], Iterable[Event]]:
    def play(request: Generate) -> Iterable[Event]:
        *events, _ = turn_events(request, ["Hello."])
        end = finished(request)
        usage = replace(end.usage, prompt_tokens=320, reused=reused, computed=320 - reused, pages=reused)
        yield from [*events, replace(end, usage=usage)]

    return play


def ready_in(disk: Disk) -> Event:
    ready = make_ready(name="first")
    return replace(ready, cache=replace(ready.cache, namespace=disk.store().namespace.id))


def test_a_chat_on_a_prefix(
    pin: Callable[..., Asked], ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths, disk: Disk
) -> None:
    pin("brief", system="Be brief.")
    engine.begin, engine.script = [ready_in(disk)], answering(300)
    asked = ask("Hi", prefix="Brief", json=True)
    told = json.loads(asked.out.getvalue())
    assert (told["prefix"], told["prompt"]["reused"]) == ("brief", 300)
    (request,) = engine.requests
    kept = prefixes(paths)[0]
    assert (request.messages[0].text, request.clock) == ("Be brief.", kept.clock)
    assert (kept.uses, kept.seconds_saved, kept.chats) == (1, pytest.approx(3.0), 1)
    assert "read anew" not in asked.err.getvalue()
    again = json.loads(ask("And?", continue_last=True, json=True).out.getvalue())
    assert again["prefix"] == "brief"
    assert prefixes(paths)[0].uses == 1


def test_without_a_prefix_there_is_none(ask: Callable[..., Asked]) -> None:
    assert json.loads(ask("Hi", json=True).out.getvalue())["prefix"] is None


def test_the_model_and_the_types_are_those_that_it_was_computed_for(
    pin: Callable[..., Asked], ask: Callable[..., Asked], engine: ScriptedEngine, paths: Paths
) -> None:
    """Where no flag says something else. The first model is the one that is found first, too."""
    pin("brief", system="Be brief.")
    with closing(ChatStore(paths.chats_db)) as store:
        prefix = store.prefixes.find("brief")
        (found,) = prefix.computations
        second = str(paths.models_folder / "second.gguf")
        made = replace(found, model_path=second, fingerprint="1" * 32, type_k="q8_0", type_v="q8_0", computed_at=9e9)
        store.prefixes.computed(prefix.id, made)
    ask("Hi", prefix="brief")
    config = engine.configs[-1]
    assert (config.model_path, config.type_k, config.type_v) == (second, "q8_0", "q8_0")
    ask("Hi", prefix="brief", settings=Settings(model="first", given=frozenset({"model"})))
    config = engine.configs[-1]
    assert (Path(config.model_path).stem, config.type_k) == ("first", "f16")


def test_what_was_of_no_use_is_told(
    pin: Callable[..., Asked], ask: Callable[..., Asked], engine: ScriptedEngine, disk: Disk
) -> None:
    pin("brief", system="Be brief.")
    engine.script = answering(0)
    ready = ready_in(disk)
    for begin, said in (
        (ready, "pages of it are missing"),
        (make_ready(name="first"), "in another configuration"),
        (replace(ready, model=replace(ready.model, fingerprint="9" * 32)), "not computed for this model"),
        (replace(ready, cache=replace(ready.cache, type_k="q8_0")), "not computed for this cache type"),
    ):
        engine.begin = [begin]
        err = ask("Hi", prefix="brief").err.getvalue()
        assert said in err
        assert "kvchat kv pin brief" in err


def test_what_a_prefix_cannot_go_with(ask: Callable[..., Asked], pin: Callable[..., Asked]) -> None:
    with pytest.raises(KvchatError, match="there is no prefix"):
        ask("Hi", prefix="brief")
    pin("brief", system="Be brief.")
    for options in ({"continue_last": True}, {"chat": "01X"}):
        with pytest.raises(UsageError, match="begins a new chat"):
            ask("Hi", prefix="brief", **options)
    with pytest.raises(UsageError, match="begins a new chat"):
        ask(prefix="brief", resume=True)
    with pytest.raises(UsageError, match="system prompt of its own"):
        ask("Hi", prefix="brief", settings=Settings(system="x", given=frozenset({"system"})))
