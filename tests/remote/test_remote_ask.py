"""`kvchat ask` and `--plain` on a server: what is asked, printed, kept, and what is not."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asking import Asked, kept
from scripted_server import Reply, ScriptedServer, failing, saying, usage

from kvchat.commands.ask import run_ask
from kvchat.commands.plain import run_plain
from kvchat.config import Settings, load_settings
from kvchat.errors import KvchatError
from kvchat.paths import Paths

KEY = "sk-0123-very-secret"


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths.find({"KVCHAT_HOME": str(home)})


def ask(paths: Paths, server: ScriptedServer | str, *question: str, asked: Asked | None = None, **options) -> Asked:
    """Ask on a server, by its URL."""
    asked = asked or Asked()
    url = server if isinstance(server, str) else server.url
    settings = options.pop("settings", {})
    if not isinstance(settings, Settings):
        settings = Settings(remote=url, given=frozenset({"remote"}), **settings)
    given = {"chat": None, "continue_last": False, "resume": False, "json": False} | options
    asked.code = run_ask(question, settings, paths, **given, out=asked.out, err=asked.err, stdin=asked.stdin)
    return asked


def test_an_answer_and_what_it_cost(paths: Paths) -> None:
    with ScriptedServer(saying("Blue", "."), saying("Red.", usage=usage(30, 2, 24))) as server:
        first = ask(paths, server, "A", "colour?", json=True)
        second = ask(paths, server, "Another?", continue_last=True, json=True)
        assert server.seen[1].said == [("user", "A colour?"), ("assistant", "Blue."), ("user", "Another?")]
    untold, told = (json.loads(asked.out.getvalue()) for asked in (first, second))
    assert (first.code, untold["text"], untold["finish"]) == (0, "Blue.", "stop")
    assert untold["model"]["name"] == "served"
    assert (untold["prompt"]["reused"], untold["prompt"]["computed"]) == (None, None)
    assert (told["prompt"]["tokens"], told["prompt"]["reused"], told["prompt"]["computed"]) == (30, 24, 6)
    assert told["cache"] == {"type_k": None, "type_v": None, "context": 4096, "cells": 32, "bytes": None}
    assert told["remote"] == {"host": server.host, "leaves": False}
    assert [message.text for message in kept(paths)] == ["A colour?", "Blue.", "Another?", "Red."]
    assert {message.model for message in kept(paths) if message.role == "assistant"} == {"served"}


def test_what_is_said_of_reuse(paths: Paths) -> None:
    from asking import Terminal

    said = []
    for cached in (None, 24):
        with ScriptedServer(saying("Yes.", usage=usage(30, 2, cached))) as server:
            asked = Asked()
            asked.err = Terminal()
            ask(paths, server, "Really?", asked=asked)
            said.append(asked.err.getvalue())
    assert "prompt 30 tokens: reuse unknown: the server does not say" in said[0]
    assert "prompt 30 tokens: 24 reused, 6 computed" in said[1]
    assert "answers, on this machine" in said[0]


def test_the_partial_answer_is_kept(paths: Paths) -> None:
    def cut(reply: Reply) -> None:
        reply.begin()
        reply.delta(content="Half an")

    with ScriptedServer(cut, saying(" answer.")) as server:
        asked = Asked()
        with pytest.raises(KvchatError) as caught:
            ask(paths, server, "Tell me.", asked=asked)
        assert caught.value.hint
        assert asked.out.getvalue().strip() == "Half an"
        assert [(message.text, message.finish) for message in kept(paths)][1] == ("Half an", "error")
        resumed = ask(paths, server, resume=True)
        assert server.seen[1].body["continue_final_message"] is True
    assert resumed.out.getvalue().strip() == "answer."
    assert [(message.text, message.finish) for message in kept(paths)][1] == ("Half an answer.", "stop")


def test_a_refused_question_is_kept_and_asked_again(paths: Paths) -> None:
    with ScriptedServer(failing(503, {"error": "busy"}), saying("Now.")) as server:
        with pytest.raises(KvchatError):
            ask(paths, server, "When?")
        assert ask(paths, server, resume=True).out.getvalue().strip() == "Now."
    assert [message.text for message in kept(paths)] == ["When?", "Now."]


def test_reasoning_is_folded_and_not_sent_back(paths: Paths) -> None:
    def thinks(reply: Reply) -> None:
        reply.begin()
        reply.delta(reasoning_content="Let me see.")
        reply.delta(content="Yes.")
        reply.end(usage(10, 6, 0))

    with ScriptedServer(thinks, saying("No.", usage=usage(20, 2, 9))) as server:
        ask(paths, server, "One?")
        ask(paths, server, "Two?", continue_last=True)
        assert server.seen[1].said[1] == ("assistant", "Yes.")
    assert kept(paths)[1].text == "<think>\nLet me see.\n</think>\n\nYes."


def test_flags_for_a_model_of_this_machine_are_told_to_have_no_effect(paths: Paths) -> None:
    """The flags of one command line, not what a settings file says for all."""
    flags = {"remote": "", "ctx_size": "4096", "cache_type_k": "q8_0", "temp": "0"}
    with ScriptedServer(saying("Yes."), saying("Yes.")) as server:
        said = []
        for given in (flags, {"remote": ""}):
            settings = load_settings(paths, {"KVCHAT_CTX_SIZE": "2048"}, given | {"remote": server.url})
            asked = Asked()
            ask(paths, server, "Really?", asked=asked, settings=settings)
            said.append(asked.err.getvalue())
    assert f"note: no effect on {server.host}: --ctx-size, --cache-type-k; that is chosen where" in said[0]
    assert "no effect" not in said[1]


def test_offline_asks_nobody(paths: Paths) -> None:
    with ScriptedServer(saying("x")) as server:
        with pytest.raises(KvchatError) as caught:
            ask(paths, server, "Hello", settings={"offline": True})
        assert server.asked == 0
    assert "--offline" in caught.value.message
    assert kept(paths) == (), "nothing was begun"


def test_incognito_asks_before_text_leaves_the_machine(paths: Paths) -> None:
    """Nobody is there to say yes: refused before anything is connected to. A server on this machine may read it."""
    with pytest.raises(KvchatError) as caught:
        ask(paths, "https://gpu.example.org/v1", "A secret", settings={"incognito": True})
    assert "an incognito chat would be read by gpu.example.org" in caught.value.message
    with ScriptedServer(saying("Here.")) as server:
        assert ask(paths, server, "A secret", settings={"incognito": True}).out.getvalue().strip() == "Here."
    assert not paths.chats_db.exists()


def test_plain_goes_over_to_a_server(paths: Paths) -> None:
    """/model lists servers with what they mean, and goes over to one; cache types are not offered there."""
    out, err = io.StringIO(), io.StringIO()
    with ScriptedServer(saying("From afar.")) as server:
        paths.config_file.write_text(
            f'[remote.lab]\nurl = "{server.url}"\n[remote.far]\nurl = "http://far.example/v1"\n'
        )
        settings = load_settings(paths, {}, {"remote": "lab"})
        stdin = io.StringIO("/model\nHello\n/model remote:lab\nMore\n/cache q8_0\n")
        with pytest.raises(KvchatError) as caught:
            run_plain(settings, paths, chat=None, continue_last=False, out=out, err=err, stdin=stdin)
    assert "the cache is that of" in caught.value.message
    said = out.getvalue()
    assert "remote:lab, 127.0.0.1" in said
    assert "remote:far, text leaves this machine, not encrypted: far.example" in said
    assert said.count("From afar.") == 2


def run(paths: Paths, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvchat", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environ},
    )


def test_the_key_is_written_nowhere(paths: Paths, home: Path) -> None:
    """Through an answer, a refusal that repeats it, and a connection that breaks; llama.cpp is not loaded for it."""

    def breaks(reply: Reply) -> None:
        reply.begin()
        reply.raw(b"data: {" + KEY.encode() + b"\n\n")

    refusal = failing(401, {"error": {"message": f"bad key {KEY}"}})
    with ScriptedServer(saying("Good."), refusal, breaks) as server:
        done = [run(paths, "ask", "--remote", server.url, "Hello", KVCHAT_REMOTE_KEY=KEY) for _ in range(3)]
        assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert [each.returncode for each in done] == [0, 1, 1]
    assert KEY not in "".join(each.stdout + each.stderr for each in done)
    files = [file for file in home.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


def test_without_the_client_library_it_says_what_to_install(paths: Paths) -> None:
    code = "import sys; sys.modules['httpx2'] = None; from kvchat.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "ask", "--remote", "http://127.0.0.1:9/v1", "Hello"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "pip install 'kvchat[remote]'" in done.stderr
    assert "Traceback" not in done.stderr
