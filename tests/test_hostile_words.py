"""Titles, texts, file names, GGUF metadata and arguments with escape sequences, direction overrides, markup, NUL: what
the command line prints of them obeys nobody."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import pytest
from kv_pages import namespace, put_chat

from kvchat.chats.store import ChatStore
from kvchat.chats.types import Chat, Message
from kvchat.kv.store import PageStore

KVCHAT = [sys.executable, "-m", "kvchat"]
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m[bold red]a[/]\u202etxt.exe\u2066\u200b\x08\r[@click=app.quit]b[/]" + "W" * 300
IN_NAMES = EVIL.replace("/", "")[:80]  # what a file may be called
# Control characters but newline and tab, direction marks, zero width space, BOM, halves of characters.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


@pytest.fixture
def evil_home(home: Path) -> Path:
    """Everything that can be named or written is evil."""
    with closing(ChatStore(home / "chats.db")) as store:
        chat = Chat("01EVIL", EVIL, 1.0, 2.0, EVIL, 3.0, EVIL, None, settings=json.dumps({"x": EVIL}))
        question = Message("01EVIL-u", "01EVIL", None, "user", f"{EVIL}\0z", 1.0, "")
        reply = Message("01EVIL-r", "01EVIL", "01EVIL-u", "assistant", EVIL, 1.0, EVIL, EVIL, json.dumps({"cut": EVIL}))
        store.add_turn(chat, [question, reply])
    (home / "models").mkdir()
    write_model(home / "models" / f"{IN_NAMES}.gguf")
    with closing(PageStore(home / "kv", namespace(model=EVIL), 1 << 30)) as pages:
        put_chat(pages, range(200))
    return home


def write_model(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(EVIL)
    writer.add_author(EVIL)
    writer.add_license(EVIL)
    writer.add_description(EVIL)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_head_count(1)
    writer.add_feed_forward_length(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(EVIL)
    writer.add_token_list([EVIL, "a", "b", "c"])
    writer.add_chat_template(EVIL)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(*words: str) -> str:
    """What it prints on both streams."""
    done = subprocess.run(
        [*KVCHAT, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        errors="replace",
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def check(printed: str) -> None:
    found = FORBIDDEN.search(printed)
    assert found is None, printed[max(0, found.start() - 80) : found.start() + 80].encode("unicode_escape")


LOOKS = [
    "chats ls",
    "chats show 01EVIL",
    "chats search W",
    "chats search owned",
    "chats export 01EVIL",
    "chats rm 01EVIL",
    "chats rename 01EVIL other",
    "models ls",
    "models scan",
    "kv ls",
    "kv verify",
    "doctor",
    "paths",
]


@pytest.mark.parametrize("line", LOOKS)
def test_what_is_listed(evil_home: Path, line: str) -> None:
    printed = run(*line.split())
    if "export" not in line:  # a file for an editor: what was said is what it holds
        check(printed)
    listed = run(*line.split(), "--json")
    check(listed)
    assert evil_home.is_dir()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_models_of_evil_files(evil_home: Path, more: tuple[str, ...]) -> None:
    model = str(next((evil_home / "models").iterdir()))
    check(run("models", "show", model, *more))
    check(run("plan", model, *more))
    check(run("kv", "show", "0", *more))
    check(run("ask", "-m", model, "Hi.", *more))


@pytest.mark.parametrize(
    "words",
    [
        ("chats", "show", EVIL),
        ("chats", "rm", EVIL),
        ("chats", "rm", "--purge", EVIL),
        ("chats", "restore", EVIL),
        ("chats", "rename", EVIL, EVIL),
        ("chats", "import", EVIL),
        ("chats", "export", EVIL, "-o", EVIL),
        ("models", "show", EVIL),
        ("models", "rm", EVIL),
        ("models", "scan", EVIL),
        ("models", "pull", EVIL),
        ("models", "pull", f"hf:{EVIL}"),
        ("models", "pull", f"http://{EVIL}", "--offline"),
        ("kv", "show", EVIL),
        ("kv", "transcode", EVIL, "--to", EVIL),
        ("plan", EVIL),
        ("bench", "fidelity", "--text", EVIL),
        ("bench", "fidelity", "--types", EVIL),
        ("ask", "--chat", EVIL, "x"),
        ("ask", "-m", EVIL, "x"),
        ("ask", "-md", EVIL, "x"),
        ("ask", "--temp", EVIL, "x"),
        ("ask", "--ctx-size", EVIL, "x"),
        ("ask", "--overflow", EVIL, "x"),
        (EVIL,),
        (f"--{EVIL}",),
        ("chats", EVIL),
    ],
    ids=lambda words: " ".join(words)[:24].encode("unicode_escape").decode(),
)
def test_arguments(words: tuple[str, ...]) -> None:
    check(run(*[word.replace("\0", "") for word in words]))


@pytest.mark.parametrize(
    "text",
    [
        f'"{IN_NAMES.encode("unicode_escape").decode()}" = 1',
        json.dumps({"x": EVIL})[1:-1].replace('"x": ', "model = "),
        f"theme = {json.dumps(EVIL)}\nfavour = {json.dumps(EVIL)}",
        f"# {EVIL}\nx y z",
    ],
    ids=["key", "value", "choice", "not TOML"],
)
def test_the_settings_file(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, errors="replace")
    check(run("models", "ls"))
    check(run("ask", "x"))


def test_files_that_are_imported(home: Path, tmp_path: Path) -> None:
    with closing(ChatStore(home / "other.db")) as store:
        store.add_turn(
            Chat("01E", EVIL, 1.0, 2.0, EVIL, 3.0, EVIL, None), [Message("m", "01E", None, "user", EVIL, 1.0, "")]
        )
    node = {
        "id": "1",
        "parent": None,
        "children": [],
        "message": {"author": {"role": "user"}, "content": {"parts": [EVIL]}},
    }
    file = tmp_path / f"{IN_NAMES}.json"
    file.write_text(json.dumps([{"title": EVIL, "id": EVIL, "current_node": "1", "mapping": {"1": node}}]))
    check(run("chats", "import", str(file)))
    check(run("chats", "import", str(file), "--json"))
    broken = tmp_path / f"{IN_NAMES}2.json"
    broken.write_text('{"' + EVIL)
    check(run("chats", "import", str(broken)))
    check(run("chats", "ls"))
