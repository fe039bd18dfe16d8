"""`/prefix` in `kvchat --plain`: pinned, listed, begun, computed again, let go, in lines."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from asking import Asked
from fake_backend import make_ready
from kv_pages import Disk, put_chat
from scripted_engine import ScriptedEngine, answer

from kvchat.backend.protocol import Event, Pin, Pinned, Pinning
from kvchat.backend.values import EngineConfig, Failure
from kvchat.chats.prefixes import Prefix
from kvchat.chats.store import ChatStore
from kvchat.commands.plain import run_plain
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.kv.pinned import held
from kvchat.paths import Paths


class Told(ScriptedEngine):
    """Knows with what it was made."""

    @property
    def config(self) -> EngineConfig:
        return self.configs[-1]


@pytest.fixture
def engine(paths: Paths) -> Told:
    made = Told([make_ready(name="first")], answer("Hello", " there."))

    def compute(command: Pin) -> Iterable[Event]:
        with closing(Disk(paths.kv_folder).store()) as store:
            keys = put_chat(store, [*range(300)])
            size, space = store.pin(command.prefix, keys, 300), store.namespace.id
        end = 300, 40, size, 3.0, space, keys[-1], "first", "m", "0" * 32, "f16", "f16"
        yield Pinning(command.turn, 260, 300, 260)
        yield Pinned(command.turn, command.prefix, *end)

    made.pinned = compute
    return made


@pytest.fixture
def plain(paths: Paths, engine: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Sends lines through a pipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doc.md").write_text("# Rules\n")

    def run(*lines: str, settings: Settings | None = None) -> Asked:
        asked = Asked()
        asked.code = run_plain(
            settings or Settings(),
            paths,
            chat=None,
            continue_last=False,
            out=asked.out,
            err=asked.err,
            stdin=io.StringIO("".join(f"{line}\n" for line in lines)),
            engine_factory=engine,
        )
        return asked

    return run


def prefixes(paths: Paths) -> Sequence[Prefix]:
    with closing(ChatStore(paths.chats_db)) as store:
        return store.prefixes.all()


def test_one_is_made_and_a_chat_begins_on_it(plain: Callable[..., Asked], engine: Told, paths: Paths) -> None:
    asked = plain("/system Be brief.", "/prefix pin brief @doc.md", "/prefix brief", "Hi", "/prefix")
    assert asked.out.getvalue().splitlines() == [
        "Set.",
        "brief is being computed. Ctrl+C stops it.",
        "brief: 300 tokens, 40 of them computed now.",
        "A new chat on brief. It was computed in another configuration: /prefix compute brief does so.",
        "Hello there.",
        "brief, 300 tokens, it was computed in another configuration, used 0 times, saved 0.0 s",
    ]
    (kept,) = prefixes(paths)
    assert kept.text == "Be brief.\n\n```markdown doc.md\n# Rules\n```"
    assert engine.pins[0].system == engine.requests[0].messages[0].text == kept.text
    assert engine.requests[0].clock == kept.clock
    assert kept.chats == 1


def test_a_name_that_is_taken(plain: Callable[..., Asked], paths: Paths) -> None:
    with pytest.raises(KvchatError, match='there is a prefix "brief" with another text') as caught:
        plain("/system Be brief.", "/prefix pin brief", "/system Be long.", "/prefix pin brief")
    assert "/prefix drop brief" in caught.value.hint
    assert prefixes(paths)[0].text == "Be brief."


def test_one_is_let_go(plain: Callable[..., Asked], paths: Paths) -> None:
    asked = plain("/system Be brief.", "/prefix pin brief", "/prefix compute BRIEF", "/prefix drop Brief", "/prefix")
    assert asked.out.getvalue().splitlines()[-2:] == [
        "brief is not pinned any more. Chats on it keep its text.",
        "Nothing is pinned yet: /prefix pin NAME keeps this chat's system prompt, and @files.",
    ]
    assert (prefixes(paths), held(paths.kv_folder)) == ((), [])


def test_what_cannot_be_is_said(plain: Callable[..., Asked], engine: Told, paths: Paths) -> None:
    engine.pinned = lambda command: [Pinned(command.turn, command.prefix, failure=Failure("the disk is full"))]
    for line, said in (
        ("/prefix nothing", "there is no prefix"),
        ("/prefix compute", "which prefix?"),
        ("/prefix pin", "what is it to be called?"),
        ("/prefix pin brief", "no system prompt to pin"),
        ("/prefix pin brief @gone.md", "gone.md is not there"),
        ("/prefix pin brief @doc.md", "the disk is full"),
    ):
        with pytest.raises(KvchatError, match=re.escape(said)):
            plain(line)
    with pytest.raises(KvchatError, match="a prefix is kept on disk"):
        plain("/incognito", "/prefix pin brief @doc.md")
    assert prefixes(paths) == ()
