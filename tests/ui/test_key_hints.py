"""Hints on the screen name the keys in force: those built in, the person's, or the palette where an action has none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import turn_events
from modal_host import settled, text
from textual.pilot import Pilot
from ui_fakes import chip, hint, room, sees, send, stage, toasts, until

import kvchat.ui
from kvchat.ui.browse_bar import HINTS as BROWSING
from kvchat.ui.dialogs import AskLine
from kvchat.ui.inspector import Inspector
from kvchat.ui.key_catalogue import SECTIONS, action_of, everything
from kvchat.ui.key_hints import first_key, hints, key_text, told
from kvchat.ui.keys import Keys
from kvchat.ui.lines import BUSY_HINTS, HINTS
from kvchat.ui.settings_screen import SettingsScreen

UI = Path(kvchat.ui.__path__[0])
ACTIONS = re.compile(r"\{([a-z]+\.[\w.\-|]+)\}")
KEYS = re.compile(r"\^[A-Z]\b|\bF[1-9]\b|\b[Ee]sc\b|\bCtrl\b|[←→]|\b(?:press|hit) \w")
# Keys that nobody can change where these are shown, and words for keys that are no hints.
UNCHANGED = {
    "KEYS = '{prompt.send} or tab takes  ↑↓ move  esc leaves the text'",
    "KEYS_UNMARKED = 'tab takes  ↑↓ move  {prompt.send} as it is  esc'",
    "KEYS_WITHOUT = 'esc leaves the text'",
    "KEYS = ('{prompt.send} takes', '↑↓ or {prompt.search} move', 'esc back to the draft')",
}


def statements() -> Iterator[tuple[str, ast.stmt]]:
    """Every innermost statement of the interface that is no docstring, with its file."""
    for path in sorted(UI.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.stmt) and not is_text and not hasattr(node, "body"):
                yield path.name, node


def constants(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def test_every_template_names_actions_that_there_are() -> None:
    found = [name for _, node in statements() for text in constants(node) for name in ACTIONS.findall(text)]
    assert len(found) > 40
    for names in found:
        for name in names.split("|"):
            assert action_of(name).name == name


def test_no_hint_names_a_key_that_can_be_another() -> None:
    """Keys stand in keys files, in names of keys, in tables of what a widget does with them, and nowhere else."""
    own = {"key_names.py", "key_catalogue.py", "keys_file.py", "key_hints.py", "settings_row.py", "context_bar.py"}
    found = [
        f"{file}: {ast.unparse(node)}"
        for file, node in statements()
        if file not in own and any(KEYS.search(text) for text in constants(node))
    ]
    assert [each for each in found if each.partition(": ")[2] not in UNCHANGED] == []


def test_actions_are_found_where_their_names_say() -> None:
    for section, action in everything():
        assert action.name.partition(".")[0] in section.places
        assert action_of(action.name) == action
    places = [place for section in SECTIONS for place in section.places]
    assert len(set(places)) == len(places)
    for name in ("", "chat", "chat.nothing", "nothing.new"):
        with pytest.raises(KeyError):
            action_of(name)


# ------------------------------------------------------------------ templates


@pytest.mark.parametrize(
    ("wanted", "row"),
    [
        ({}, "⏎ send  ^P commands  ^S chats  ^O browse  F2 model  F1 help"),
        ({"chat.browse": ("f7",)}, "⏎ send  ^P commands  ^S chats  F7 browse  F2 model  F1 help"),
        # taken away: by its name in the palette
        ({"chat.browse": ()}, "⏎ send  ^P commands  ^S chats  ^P browse  F2 model  F1 help"),
        # given to another action of the place: as good as taken away
        ({"chat.new": ("f2",)}, "⏎ send  ^P commands  ^S chats  ^O browse  ^P model  F1 help"),
        ({"chat.browse": (), "chat.palette": ()}, "⏎ send  ^S chats  F2 model  F1 help"),
        ({"prompt.send": ("ctrl+j", "enter")}, "^J send  ^P commands  ^S chats  ^O browse  F2 model  F1 help"),
    ],
)
def test_the_row_below_the_prompt(wanted: dict[str, tuple[str, ...]], row: str) -> None:
    assert hints(HINTS[1], Keys(wanted)) == row


@pytest.mark.parametrize("rows", [HINTS, BUSY_HINTS, BROWSING])
def test_rows_get_shorter_and_the_first_fits_120_cells(rows: tuple[str, ...]) -> None:
    lengths = [len(hints(row)) for row in rows]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] <= 114
    assert lengths[-1] <= 20


async def test_the_row_below_the_prompt_on_narrow_screens(home: Path) -> None:
    """At 80 cells all but two of the keys, at 40 three, at 20 the help."""
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: hint(pilot).endswith("F2 model  F3 cache  F1 help"))
            assert hint(pilot).startswith("⏎ send  ^J new line  ^P commands  ^S chats  ^O browse")
            for width, row in ((80, hints(HINTS[1])), (40, "⏎ send  ^P commands  F1 help"), (20, "F1 help")):
                await pilot.resize_terminal(width, 24)
                await until(pilot, lambda row=row: hint(pilot) == row)


def test_keys_stand_close_where_they_are_single_characters() -> None:
    assert hints("{browse.next}{browse.previous} block") == "jk block"
    assert hints("{inspector.left}{inspector.right} types") == "←→ types"
    keys = Keys({"browse.next": ("f5",), "browse.older": ()})
    assert hints("{browse.next}{browse.previous} block  {browse.older} {browse.newer} versions", keys) == (
        "F5 k block  ] versions"
    )


def test_the_first_key_of_several_and_of_several_actions() -> None:
    assert first_key("browse.next") == "j"
    assert key_text("inspector.leave") == "Esc"
    assert key_text("chat.stop|chat.interrupt", Keys({"chat.stop": ()})) == "^C"
    assert key_text("chat.stop", Keys({"chat.stop": ()})) == ""
    assert told(["{chat.stop} stop", "as it is"], Keys({"chat.stop": ()})) == ["as it is"]
    assert hints(BUSY_HINTS[0], Keys({"chat.stop": (), "chat.page-up": ("f9",)})) == (
        "^C stop  F9 scroll  ⏎ send after it"
    )


# ------------------------------------------------------------------ in the app

MINE = """
chat.new = "f5"
chat.list = "f6"
chat.browse = "f7"
chat.settings = "f8"
chat.stop = "ctrl+x"
chat.interrupt = "f9"
chat.palette = "ctrl+g"
app.help = "f12"
prompt.send = "ctrl+j"
prompt.new-line = "enter"
prompt.search = "ctrl+f"
browse.next = "n"
browse.previous = "p"
browse.leave = "q"
settings.apply = "a"
settings.cancel = "f10"
settings.left = "less_than_sign"
inspector.leave = "x"
inspector.settings = "o"
chats.rename = "R"
filter.list = "ctrl+l"
ask.leave = "f11"
list.cancel = "f11"
"""


async def put(pilot: Pilot[None], words: str) -> None:
    """Send it with the person's key."""
    room(pilot).prompt.put(words)
    await pilot.press("ctrl+j")


async def test_all_hints_follow_the_person(home: Path) -> None:
    """The empty chat, the status line, browsing, the list of chats, a question, settings, inspector and palette; of the
    built-in keys that were given away none is named any more."""
    (home / "keys.toml").write_text(MINE, encoding="utf-8")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(140, 40)) as pilot:
            mine = "^J send  ⏎ new line  ^G commands  F6 chats  F7 browse  F8 model  F3 cache  F12 help"
            await until(pilot, lambda: hint(pilot) == mine)
            await sees(pilot, "^J sends, Enter makes a new line, ^X stops an answer")
            await sees(pilot, "^G everything, F6 chats, F7 browse, F8 model, F12 help")
            await put(pilot, "hello")
            await sees(pilot, "Hello there.")

            await pilot.press("f7")
            await settled(pilot, lambda: "np JK move" in text(pilot.app))
            assert "d u  q" in text(pilot.app)
            await pilot.press("q", "f6")
            await settled(pilot, lambda: "↓ ^L list" in text(pilot.app))
            await pilot.press("ctrl+l")
            await settled(pilot, lambda: "R rename" in text(pilot.app))
            await pilot.press("R")
            await settled(pilot, lambda: isinstance(pilot.app.screen, AskLine))
            assert "F11 leave it" in text(pilot.app)
            await pilot.press("f11")

            await pilot.press("f8")
            await settled(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen) and "a choose" in text(pilot.app))
            assert "F10 cancel" in text(pilot.app)
            assert "<→ change" in text(pilot.app)
            await pilot.press("f10", "f3")
            await settled(pilot, lambda: isinstance(pilot.app.screen, Inspector) and "o settings" in text(pilot.app))
            assert "x back" in text(pilot.app)
            await pilot.press("x", "ctrl+g")
            await settled(pilot, lambda: "F11 back" in text(pilot.app))
            await pilot.press("f11", "f9")
            await until(pilot, lambda: "F9 again quits" in toasts(pilot))


async def test_a_message_that_waits_names_the_key_that_takes_it_back(home: Path) -> None:
    (home / "keys.toml").write_text('chat.stop = "ctrl+x"\n', encoding="utf-8")
    with stage(home) as on:
        async with on.app().run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: on.engine.ready is not None)
            await send(pilot, "first")
            await until(pilot, lambda: bool(on.engine.requests))
            await until(pilot, lambda: hint(pilot) == "^X stop  PgUp scroll  ⏎ send after it")
            await send(pilot, "second")
            await until(pilot, lambda: chip(pilot) == "next: second · ^X takes it back")
            await send(pilot, "third")
            await until(pilot, lambda: "One message waits already; ^X takes it back" in toasts(pilot))
            await pilot.press("ctrl+x")
            await until(pilot, lambda: chip(pilot) == "")


async def test_the_search_in_what_was_sent_moves_on_with_its_own_key(home: Path) -> None:
    """The key that opens the search leads to the next text, also when it is another; the draft is that one."""
    (home / "keys.toml").write_text('prompt.search = "ctrl+f"\n', encoding="utf-8")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 30)) as pilot:
            for number, words in enumerate(("one", "two"), 1):
                await send(pilot, words)
                await until(pilot, lambda number=number: len(on.engine.requests) == number and not room(pilot).is_busy)
            await pilot.press("ctrl+f")
            await settled(pilot, lambda: "↑↓ or ^F move" in text(pilot.app) and "one" in text(pilot.app))
            await pilot.press("ctrl+f", "enter")
            await until(pilot, lambda: room(pilot).prompt.text == "one")
