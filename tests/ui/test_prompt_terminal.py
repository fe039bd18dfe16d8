"""What goes with the prompt on a real terminal, with raw bytes: keys that come in one write keep their order."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import Terminal

Start = Callable[..., Terminal]
PROGRAM = Path(__file__).parent / "fake_app.py"


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Compiled modules are kept from one start to the next, wherever the tests run."""
    return {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")), "PYTHONDONTWRITEBYTECODE": ""}


@pytest.fixture
def start(home: Path, bytecode: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the app in a folder with a few files; ends it after the test."""
    made: list[Terminal] = []
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "two words.md").write_text("# 제목\n")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, columns: int = 100, rows: int = 30, **environment: str) -> Terminal:
        everything = {"KVCHAT_HOME": str(home), **bytecode, **environment}
        terminal = Terminal([sys.executable, str(PROGRAM), *arguments], columns, rows, everything)
        made.append(terminal)
        terminal.wait_for("fake-1b")
        return terminal

    yield run
    for terminal in made:
        terminal.close()


def users(home: Path) -> list[str]:
    """What was sent, from the disk."""
    with sqlite3.connect(home / "chats.db") as chats:
        return [text for (text,) in chats.execute("SELECT text FROM messages WHERE role = 'user' ORDER BY number")]


def drafts(home: Path) -> list[str]:
    """What is kept, from the disk."""
    with sqlite3.connect(home / "chats.db") as chats:
        return [text for (text,) in chats.execute("SELECT text FROM drafts ORDER BY chat")]


def gone(terminal: Terminal, text: str) -> None:
    terminal.wait_until(lambda: text not in terminal.text(), f"no {text}")


def test_a_menu_opens_over_the_transcript_and_moves_nothing(start: Start) -> None:
    terminal = start(columns=80)
    before = terminal.lines()
    bottom = next(row for row, line in enumerate(before) if line.startswith("╰"))
    terminal.send(b"/")
    terminal.wait_for("choose the model")
    assert terminal.lines()[bottom] == before[bottom]
    terminal.send(b"\x1b")
    gone(terminal, "choose the model")
    assert terminal.lines()[:3] == before[:3]
    assert "│ /" in terminal.lines()[bottom - 1]


def test_a_command_is_completed_and_carried_out_in_one_write(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"/sys\tbe brief\r")
    terminal.wait_for("System prompt set")
    terminal.send(b"/hist\x1b[B\x1b[B\t\x1b[Bex\r\r")  # down moves round the only one; exact is marked, then sent
    terminal.wait_for("history exact, for this chat.")
    terminal.send(b"/help\r")
    terminal.wait_for("Keys and commands")
    assert not (home / "chats.db").exists() or users(home) == []


def test_a_file_is_chosen_and_sent_in_one_write(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send("see @notes#2-3\tand @두\x7f".encode() + b"two\r it\r")
    terminal.wait_for("echo")
    assert users(home) == [
        "```text notes.txt lines 2-3\ntwo\nthree\n```\n\n"
        "```markdown two words.md\n# 제목\n```\n\n"
        "see @notes.txt#2-3 and @two words.md  it"
    ]


def test_what_was_sent_is_found_and_taken_in_one_write(start: Start, home: Path) -> None:
    terminal = start()
    for text in (b"alpha one", b"beta", b"alpha two"):
        terminal.send(text + b"\r")
        terminal.wait_for(f"echo '{text.decode()}'")
    terminal.send(b"draft\x12alp\x12\r!\r")
    terminal.wait_for("echo 'alpha one!'")
    assert users(home)[-1] == "alpha one!"
    terminal.send(b"draft\x12alp")
    terminal.wait_for("sent before: alp")
    terminal.send(b"\x1b")
    gone(terminal, "sent before")
    terminal.send(b" goes on\r")
    terminal.wait_for("echo 'draft goes on'")


def test_the_draft_goes_through_the_editor(start: Start, home: Path, tmp_path: Path) -> None:
    """The editor has the terminal: it reads a line that is typed, and what it prints is seen. Then the app is back."""
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\necho EDITOR-HERE\nread line\nprintf "%s and $line\\n" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    terminal = start(EDITOR=f"{editor} ", VISUAL="")
    terminal.send(b"first\x07")
    terminal.wait_for("EDITOR-HERE")
    terminal.send(b"more\n")
    terminal.wait_for("│ first and more")
    terminal.send(b"!\r")
    terminal.wait_for("echo 'first and more!'")
    assert users(home) == ["first and more!"]
    assert list((home / "state").glob("draft-*")) == []


@pytest.mark.parametrize(("command", "said"), [("false", "ended with 1"), ("no-such-editor", "no editor")])
def test_an_editor_that_fails_costs_nothing(start: Start, command: str, said: str) -> None:
    terminal = start(EDITOR=command, VISUAL="")
    terminal.send(b"kept\x07")
    terminal.wait_for(said)
    terminal.send(b" still\r")
    terminal.wait_for("echo 'kept still'")


def test_an_answer_goes_on_behind_the_editor_and_a_signal_ends_both(start: Start, home: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nread line\n")
    editor.chmod(0o755)
    terminal = start(EDITOR=str(editor), VISUAL="")
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 20")
    terminal.send(b"unsent\x07")
    terminal.wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", "the editor")

    def answered() -> int:
        with sqlite3.connect(home / "chats.db") as chats:
            return int(chats.execute("SELECT length(text) FROM messages WHERE role = 'assistant'").fetchone()[0])

    before = answered()
    terminal.wait_until(lambda: answered() > before, "more of the answer on disk")
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.ended() == 128 + signal.SIGTERM
    assert terminal.settings() == terminal.before
    assert drafts(home) == ["unsent"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_killed_app_loses_no_draft(start: Start, home: Path) -> None:
    """A draft in a chat, one in a chat that does not exist yet, both after `kill -9`."""
    terminal = start()
    terminal.send(b"a question\r")
    terminal.wait_for("echo 'a question'")
    terminal.send("half a 문장\nof two rows".encode())
    terminal.wait_until(lambda: drafts(home) == ["half a 문장\nof two rows"], "the draft on disk")
    terminal.send(b"\x0e")  # a new chat
    gone(terminal, "echo 'a question'")
    terminal.send(b"begun \x1b[200~" + b"\r".join(b"line %d" % n for n in range(30)) + b"\x1b[201~")
    terminal.wait_for("begun [Pasted #1 · 30 lines")
    whole = "begun " + "\n".join(f"line {n}" for n in range(30))
    terminal.wait_until(lambda: drafts(home) == [whole, "half a 문장\nof two rows"], "both drafts on disk")
    os.kill(terminal.process.pid, signal.SIGKILL)
    assert terminal.ended() == -signal.SIGKILL

    again = start("-c")
    again.wait_for("│ of two rows")
    again.send(b"!\r")
    again.wait_until(lambda: users(home)[-1] == "half a 문장\nof two rows!", "the message")
    again.wait_until(lambda: drafts(home) == [whole], "no draft of what was sent")
    again.send(b"\x0e")
    again.wait_for("│ line 29")
    again.send(b"\x11")
    assert again.ended() == 0
    assert drafts(home) == [whole]


def test_a_text_typed_without_a_rest_is_written_all_the_same(start: Start, home: Path) -> None:
    terminal = start()
    for number in range(60):
        terminal.send(b"%d " % number)
        terminal.wait_for(f" {number} " if number else "0 ")
        if (home / "chats.db").exists() and drafts(home):
            return
        time.sleep(0.1)
    raise AssertionError("nothing was written in six seconds of typing")
