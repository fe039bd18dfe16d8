"""The app in tmux, which measures characters by rules of its own: pastes, widths, sizes."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if shutil.which("tmux") is None:
    pytest.skip("tmux is not installed", allow_module_level=True)

from test_tmux import Terminal

PROGRAM = Path(__file__).parent / "fake_app.py"
MIXED = ("键值", "한국어", "👩‍💻", "⚠️", "🇰🇷", "1️⃣")
SIZES = ((120, 36), (80, 24), (60, 20), (40, 12), (20, 6), (200, 50))


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled modules are kept from one start to the next, wherever the tests run."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def terminal(home: Path, bytecode: Path) -> Iterator[Terminal]:
    """A tmux in which the app is ready, with a shell below it that tells how it ended."""
    terminal = Terminal(home)
    # readline, which pytest imports, exports the size of the terminal of the tests
    variables = f"KVCHAT_HOME={home} PYTHONPYCACHEPREFIX={bytecode} PYTHONDONTWRITEBYTECODE="
    program = f"env -u COLUMNS -u LINES {shlex.join(variables.split())} {shlex.join([sys.executable, str(PROGRAM)])}"
    shell = f"{program}; echo ended with $?; sleep 1000"
    terminal.run("-f", "/dev/null", "-u", "new-session", "-d", "-x", "120", "-y", "36", shell)
    terminal.until_text("fake-1b")
    yield terminal
    terminal.close()


def users(home: Path) -> list[str]:
    """What was sent, from the disk."""
    with sqlite3.connect(home / "chats.db") as chats:
        return [text for (text,) in chats.execute("SELECT text FROM messages WHERE role = 'user' ORDER BY number")]


def borders(terminal: Terminal) -> set[str]:
    """The columns, as tmux counts, in which the rows of the prompt end."""
    rows = terminal.screen().splitlines()
    top = max(index for index, row in enumerate(rows) if row.endswith("╮"))
    bottom = max(index for index, row in enumerate(rows) if row.endswith("╯"))
    terminal.run("copy-mode", ";", "send-keys", "-X", "top-line")
    columns: set[str] = set()
    for row in range(bottom + 1):
        found = terminal.run("send-keys", "-X", "end-of-line", ";", "display-message", "-p", "#{copy_cursor_x}")
        columns |= {found.strip()} if row >= top else set()
        terminal.run("send-keys", "-X", "cursor-down")
    terminal.run("send-keys", "-X", "cancel")
    return columns


def test_enter_right_after_a_paste_of_several_lines(terminal: Terminal, home: Path) -> None:
    text = "one\ttab\n둘째 한글 줄\nthree"
    terminal.run("set-buffer", text, ";", "paste-buffer", "-p", ";", "send-keys", "Enter")
    terminal.until(lambda screen: "echo 'one" in screen and "first 0.60 s" in screen)
    assert users(home) == [text]


def test_characters_of_all_widths(terminal: Terminal, home: Path) -> None:
    terminal.run("set-buffer", "\n".join(f"{word} tail" for word in MIXED), ";", "paste-buffer", "-p")
    terminal.until_text("1\ufe0e\u20e3 tail")
    assert len(borders(terminal)) == 1
    for _ in MIXED:  # the caret on each of them
        terminal.keys("Home", "Up")
    terminal.until(lambda _: len(borders(terminal)) == 1)
    terminal.keys("C-c")
    terminal.until(lambda screen: "tail" not in screen)

    text = "".join(MIXED)
    terminal.keys("-l", f"!say {text}")
    terminal.keys("Enter")
    terminal.until_text("first 0.60 s")
    assert users(home) == [f"!say {text}"]
    drawn = text.replace("\ufe0f\u20e3", "").replace("\ufe0f", "")
    rows = terminal.until(lambda screen: screen.count(drawn) == 3).splitlines()  # title, question and answer
    assert "\ufe0f" not in "".join(rows)

    terminal.keys("-l", text)
    terminal.until_text("1\ufe0e\u20e3")
    terminal.keys(*["BSpace"] * 4)  # a keycap, a flag, a sign, a person
    terminal.keys("Enter")
    terminal.until_text("echo")
    assert users(home)[-1] == "键值한국어"


def test_a_table_and_the_caret_stand_where_tmux_counts(terminal: Terminal) -> None:
    """Each row of the table ends with the same word, in the same column. The caret behind a word is as many cells from
    that before it as tmux gives the word."""
    rows = [f"| {word} | {'end' if number % 2 else 'END'} |" for number, word in enumerate(MIXED)]
    terminal.run("set-buffer", "\n".join(["!say | a | b |", "|---|---|", *rows]), ";", "paste-buffer", "-p")
    terminal.keys("Enter")
    screen = terminal.until(lambda screen: "first 0.60 s" in screen)
    lines = screen.splitlines()
    wanted = [row for row, line in enumerate(lines) if line.rstrip().endswith(("│ end", "│ END"))]
    assert len(wanted) == len(MIXED)
    terminal.run("copy-mode", ";", "send-keys", "-X", "top-line")
    columns = set()
    for row in range(max(wanted) + 1):
        found = terminal.run("send-keys", "-X", "end-of-line", ";", "display-message", "-p", "#{copy_cursor_x}")
        columns |= {found.strip()} if row in wanted else set()
        terminal.run("send-keys", "-X", "cursor-down")
    terminal.run("send-keys", "-X", "cancel")
    assert len(columns) == 1

    def caret() -> int:
        return int(terminal.run("display-message", "-p", "#{cursor_x}"))

    start = caret()
    for word, cells in zip(MIXED, (4, 6, 2, 1, 2, 1), strict=True):
        terminal.keys("-l", word)
        terminal.until(lambda _, cells=cells: caret() == start + cells)
        terminal.keys("Home")
        terminal.until(lambda _: caret() == start)
        terminal.keys("C-c")


def follows(screen: str, rows: int, end: str) -> bool:
    """The status line stands in the last of so many rows, and the end of the answer right above the prompt."""
    lines = [line.rstrip() for line in screen.splitlines()]
    if len(lines) != rows or ("fake-1b" not in lines[-1] and "%" not in lines[-1]):
        return False
    above = [line for line in lines[: -2 if rows < 10 else -5] if line]
    return bool(above) and above[-1].endswith(end)


def test_all_sizes_while_an_answer_comes(terminal: Terminal) -> None:
    terminal.keys("-l", "!slow")
    terminal.keys("Enter")
    terminal.until_text("piece 20")
    for columns, rows in SIZES:
        terminal.run("resize-window", "-x", str(columns), "-y", str(rows))
        screen = terminal.until(lambda screen, rows=rows: follows(screen, rows, "▍"))
        assert ("/ find…" in screen) == (columns >= 120)
    terminal.keys("Escape")
    terminal.until(lambda screen: follows(screen, SIZES[-1][1], "stopped: /continue goes on"))
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
