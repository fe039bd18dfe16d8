"""Every screen in every theme: what is written on it can be read, and lies within it.

One should see a chat with prose, a list, a table, code and a quotation; over it, one after the other, the list of
chats, the inspector's and the settings' pages, the palette, help and the models; and the first screen of a new home.
Each text stands out from its ground by 3:1 at least, which WCAG asks of large text; what terminals draw is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import turn_events
from modal_host import model
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.pilot import Pilot
from ui_fakes import room, send, stage, until

from kvchat.config import Settings
from kvchat.ui.launch import Survey
from kvchat.ui.theme import contrast

LEAST = 3.0
SIZE = (100, 32)
REPLY = """\
# A title

Some prose with **bold**, *slanted* and `code`, and a [link](https://example.org/).

- one
- two

| type | MiB |
|---|--:|
| f16 | 612 |

> a quotation

```python
def answer(n: int) -> str:  # a comment
    return f"{n} is {42!r}"
```
"""
# Name -> the keys that lead there from the chat, and what stands there.
SCREENS: dict[str, tuple[tuple[str, ...], str]] = {
    "chat": ((), "a quotation"),
    "browsing": (("ctrl+o",), "A title"),
    "chats": (("ctrl+s",), "esc back"),
    "answers side by side": (("f5",), "answers"),
    "inspector": (("f3",), "esc"),
    "inspector, memory": (("f3", "tab"), "esc"),
    "inspector, disk": (("f3", "tab", "tab"), "esc"),
    "inspector, turns": (("f3", "tab", "tab", "tab"), "esc"),
    "settings": (("f2",), "KV memory"),
    "settings, sampling": (("f2", "tab"), "Settings"),
    "settings, history": (("f2", "tab", "tab"), "Settings"),
    "settings, disk": (("f2", "tab", "tab", "tab"), "Settings"),
    "models": (("f2", "m", "enter"), "llama"),
    "palette": (("ctrl+p",), "esc"),
    "help": (("f1",), "esc"),
}
THEMES = ("ink", "paper", "contrast")


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")


def rows(pilot: Pilot[None]) -> list[list[Segment]]:
    return [list(strip) for strip in pilot.app.screen._compositor.render_strips()]


def lit(pilot: Pilot[None]) -> list[list[Segment]]:
    """What is to be read: of a screen over others, which lie in the dark, only its own part."""
    screen, strips = pilot.app.screen, pilot.app.screen._compositor.render_strips()
    if not screen.is_modal:
        return [list(strip) for strip in strips]
    own = screen.children[0].region.intersection(screen.region)
    return [list(strips[y].crop(own.x, own.right)) for y in range(own.y, own.bottom)]


def words(pilot: Pilot[None]) -> str:
    return "\n".join("".join(segment.text for segment in row) for row in rows(pilot))


def is_drawing(character: str) -> bool:
    """Lines, bars, blocks, dots of a plot: what is no text, and white space."""
    return (
        character.isspace()
        or character == "·"
        or 0x2500 <= ord(character) <= 0x28FF
        or unicodedata.category(character) in {"Mn", "Cf"}
    )


def pairs(segments: list[Segment]) -> Iterator[tuple[str, Color, Color]]:
    """Texts with their colour and their ground, where both are told."""
    for segment in segments:
        style, said = segment.style, "".join(each for each in segment.text if not is_drawing(each))
        if not said or style is None or style.color is None or style.bgcolor is None:
            continue
        front, ground = (Color.from_rich_color(each) for each in (style.color, style.bgcolor))
        yield said, *((ground, front) if style.reverse else (front, ground))


def told(pilot: Pilot[None]) -> list[tuple[str, Color, Color]]:
    return [pair for row in lit(pilot) for pair in pairs(row)]


def colours_of(pilot: Pilot[None]) -> set[tuple[str, str]]:
    return {(front.hex, ground.hex) for _, front, ground in told(pilot)}


def check(pilot: Pilot[None], size: tuple[int, int]) -> None:
    """Within the screen, told in colours, and each text can be read."""
    drawn = rows(pilot)
    assert len(drawn) == size[1]
    assert {sum(cell_len(segment.text) for segment in row) for row in drawn} == {size[0]}
    assert len(told(pilot)) > 5
    hard = {(said, front.hex, ground.hex) for said, front, ground in told(pilot) if contrast(front, ground) < LEAST}
    assert hard == set()


@pytest.mark.parametrize("name", SCREENS)
async def test_over_a_chat(home: Path, tmp_path: Path, name: str) -> None:
    """In the theme in which it began, and in each that is chosen then."""
    keys, seen = SCREENS[name]
    found = model("llama", tmp_path)
    with stage(
        home,
        lambda request: turn_events(request, [REPLY]),
        settings=Settings(theme=THEMES[0]),
        found=Survey((found,), (tmp_path,), found.path),
    ) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            await send(pilot, "What do you know?")
            await until(pilot, lambda: bool(on.engine.requests) and not room(pilot).is_busy)
            await pilot.press(*keys)
            before: list[set[tuple[str, str]]] = []
            for theme in THEMES:
                pilot.app.theme = theme
                await pilot.pause()
                await until(pilot, lambda: seen in words(pilot) and colours_of(pilot) not in before)
                check(pilot, SIZE)
                before.append(colours_of(pilot))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", [(100, 32), (60, 18)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_first_screen(home: Path, tmp_path: Path, theme: str, size: tuple[int, int]) -> None:
    with stage(home, settings=Settings(theme=theme), found=Survey((), (tmp_path,))) as on:
        async with on.app().run_test(size=size) as pilot:
            await until(pilot, lambda: len(pilot.app.screen_stack) > 1)
            await pilot.pause()
            check(pilot, size)


@pytest.mark.parametrize("name", SCREENS)
async def test_without_colours_nothing_is_told_by_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    keys, seen = SCREENS[name]
    found = model("llama", tmp_path)
    with stage(
        home, lambda request: turn_events(request, [REPLY]), found=Survey((found,), (tmp_path,), found.path)
    ) as on:
        async with on.app().run_test(size=SIZE) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            await send(pilot, "What do you know?")
            await until(pilot, lambda: bool(on.engine.requests) and not room(pilot).is_busy)
            await pilot.press(*keys)
            await until(pilot, lambda: seen in words(pilot))
            coloured = {
                (segment.text, str(color))
                for row in rows(pilot)
                for segment in row
                for color in (segment.style.color, segment.style.bgcolor)
                if segment.style is not None and color is not None and not color.is_default
            }
            assert coloured == set()
