"""The person's keys: what the file may say, what is said of its mistakes, and that the app obeys it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import turn_events
from modal_host import text
from terminal import Terminal
from textual.binding import Binding
from textual.dom import DOMNode
from textual.pilot import Pilot
from ui_fakes import room, sees, send, shown, stage, toasts, until

import kvchat.ui
from kvchat.ui.help import Help
from kvchat.ui.key_catalogue import SECTIONS, everything, template
from kvchat.ui.key_names import NoKey, key_of
from kvchat.ui.key_names import shown as key_shown
from kvchat.ui.keys import FIXED
from kvchat.ui.keys_file import read_keys
from kvchat.ui.palette import Palette

PROGRAM = Path(__file__).parent / "fake_app.py"

# ------------------------------------------------------------------ names of keys


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl+t", "ctrl+t"),
        ("Ctrl+T", "ctrl+t"),
        ("shift+ctrl+left", "ctrl+shift+left"),
        ("F5", "f5"),
        ("esc", "escape"),
        ("PgUp", "pageup"),
        ("[", "left_square_bracket"),
        ("?", "question_mark"),
        ("+", "plus"),
        ("ctrl++", "ctrl+plus"),
        ("g", "g"),
        ("G", "G"),
        ("shift+g", "G"),
        ("slash", "slash"),
        ("ctrl+space", "ctrl+space"),
    ],
)
def test_names_of_keys(written: str, key: str) -> None:
    assert key_of(written) == key


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("crtl+t", "no key 'crtl' to hold down"),
        ("ctrl+pagup", "did you mean pageup?"),
        ("", "no key ''"),
        ("ctrl+", "no key ''"),
        ("ctrl+i", "a terminal sends tab"),
        ("ctrl+m", "a terminal sends enter"),
        ("ctrl+[", "a terminal sends escape"),
        ("f99", "no key 'f99'"),
        ("\x1b", "no key"),
    ],
)
def test_keys_that_there_are_not(written: str, told: str) -> None:
    with pytest.raises(NoKey, match=re.escape(told)):
        key_of(written)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("ctrl+n", "^N"),
        ("f1", "F1"),
        ("question_mark", "?"),
        ("shift+tab", "Shift+Tab"),
        ("G", "G"),
        ("g", "g"),
        ("ctrl+end", "^End"),
        ("pageup", "PgUp"),
        ("left_square_bracket", "["),
        ("ctrl+shift+left", "Ctrl+Shift+←"),
    ],
)
def test_how_a_key_is_shown(key: str, words: str) -> None:
    assert key_shown(key) == words


# ------------------------------------------------------------------ all actions


def bound_classes() -> Iterator[tuple[str, type[DOMNode]]]:
    """Every widget and screen of ours with keys of its own."""
    for module in pkgutil.iter_modules(kvchat.ui.__path__):
        for name, cls in vars(importlib.import_module(f"kvchat.ui.{module.name}")).items():
            ours = inspect.isclass(cls) and cls.__module__ == f"kvchat.ui.{module.name}" and issubclass(cls, DOMNode)
            if ours and cls.__dict__.get("BINDINGS"):
                yield f"{module.name}.{name}", cls


def test_every_binding_has_an_id_and_a_place_in_the_catalogue() -> None:
    listed = {path for section in SECTIONS for path in section.classes}
    found = dict(bound_classes())
    assert listed == found.keys()
    for path, cls in found.items():
        for binding in cls.BINDINGS:
            assert isinstance(binding, Binding), path
            assert binding.id, (path, binding)
            assert binding.description, (path, binding)


def test_an_id_means_one_thing_in_one_place() -> None:
    seen: dict[str, str] = {}
    for section, action in everything():
        assert seen.setdefault(action.name, section.title) == section.title
        for key in action.usual:
            assert key_of(key) == key or action.name in FIXED, action


# ------------------------------------------------------------------ the file


def write(home: Path, content: str) -> Path:
    file = home / "keys.toml"
    file.write_text(content, encoding="utf-8")
    return file


def test_no_file_wants_nothing(home: Path) -> None:
    assert read_keys(home / "keys.toml").wanted == {}


def test_dotted_names_and_tables_are_the_same(home: Path) -> None:
    dotted = read_keys(write(home, 'chat.new = "ctrl+t"\nbrowse.next = ["n", "down"]\nchat.end = []\n')).wanted
    tables = read_keys(
        write(home, '[chat]\nnew = "ctrl+t"\nend = []\n[browse]\n"next" = "n, down"\n')
    ).wanted  # fmt: skip
    assert dotted == tables == {"chat.new": ("ctrl+t",), "browse.next": ("n", "down"), "chat.end": ()}


def test_a_mistake_costs_its_line(home: Path) -> None:
    file = write(
        home,
        '# mine\nchat.new = "ctrl+t"\nchat.list = "crtl+l"\n\n[browse]\nnext = "n"\nprevious = "n"\n'
        '[prompt]\nundo = "z"\ncut = 5\n',
    )
    found = read_keys(file)
    assert found.wanted == {"chat.new": ("ctrl+t",), "browse.next": ("n",)}
    assert [problem.removeprefix(f"{file}:") for problem in found.problems] == [
        "3: chat.list: there is no key 'crtl' to hold down: ctrl, alt, shift, super, meta, hyper",
        "7: browse.previous: n is already for browse.next",
        "9: prompt.undo: z is what one types there; hold ctrl or alt with it, or take a function key",
        '10: prompt.cut: a key is a text, such as "ctrl+t"',
    ]


@pytest.mark.parametrize("content", ["chat.new =\n", "\x00", "a = 1\na = 2\n", "[" * 5000])
def test_what_is_no_toml_is_told(home: Path, content: str) -> None:
    found = read_keys(write(home, content))
    assert found.wanted == {}
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{home / 'keys.toml'} is not valid TOML")


def test_bytes_that_are_no_text_and_a_folder(home: Path) -> None:
    (home / "keys.toml").write_bytes(b"\xff\xfe")
    assert "not valid TOML" in read_keys(home / "keys.toml").problems[0]
    (home / "folder").mkdir()
    assert "cannot be read" in read_keys(home / "folder").problems[0]


def test_the_template_taken_at_its_word_changes_nothing(home: Path) -> None:
    lines = [line.removeprefix("# ") if "= " in line else line for line in template().splitlines()]
    found = read_keys(write(home, "\n".join(lines)))
    assert found.problems == ()
    assert found.wanted == {action.name: action.usual for _, action in everything()}


# ------------------------------------------------------------------ in the app


def flat(pilot: Pilot[None]) -> str:
    """What stands in the transcript, without spaces and line ends, which depend on where a line is wrapped."""
    return "".join(shown(pilot).split())


async def tells(pilot: Pilot[None], sentence: str) -> None:
    await until(pilot, lambda: "".join(sentence.split()) in flat(pilot))


async def test_another_key_and_not_the_old_one(home: Path) -> None:
    write(home, 'chat.new = "ctrl+t"\n')
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 24)) as pilot:
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            await pilot.press("ctrl+n")
            await pilot.pause()
            await sees(pilot, "Hello there.")
            await pilot.press("ctrl+t")
            await until(pilot, lambda: "Hello there." not in shown(pilot))


async def test_a_key_for_the_chat_is_taken_from_the_prompt(home: Path) -> None:
    """^K deletes to the end of the line in the prompt, until the chat gets it; that it is gone there is told."""
    file = write(home, 'chat.new = "ctrl+k"\n')
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 24)) as pilot:
            await tells(pilot, f"! {file}:1: ^K was for prompt.delete-to-line-end, which does not have it any more")
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            await pilot.press("ctrl+k")
            await until(pilot, lambda: "Hello there." not in shown(pilot))


async def test_letters_while_messages_are_browsed(home: Path) -> None:
    write(home, 'browse.copy = "c"\nbrowse.continue = "y"\n')
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 24)) as pilot:
            await send(pilot, "hello")
            await sees(pilot, "Hello there.")
            await pilot.press("ctrl+o", "c")
            await until(pilot, lambda: "copied" in toasts(pilot))
            assert len(on.engine.requests) == 1


async def test_sending_and_new_lines_change_places(home: Path) -> None:
    write(home, 'prompt.send = "ctrl+j"\nprompt.new-line = "enter"\n')
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 24)) as pilot:
            await pilot.press("a", "enter", "b", "ctrl+j")
            await until(pilot, lambda: bool(on.engine.requests))
            assert on.engine.requests[0].messages[-1].text == "a\nb"


async def test_a_key_can_be_taken_away(home: Path) -> None:
    write(home, "chat.settings = []\n")
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 24)) as pilot:
            await pilot.press("f2")
            await pilot.pause()
            assert not pilot.app.screen.is_modal


async def test_mistakes_are_told_once_at_the_start_and_the_rest_works(home: Path) -> None:
    file = write(home, 'chat.nwe = "ctrl+t"\nchat.new = "ctrl+y"\nchat.list = "blubb"\n')
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(140, 24)) as pilot:
            await tells(pilot, f"{file}:1: there is no action chat.nwe, did you mean chat.new?")
            await tells(pilot, f"{file}:3: chat.list: there is no key 'blubb'")
            await tells(pilot, f"{file}:2: ^Y was for prompt.redo")
            assert flat(pilot).count(":1:") == 1
            await pilot.press("ctrl+s")  # as built in
            await until(pilot, lambda: room(pilot).sidebar.has_keyboard)


async def test_many_mistakes_do_not_fill_the_screen(home: Path) -> None:
    write(home, "".join(f'nothing.n{number} = "f5"\n' for number in range(30)))
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(140, 40)) as pilot:
            await tells(pilot, "and 22 more in the same files")
            assert flat(pilot).count("keys.toml:") == 8


async def test_help_and_palette_show_the_keys_in_force(home: Path) -> None:
    write(home, 'chat.new = ["ctrl+t", "f5"]\nprompt.send = "ctrl+j"\nprompt.new-line = "enter"\n')
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(100, 40)) as pilot:
            await pilot.press("f1")
            await until(pilot, lambda: isinstance(pilot.app.screen, Help) and "New chat" in text(pilot.app))
            lines = text(pilot.app).splitlines()
            assert any(re.search(r"\^T F5 +New chat", line) for line in lines)
            assert any(re.search(r"\^J +Send; ", line) for line in lines)
            assert any(re.search(r"Enter +New line; ", line) for line in lines)
            await pilot.press("f1", "ctrl+p")
            await until(pilot, lambda: isinstance(pilot.app.screen, Palette) and "New chat" in text(pilot.app))
            assert any(re.search(r"New chat +\^T F5", line) for line in text(pilot.app).splitlines())


async def test_keys_makes_a_file_where_there_is_none_and_says_where(home: Path) -> None:
    file = home / "keys.toml"
    with stage(home, turn_events) as on:
        async with on.app().run_test(size=(120, 24)) as pilot:
            await send(pilot, "/keys")
            await tells(pilot, f"A file with all keys as they are was made: {file}")
            assert file.read_text(encoding="utf-8") == template()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            file.write_text("mine", encoding="utf-8")
            await send(pilot, "/keys")
            await tells(pilot, f"Your keys are in the file: {file}")
            assert file.read_text(encoding="utf-8") == "mine"


def test_keys_keep_their_order_in_one_write(home: Path) -> None:
    """A key of the person's, between letters: it acts when its turn comes."""
    write(home, 'prompt.delete-left-to-start-of-word = "ctrl+t"\nprompt.send = "f5"\n')
    terminal = Terminal([sys.executable, str(PROGRAM)], environment={"KVCHAT_HOME": str(home)})
    terminal.wait_for("fake-1b")
    terminal.send(b"one two\x14three\x1b[15~")
    terminal.wait_for("echo 'one three'")
    terminal.close()
