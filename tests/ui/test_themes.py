"""Themes: can everything be read, which one is shown; no colours, sixteen of them, sizes, the mouse, following."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fake_backend import delta, prompt_events, turn_events
from terminal import Terminal
from textual.color import Color
from textual.events import MouseScrollUp
from textual.pilot import Pilot
from textual.theme import BUILTIN_THEMES
from ui_fakes import room, sees, send, shown, stage, toasts, until

from kvchat.config import Settings
from kvchat.ui.theme import BARE, CONTRAST, INK, LEGIBLE, OWN, PAPER, contrast, variables
from kvchat.ui.themes import is_light, ordered, theme_for

PROGRAM = Path(__file__).parent / "fake_app.py"
TEXTS = ("foreground", "primary", "accent", "success", "warning", "error", "meta")
GROUNDS = ("background", "surface", "panel")

# ------------------------------------------------------------------ contrast


def test_contrast_is_that_of_wcag() -> None:
    """Black on white is 21:1; #767676 is the lightest grey that has 4.5:1 on white."""
    white = Color.parse("#ffffff")
    assert round(contrast(Color.parse("#000000"), white), 2) == 21.0
    assert contrast(Color.parse("#767676"), white) >= 4.5 > contrast(Color.parse("#777777"), white)


@pytest.mark.parametrize("theme", OWN, ids=lambda theme: theme.name)
def test_every_text_can_be_read_on_every_ground(theme: object) -> None:
    colors = theme.to_color_system().generate() | theme.variables  # type: ignore[attr-defined]
    least = 6.5 if theme is CONTRAST else LEGIBLE
    for ground in GROUNDS:
        for text in TEXTS:
            value = contrast(Color.parse(colors[text]), Color.parse(colors[ground]))
            assert value >= least, (text, ground, value)
    for ground in ("primary", "foreground"):  # the pill and the cursor are the other way round
        assert contrast(Color.parse(colors["background"]), Color.parse(colors[ground])) >= least


def test_no_other_pairs_are_drawn() -> None:
    """Texts and grounds in our style sheets are those that the test above compares; `edge` is for borders and bars."""
    known = {*TEXTS, *GROUNDS}
    for file in sorted((Path(__file__).parents[2] / "kvchat" / "ui").glob("*")):
        if file.suffix not in {".py", ".tcss"}:
            continue
        for name in re.findall(r"(?<!-)\bcolor: \$([\w-]+)", file.read_text(encoding="utf-8")):
            assert name in known, (file.name, name)
        for name in re.findall(r"\bbackground: \$([\w-]+)", file.read_text(encoding="utf-8")):
            assert name in {*GROUNDS, "primary", "foreground", "warning", "boost"}, (file.name, name)


@pytest.mark.parametrize("name", sorted(name for name, theme in BUILTIN_THEMES.items() if not theme.ansi))
def test_our_dim_text_can_be_read_in_the_themes_of_others(name: str) -> None:
    theme = BUILTIN_THEMES[name]
    colors = theme.to_color_system().generate()
    meta, foreground = Color.parse(variables(theme)["meta"]), Color.parse(colors["foreground"])
    for ground in GROUNDS:
        on = Color.parse(colors[ground])
        assert contrast(meta, on) >= min(LEGIBLE, contrast(foreground, on)) - 0.01


# ------------------------------------------------------------------ which one


@pytest.mark.parametrize(
    ("variable", "light"),
    [
        ("0;15", True),
        ("0;default;15", True),
        ("15;0", False),
        ("0;7", True),
        ("15;8", False),
        ("12;11", True),
        ("", False),
        ("default;default", False),
        ("0;99", False),
        ("0;²", False),
    ],
)
def test_what_the_terminal_says_of_its_background(variable: str, light: bool) -> None:
    assert is_light({"COLORFGBG": variable}) is light


@pytest.mark.parametrize(
    ("wanted", "environment", "no_color", "name", "told"),
    [
        ("auto", {}, False, "ink", ""),
        ("auto", {"COLORFGBG": "0;15"}, False, "paper", ""),
        ("ink", {"COLORFGBG": "0;15"}, False, "ink", ""),
        ("nord", {}, False, "nord", ""),
        ("nrod", {}, False, "ink", "There is no theme nrod. Did you mean nord?"),
        ("qqqqqq", {"COLORFGBG": "0;15"}, False, "paper", "There is no theme qqqqqq. /theme lists them."),
        ("paper", {"COLORFGBG": "0;15"}, True, "bare", ""),
    ],
)
def test_the_theme_to_show(wanted: str, environment: Mapping[str, str], no_color: bool, name: str, told: str) -> None:
    known = [*BUILTIN_THEMES, *(theme.name for theme in (*OWN, BARE))]
    assert theme_for(wanted, known, environment, no_color) == (name, told)


def test_ours_come_first_and_the_bare_one_is_not_offered() -> None:
    names = ordered([*BUILTIN_THEMES, "paper", "ink", "contrast", "bare"])
    assert names[:4] == ("auto", "ink", "paper", "contrast")
    assert "bare" not in names
    assert set(names[4:]) == BUILTIN_THEMES.keys()


async def test_all_themes_can_be_shown(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            for name in ordered(pilot.app.available_themes)[1:]:
                pilot.app.theme = name
                await pilot.pause()
                await sees(pilot, "Hello there.")


async def test_a_theme_that_is_not_there_is_told(home: Path) -> None:
    with stage(home, turn_events, settings=Settings(theme="papier")) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            await sees(pilot, "There is no theme papier. Did you mean paper?")
            assert pilot.app.theme == INK.name
            await send(pilot, "/theme Paper")
            await until(pilot, lambda: pilot.app.theme == PAPER.name)
            await until(pilot, (home / "config.toml").exists)
            assert tomllib.loads((home / "config.toml").read_text()) == {"theme": "paper"}
            await send(pilot, "/theme ikn")
            await until(pilot, lambda: "Did you mean ink?" in toasts(pilot))


# ------------------------------------------------------------------ without colours


@pytest.fixture
def bare(home: Path) -> Iterator[Terminal]:
    """The app on a terminal, for somebody who wants no colours."""
    terminal = Terminal(
        [sys.executable, str(PROGRAM)], 100, 30, {"KVCHAT_HOME": str(home), "NO_COLOR": "1", "COLORFGBG": "0;15"}
    )
    terminal.wait_for("fake-1b")
    yield terminal
    terminal.close()


def marked_text(terminal: Terminal) -> str:
    """All that stands there reversed or underlined, line by line."""
    with terminal._lock:
        rows = [[terminal._screen.buffer[y][x] for x in range(100)] for y in range(30)]
    lines = ["".join(cell.data for cell in row if cell.reverse or cell.underscore) for row in rows]
    return "\n".join(filter(None, lines))


def test_without_colours_what_is_marked_is_seen_and_no_colour_is_written(bare: Terminal) -> None:
    bare.send(b"hello\r")
    bare.wait_for("first 0.60 s")
    bare.send(b"\x10")  # the palette: its first row
    bare.wait_for("List of chats")
    bare.wait_until(lambda: "New chat" in marked_text(bare), "the marked row")
    bare.send(b"\x1b[B")
    bare.wait_until(lambda: "List of chats" in marked_text(bare), "the next row")
    bare.send(b"\x1b")
    bare.wait_until(lambda: "Commands" not in bare.text(), "the chat")
    bare.send(b"\x13")  # the list of chats
    bare.wait_until(lambda: "hello" in marked_text(bare), "the marked chat")
    bare.send(b"\x1b")
    bare.wait_until(lambda: "hello" not in marked_text(bare), "the prompt")
    bare.send(b"\x0f")  # messages
    bare.wait_until(lambda: "▌" in marked_text(bare), "the mark")
    bare.send(b"\x11")
    assert bare.ended() == 0
    styles = {style for found in re.findall(rb"\x1b\[([0-9;:]*)m", bytes(bare.raw)) for style in found.split(b";")}
    assert styles <= {b"", b"0", b"1", b"2", b"3", b"4", b"7", b"9", b"39", b"49"}


def test_without_colours_the_prompt_shows_that_it_has_the_keyboard(bare: Terminal) -> None:
    bare.wait_for("┏")
    bare.send(b"\x13")
    bare.wait_until(lambda: "┏" not in bare.text() and "╭" in bare.text(), "a light border")


async def test_without_colours_there_is_no_theme_to_choose(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    with stage(home, turn_events, settings=Settings(theme="paper")) as on:
        async with on.app().run_test(size=(80, 24)) as pilot:
            assert pilot.app.theme == BARE.name
            await send(pilot, "/theme paper")
            await until(pilot, lambda: "NO_COLOR" in toasts(pilot))
            assert pilot.app.theme == BARE.name


# ------------------------------------------------------------------ sixteen colours, sizes


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_sixteen_colours_in_tmux(home: Path) -> None:
    """The app runs where the terminal has sixteen colours, and writes no others."""
    socket = str(home / "tmux")

    def tmux(*words: str) -> str:
        return subprocess.run(["tmux", "-S", socket, *words], capture_output=True, text=True, check=False).stdout

    variables = f"KVCHAT_HOME={home} TERM=xterm-16color COLORTERM="
    command = f"env -u COLUMNS -u LINES {variables} {shlex.join([sys.executable, str(PROGRAM)])}; sleep 1000"
    try:
        tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command)
        for _ in range(600):
            screen = tmux("capture-pane", "-p", "-e")
            if "fake-1b" in screen:
                break
            subprocess.run(["sleep", "0.05"], check=True)
        assert "fake-1b" in screen
        assert not re.search(r"\x1b\[[0-9;]*[34]8[;:][25]", screen)
    finally:
        tmux("kill-server")


SIZES = ((60, 20), (80, 24), (120, 36), (200, 50), (40, 12), (20, 6), (60, 20))


@pytest.mark.parametrize("keys", [(), ("ctrl+p",), ("f1",), ("f2",), ("f3",), ("ctrl+s",), ("ctrl+o",)])
async def test_every_screen_at_every_size(home: Path, keys: tuple[str, ...]) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            await pilot.press(*keys)
            for size in SIZES:
                await pilot.resize_terminal(*size)
                await pilot.pause()
            await pilot.press("escape")
            await until(pilot, lambda: "Hello there." in shown(pilot))


# ------------------------------------------------------------------ mouse


MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", b"\x1b[?1000l"


def test_the_mouse_is_turned_off_and_on_while_the_app_runs(home: Path) -> None:
    terminal = Terminal([sys.executable, str(PROGRAM)], 100, 30, {"KVCHAT_HOME": str(home)})
    terminal.wait_for("fake-1b")
    assert MOUSE_ON in terminal.raw
    terminal.raw.clear()
    terminal.send(b"/mouse off\r")
    terminal.wait_for("The mouse is the terminal's")
    assert MOUSE_OFF in terminal.raw
    terminal.raw.clear()
    terminal.send(b"/mouse\r")
    terminal.wait_for("The mouse is for the app.")
    assert MOUSE_ON in terminal.raw
    terminal.send(b"\x11")
    assert terminal.ended() == 0
    assert MOUSE_OFF in terminal.raw
    assert tomllib.loads((home / "config.toml").read_text()) == {"mouse": True}
    terminal.close()


async def test_the_wheel_scrolls_the_chat(home: Path) -> None:
    with stage(home, lambda request: turn_events(request, ["line\n\n" * 60 + "end"])) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "long")
            await sees(pilot, "end")
            transcript = room(pilot).transcript
            bottom = transcript.scroll_offset.y
            for _ in range(3):
                await pilot._post_mouse_events([MouseScrollUp], "#transcript", offset=(5, 5))
            await until(pilot, lambda: transcript.scroll_offset.y < bottom)
            assert room(pilot).prompt.has_focus


async def test_a_click_opens_a_chat(home: Path) -> None:
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            await send(pilot, "first chat")
            await sees(pilot, "Hello there.")
            await pilot.press("ctrl+n")
            await until(pilot, lambda: "Hello there." not in shown(pilot))
            rows = "".join(f"{strip.text}\n" for strip in pilot.app.screen._compositor.render_strips()).splitlines()
            row = next(y for y, line in enumerate(rows) if "first chat" in line[:30])
            await pilot.click(offset=(8, row))
            await sees(pilot, "▌ first chat")
            assert room(pilot).prompt.has_focus


# ------------------------------------------------------------------ follow


async def answer_of(pilot: Pilot[None], on: object, mode: str) -> None:
    """Ask, and let an answer of sixty lines come in two pieces."""
    await send(pilot, f"/follow {mode}")
    await send(pilot, "count")
    await until(pilot, lambda: bool(on.engine.requests))  # type: ignore[attr-defined]
    request = on.engine.requests[-1]  # type: ignore[attr-defined]
    lines = [f"line {number}\n\n" for number in range(60)]
    for piece in ("".join(lines[:30]), "".join(lines[30:])):
        on.engine.say(*(prompt_events(request) if piece.startswith("line 0\n") else ()), delta(request, piece))  # type: ignore[attr-defined]
        await until(pilot, lambda: room(pilot).conversation.live is not None)
        await pilot.pause(0.3)


@pytest.mark.parametrize(("mode", "there"), [("bottom", "line 59"), ("start", "fake-1b"), ("off", "▌ count")])
async def test_where_the_view_goes_while_an_answer_comes(home: Path, mode: str, there: str) -> None:
    """bottom: its last line is seen. start: its heading stands at the top. off: the question stays where it was."""
    with stage(home) as on:
        async with on.app().run_test(size=(80, 20)) as pilot:
            await answer_of(pilot, on, mode)
            assert there in shown(pilot)
            assert ("line 59" in shown(pilot)) is (mode == "bottom")
            if mode == "start":
                assert there in shown(pilot).splitlines()[0]
            await pilot.press("ctrl+end")
            await sees(pilot, "line 59")
