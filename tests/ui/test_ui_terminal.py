"""The app on a real terminal, typed at with raw bytes: order of keys, pastes, foreign output, the end."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
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
def start(home: Path, bytecode: dict[str, str]) -> Iterator[Start]:
    """Starts the app; ends it after the test."""
    made: list[Terminal] = []

    environment = {"KVCHAT_HOME": str(home), **bytecode}

    def run(*arguments: str, columns: int = 100, rows: int = 30) -> Terminal:
        terminal = Terminal([sys.executable, str(PROGRAM), *arguments], columns, rows, environment)
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


def answered(terminal: Terminal, text: str) -> None:
    """Wait until the answer stands there with its footer, which it gets at its end."""

    def holds() -> bool:
        lines = terminal.lines()
        return any(text in above and "first 0.60 s" in below for above, below in pairwise(lines))

    terminal.wait_until(holds, text)


def leave_for_the_chat(terminal: Terminal) -> None:
    """Escape, until what is written next stands in the prompt. It comes as terminals with kitty's keyboard protocol
    send it, which is never the beginning of another key; what a screen takes that is still to be drawn is lost."""

    def writes() -> bool:
        terminal.send(b"\x1b[27u")
        terminal.send(b"~")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if "│ ~" in terminal.text():
                return True
            time.sleep(0.01)
        return False

    terminal.wait_until(writes, "the chat")
    terminal.send(b"\x15")


def pieces(terminal: Terminal) -> list[int]:
    """The numbers of the pieces of a slow answer that stand on the screen."""
    return [int(number) for number in re.findall(r"piece (\d+)", terminal.text())]


def test_enter_in_the_same_write_as_the_text(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"hi\r")
    answered(terminal, "echo 'hi'")
    terminal.send(b"abc\r")
    answered(terminal, "echo 'abc'")
    assert users(home) == ["hi", "abc"]


def test_editing_keys_keep_their_order(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"ba\x7fckspace\r")
    answered(terminal, "echo 'bckspace'")
    terminal.send(b"hello\x1b[D\x1b[DXY\r")
    answered(terminal, "echo 'helXYlo'")
    terminal.send(b"one two\x17three\r")
    answered(terminal, "echo 'one three'")
    assert users(home) == ["bckspace", "helXYlo", "one three"]


def test_keys_of_the_chat_keep_their_order_too(start: Start, home: Path) -> None:
    """^C clears what was written before it, not what comes in the same read; Escape and a page up change nothing."""
    terminal = start()
    terminal.send(b"gone\x03he\x1b[5~ll\x1b[1;5Fo\r")
    answered(terminal, "echo 'hello'")
    terminal.send(b"more\x0e")
    terminal.wait_until(lambda: "echo" not in terminal.text(), "a new chat")
    assert users(home) == ["hello"]


def test_all_ways_to_a_new_line(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"a\x1b[13;2ub\x1b[27;2;13~c\nd\\\re\r")
    terminal.wait_for("echo")
    assert users(home) == ["a\nb\nc\nd\ne"]


def test_alt_enter_of_old_terminals_sends(start: Start, home: Path) -> None:
    """They send ESC and the byte of Enter, which no program can tell from the two keys: so it is nobody's new line."""
    terminal = start()
    terminal.send(b"one\x1b\r")
    answered(terminal, "echo 'one'")
    assert users(home) == ["one"]


def test_a_paste_is_text_whatever_it_holds(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"\x1b[200~one\r\x1b[31mtwo\x1b]0;title\x07\tthr")
    terminal.send("ee 한글\r\nfour\x1b[201~".encode())
    terminal.wait_for("four")
    assert not (home / "chats.db").exists() or users(home) == []
    terminal.send(b"\r")
    terminal.wait_for("echo")
    assert users(home) == ["one\ntwo\tthree 한글\nfour"]


def test_a_pasted_slash_is_no_command(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"\x1b[200~/quit\x1b[201~\r")
    terminal.wait_for("echo")
    assert users(home) == ["/quit"]


def test_graphemes_are_deleted_as_one(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send("a👩‍💻b".encode() + b"\x7f\x7fc\x1b[D\x1b[D" + "e\u0301한".encode() + b"\x7f\x7f\r")
    answered(terminal, "echo 'ac'")
    assert users(home) == ["ac"]


def test_nothing_foreign_reaches_the_screen(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"!noise\r")
    terminal.wait_for("quiet")
    assert b"NOISE" not in terminal.raw
    log = home / "logs" / "app.log"
    assert b"NOISE-ON-1" in log.read_bytes()
    assert b"NOISE-ON-2" in log.read_bytes()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_model_cannot_command_the_terminal(start: Start) -> None:
    terminal = start()
    terminal.raw.clear()
    terminal.send(b"!evil\r")
    terminal.wait_for("␛]0;OWNED")
    for bad in (b"\x1b]0;OWNED", b"\x1b]52", b"\x1b[2Jd", "\x9b".encode(), "\u202e".encode(), b"\x00"):
        assert bad not in terminal.raw


@pytest.mark.parametrize("keys", [b"\x11", b"\x04", b"/quit\r", b"\x03\x03"])
def test_the_terminal_is_restored_on_every_way_out(start: Start, keys: bytes) -> None:
    terminal = start()
    terminal.send(keys)
    assert terminal.ended() == 0
    _restored(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(start: Start, home: Path, number: signal.Signals) -> None:
    terminal = start()
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 20")
    os.kill(terminal.process.pid, number)
    assert terminal.ended() == 128 + number
    _restored(terminal)
    with sqlite3.connect(home / "chats.db") as chats:
        text, finish = chats.execute("SELECT text, finish FROM messages WHERE role = 'assistant'").fetchone()
    assert text.startswith("piece 0\npiece 1\n")
    assert finish == "cancelled"


def test_a_closed_window_ends_it(start: Start) -> None:
    terminal = start()
    terminal.hang_up()
    assert terminal.ended() != 0


def test_start_ask_quit_and_resume(start: Start) -> None:
    terminal = start()
    terminal.send(b"remember me\r")
    answered(terminal, "echo 'remember me'")
    terminal.send(b"\x11")
    assert terminal.ended() == 0
    again = start("-c")
    again.wait_for("echo 'remember me'")
    again.send(b"and me\r")
    answered(again, "echo 'and me'")


def test_windows_are_resized_while_text_streams(start: Start) -> None:
    terminal = start(columns=120, rows=36)
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 40")
    for columns, rows in ((80, 24), (40, 12), (20, 6), (200, 50)):
        terminal.resize(columns, rows)
        terminal.wait_for("piece")
    terminal.send(b"\x1b")
    terminal.wait_for("stopped: /continue goes on")
    assert terminal.process.poll() is None


def test_a_killed_app_finds_its_chat_as_it_was_a_second_before(start: Start, home: Path) -> None:
    """`kill -9` while an answer streams: what was on the screen a second before is there at the next start, told as
    interrupted, and the chat goes on."""
    terminal = start()
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 20")
    seen = pieces(terminal)[-1]
    time.sleep(1.1)
    os.kill(terminal.process.pid, signal.SIGKILL)
    assert terminal.ended() == -signal.SIGKILL
    again = start("-c")
    again.wait_for("interrupted: /continue goes on")
    assert pieces(again)[-1] >= seen
    again.send(b"still here\r")
    answered(again, "echo 'still here'")


def _restored(terminal: Terminal) -> None:
    assert terminal.settings() == terminal.before
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l", b"\x1b[?2004l"):
        assert sequence in terminal.raw


def test_five_thousand_pasted_lines_are_a_chip_and_sent_in_full(start: Start, home: Path) -> None:
    terminal = start()
    text = "\r".join(f"line {number} 한글" for number in range(5_000))
    terminal.send(b"see ")
    for at in range(0, len(data := f"\x1b[200~{text}\x1b[201~".encode()), 4_000):
        terminal.send(data[at : at + 4_000])
    terminal.wait_for("see [Pasted #1 · 5,000 lines]")
    terminal.send(b"\x7f")
    terminal.wait_until(lambda: "Pasted" not in terminal.text(), "no chip")
    terminal.send(b"and \x1b[200~" + text[:40].encode() + b"\x1b[201~\r")
    terminal.wait_for("echo 'see and line 0")
    for at in range(0, len(data), 4_000):
        terminal.send(data[at : at + 4_000])
    terminal.wait_for("[Pasted #1 · 5,000 lines]")
    terminal.send(b"\r")
    terminal.wait_until(lambda: len(users(home)) == 2, "the message on disk")
    assert users(home)[1] == text.replace("\r", "\n")


def test_reading_while_it_streams(start: Start) -> None:
    terminal = start()
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 60")
    terminal.send(b"\x1b[5~")  # page up
    terminal.wait_for("↓ new")
    before = [line[:98].rstrip() for line in terminal.lines()[:20]]
    time.sleep(0.3)
    assert [line[:98].rstrip() for line in terminal.lines()[:20]] == before
    terminal.send(b"\x1b[1;5F")  # Ctrl+End
    terminal.wait_until(lambda: "↓ new" not in terminal.text(), "the end")
    newest = terminal.text()
    terminal.wait_until(lambda: terminal.text() != newest, "more text at the end")
    terminal.send(b"\x1b")
    terminal.wait_for("stopped: /continue goes on")


def test_a_message_waits_and_is_taken_back_before_the_answer_is_stopped(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"!slow\r")
    terminal.wait_for("piece 20")
    terminal.send("next message 键值\r".encode())
    terminal.wait_for("next: next message 键值 · esc takes it back")
    terminal.send(b"\x1b")
    terminal.wait_until(lambda: "esc takes it back" not in terminal.text(), "no chip")
    assert "stopped" not in terminal.text()
    terminal.send(b"\x1b")
    terminal.wait_for("stopped: /continue goes on")
    assert users(home) == ["!slow"]
    terminal.send(b"\r")
    terminal.wait_for("echo 'next message")


def test_browse_keys(start: Start, home: Path) -> None:
    terminal = start()
    terminal.send(b"one\r")
    answered(terminal, "echo 'one'")
    terminal.send(b"\x0f")
    terminal.wait_for("esc back")
    terminal.send(b"ke")
    terminal.wait_for("editing: your message")
    terminal.send(b" more\r")
    answered(terminal, "echo 'one more'")
    terminal.wait_for("you ‹2/2›")
    terminal.send(b"\x0f")
    terminal.wait_for("esc back")
    terminal.send(b"k[")
    terminal.wait_for("you ‹1/2›")
    answered(terminal, "echo 'one'")
    terminal.send(b"y")
    terminal.wait_until(lambda: b"\x1b]52;c;b25l" in bytes(terminal.raw), "OSC 52")  # "one"


def test_warm_forecast_and_another_cache(start: Start) -> None:
    terminal = start(columns=120)
    terminal.send(b"one\r")
    answered(terminal, "echo 'one'")
    terminal.send(b"next")
    terminal.wait_for("reuses 30, computes 10, first token in about 0.2 s")
    terminal.send(b"\x15/cache q8_0\r")
    terminal.wait_for("tokens back from pages in 0.05 s")
    assert "first token in about" not in terminal.text(), terminal.text()


def test_wide_characters_keep_the_borders_straight(start: Start) -> None:
    terminal = start(columns=120, rows=36)
    terminal.send("键值 한국어 ⚠ 日本語 é e\u0301\r".encode())
    terminal.wait_for("echo")
    terminal.send("键值缓存 한국어 문장".encode())
    terminal.wait_for("한국어 문장")
    rows = terminal.cells()
    top = next(y for y, row in enumerate(rows) if "╭" in row)
    bottom = next(y for y, row in enumerate(rows) if "╰" in row)
    assert (rows[top][119], rows[bottom][119]) == ("╮", "╯")
    assert all(rows[y][119] == "│" for y in range(top + 1, bottom))


@pytest.mark.parametrize("keys", [b"/model\r", b"\x1bOQ"])
def test_settings_open_and_close_without_a_change(start: Start, keys: bytes) -> None:
    terminal = start()
    terminal.send(keys)
    terminal.wait_for("─ Settings ─")
    terminal.send(b"\x1b")
    terminal.wait_until(lambda: "─ Settings ─" not in terminal.text(), "the chat again")
    terminal.send(b"still here\r")
    terminal.wait_for("echo 'still here'")


@pytest.mark.parametrize("keys", [b"/model\r\x03", b"\x1bOQ\x03", b"\x1bOQ\x1b", b"\x10\x1b\x1bOP\x1b\x1bOR\x1b"])
def test_a_screen_that_is_left_at_once(start: Start, keys: bytes) -> None:
    """Opened and closed in one read: it is gone before it was drawn."""
    terminal = start()
    terminal.send(keys)
    leave_for_the_chat(terminal)
    terminal.send(b"still here\r")
    terminal.wait_for("echo 'still here'")


def test_two_apps_on_one_chat(home: Path, start: Start) -> None:
    """Both go on from the same message: each has all that it said, the one that finds it out says so."""
    here = start()
    here.send(b"Begin\r")
    answered(here, "echo 'Begin'")
    here.wait_until(lambda: ended(home) == 1, "the end of the answer on disk")
    there = start("-c")
    there.wait_for("echo 'Begin'")
    there.send(b"There\r")
    answered(there, "echo 'There'")
    here.wait_until(lambda: ended(home) == 2, "the end of the answer on disk")
    here.send(b"Here\r")
    answered(here, "echo 'Here'")
    here.wait_for("went on in another kvchat")
    here.wait_until(lambda: ended(home) == 3, "the end of the answer on disk")
    assert users(home) == ["Begin", "There", "Here"]
    assert "locked" not in here.text() + there.text()
    with closing(sqlite3.connect(home / "chats.db")) as chats:
        said = "SELECT h.text FROM chats c JOIN messages r ON r.id = c.head JOIN messages h ON h.id = r.parent"
        assert chats.execute(said).fetchall() == [("Here",)]


def ended(home: Path) -> int:
    """How many answers stand on the disk with their end."""
    with closing(sqlite3.connect(home / "chats.db")) as chats:
        return int(chats.execute("SELECT count(*) FROM messages WHERE finish = 'stop'").fetchone()[0])
