"""Whole screens as plain text: what one should see, also where the text is of the kind that breaks screens.

The frames lie in tests/data/frames, one a test and size, as the app draws them; their docstrings say what to look for.
`python tests/ui/test_frames.py` writes them anew. Clocks stand still.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import pytest
from fake_backend import turn_events
from modal_host import settled, text
from rich.cells import cell_len
from textual.pilot import Pilot
from ui_fakes import Stage, room, send, stage, until

from kvchat.backend.protocol import Event, Generate

FRAMES = Path(__file__).parents[1] / "data" / "frames"
NOON = 1_764_500_400.0  # 2025-11-30 11:00:00 UTC

# Scripts with wide characters, marks that combine, letters from right to left, emoji of several code points.
WORLD = """\
| language | word | cells |
|---|---|--:|
| 中文 | 键值缓存 | 8 |
| 한국어 | 캐시 | 4 |
| 日本語 | キャッシュ 🙇 | 12 |
| עברית | מִטְמוֹן | 5 |
| العربية | ذاكِرة | 5 |
| ไทย | แคชที่ใช้ | 6 |
| हिन्दी | कैश | 2 |
| emoji | 👩‍💻🇰🇷⚠️1️⃣👍🏽 | 8 |
| Zalgo | Z̷̢a̶̛l̸g̷o | 5 |

> 인용문 안의 **굵은** `코드` 그리고 שלום

```python
print("键值", "👩‍💻", "e\u0301")  # комментарий
```
"""
# What a terminal, Rich or Textual would obey.
EVIL = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x9b31m [bold red]not bold[/] [@click=app.quit]link[/] [/nope "
    "\u202etxt.exe\u2066 a\x00b\x7f"
)
# The same in a file's name, as far as file systems take it.
EVIL_NAME = "[bold red]a[@click=app.quit]\x1b[31m\u202eb.txt"


def saying(reply: str) -> Callable[[Generate], list[Event]]:
    return lambda request: turn_events(request, [reply])


async def asked(pilot: Pilot[None], on: Stage, question: str) -> None:
    await until(pilot, lambda: on.engine.ready is not None)
    await send(pilot, question)
    await until(pilot, lambda: bool(on.engine.requests) and not room(pilot).is_busy)
    await pilot.press("f1", "escape")  # whatever is said for a moment has gone by then
    await pilot.pause()


def frame(pilot: Pilot[None]) -> str:
    """The screen, its lines without the spaces at their ends."""
    lines = [line.rstrip() for line in text(pilot.app).splitlines()]
    assert len(lines) == pilot.app.size.height
    assert all(cell_len(line) <= pilot.app.size.width for line in lines)
    return "\n".join(lines) + "\n"


def obeyed(shown: str) -> list[str]:
    """Characters that a terminal takes for more than a character."""
    return [c for c in shown if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E]


def straight(shown: str) -> bool:
    """Whether the prompt's box is straight: all its rows end in the last column but one."""
    rows = shown.splitlines()
    top = max(row for row, line in enumerate(rows) if line.endswith("╮"))
    bottom = max(row for row, line in enumerate(rows) if line.endswith("╯"))
    return len({cell_len(line) for line in rows[top : bottom + 1]}) == 1


# ------------------------------------------------------------------ the frames


async def many_scripts(home: Path, size: tuple[int, int]) -> str:
    with stage(home, saying(WORLD)) as on:
        async with on.app().run_test(size=size) as pilot:
            await asked(pilot, on, "键值 한국어 👩‍💻 ⚠️ 🇰🇷 e\u0301 שלום")
            room(pilot).prompt.put("键值 한국어 👩‍💻⚠️🇰🇷1️⃣ e\u0301 שלום\nمرحبا tail")
            await pilot.pause()
            return frame(pilot)


async def control_sequences(home: Path, size: tuple[int, int]) -> str:
    with stage(home, saying(f"{EVIL}\n\n`{EVIL}`\n\n```\n{EVIL}\n```\n")) as on:
        async with on.app().run_test(size=size) as pilot:
            await asked(pilot, on, EVIL)
            room(pilot).prompt.put(EVIL)
            await pilot.press("ctrl+s")
            await settled(pilot, lambda: "esc back" in text(pilot.app))
            await pilot.pause()
            return frame(pilot)


async def names_of_files(home: Path, size: tuple[int, int]) -> str:
    folder = home / "work"
    folder.mkdir()
    (folder / EVIL_NAME).write_text("one\ntwo\n")
    (folder / "键值 notes 👩‍💻.md").write_text("# 제목\n")
    (folder / "plain.txt").write_text("plain\n")
    before = Path.cwd()
    os.chdir(folder)
    try:
        with stage(home, saying("ok")) as on:
            async with on.app().run_test(size=size) as pilot:
                await until(pilot, lambda: on.engine.ready is not None)
                await pilot.press("@", "b", "o", "l", "d")
                await settled(pilot, lambda: "[bold red]a" in text(pilot.app))
                await pilot.press("enter", "a", "n", "d", "space", "@")
                await settled(pilot, lambda: "plain.txt" in text(pilot.app))
                return frame(pilot)
    finally:
        os.chdir(before)


LINES = [f"    value_{number:04} = compute(layer={number}, scale=0.5)  # step {number}" for number in range(3_500)]
CODE = "```python\n" + "\n".join(LINES) + "\n```\n\nThat was all.\n"


async def long_code(home: Path, size: tuple[int, int]) -> str:
    with stage(
        home, lambda request: turn_events(request, [CODE[at : at + 997] for at in range(0, len(CODE), 997)])
    ) as on:
        async with on.app().run_test(size=size) as pilot:
            await asked(pilot, on, "all of it")
            await pilot.press("pageup")
            await pilot.pause()
            return frame(pilot)


Making = Callable[[Path, tuple[int, int]], Awaitable[str]]
MADE: dict[str, Making] = {
    "many_scripts": many_scripts,
    "control_sequences": control_sequences,
    "names_of_files": names_of_files,
    "long_code": long_code,
}
SIZES = ((120, 36), (80, 24))


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def kept(name: str, size: tuple[int, int]) -> str:
    return (FRAMES / f"{name}-{size[0]}x{size[1]}.txt").read_text(encoding="utf-8")


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_many_scripts(home: Path, size: tuple[int, int]) -> None:
    """A table with words in nine scripts: its columns stand straight, numbers at the right edge of theirs. Emoji of
    several code points are one picture each, ⚠ and 1 take one cell. Letters with marks keep them. The box of the prompt
    is closed at the right in each of its rows."""
    shown = await many_scripts(home, size)
    assert straight(shown)
    assert shown == kept("many_scripts", size)


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_control_sequences_and_markup_of_the_model(home: Path, size: tuple[int, int]) -> None:
    """ESC is ␛, BEL ␇, NUL ␀; the C1 control is a replacement mark, marks that turn the direction of text are gone.
    Square brackets stand as they are. In the question, in prose, in code, in the title of the chat, in the draft."""
    shown = await control_sequences(home, size)
    assert obeyed(shown) == []
    assert straight(shown)
    assert shown == kept("control_sequences", size)


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_names_of_files_are_text(home: Path, size: tuple[int, int]) -> None:
    """A name with a control sequence and markup in it, taken into the prompt; below it the menu with all three files,
    the wide characters of one of them in line with the rest."""
    shown = await names_of_files(home, size)
    assert obeyed(shown) == []
    assert "[bold red]a[@click=app.quit]␛[31mb.txt" in shown
    assert straight(shown)
    assert shown == kept("names_of_files", size)


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_two_hundred_kilobytes_of_code(home: Path, size: tuple[int, int]) -> None:
    """A page above the end of 3,500 lines of code: consecutive numbers, each line whole in its panel."""
    assert len(CODE) > 200_000
    shown = await long_code(home, size)
    numbers = [int(line.split("value_")[1][:4]) for line in shown.splitlines() if "value_" in line]
    assert len(numbers) > 10
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert shown == kept("long_code", size)


async def write() -> None:
    for name, make in MADE.items():
        for size in SIZES:
            with tempfile.TemporaryDirectory() as folder:
                shown = await make(Path(folder), size)
            (FRAMES / f"{name}-{size[0]}x{size[1]}.txt").write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    os.environ |= {"TZ": "UTC"}
    time.tzset()
    time.time = lambda: NOON
    FRAMES.mkdir(parents=True, exist_ok=True)
    asyncio.run(write())
