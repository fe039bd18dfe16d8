"""All actions that have keys, by the place where they count. Owns the list of places and their names; must not run
anything. The classes are loaded when somebody asks: the first frame does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from textual.binding import Binding

from kvchat.config_options import nearest
from kvchat.ui.key_names import shown
from kvchat.ui.keys import FIXED, Keys
from kvchat.ui.keys_file import KeysFile, is_within, same_place

if TYPE_CHECKING:
    from textual.dom import DOMNode


@dataclass(frozen=True, slots=True)
class Action:
    """`name` is the id in keys.toml, `usual` its built-in keys, `words` what it does, `run` Textual's action."""

    name: str
    usual: tuple[str, ...]
    words: str
    run: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A place where keys count: its name for a person, the widgets that have them, and how the names of its actions
    begin."""

    title: str
    classes: tuple[str, ...]
    places: tuple[str, ...]


SECTIONS = (
    Section("Writing", ("prompt.Prompt",), ("prompt",)),
    Section("Browsing messages", ("browse_bar.BrowseBar",), ("browse",)),
    Section("List of chats", ("sidebar.ChatList", "sidebar.Filter"), ("chats", "filter")),
    Section("Chat", ("chat_screen.ChatScreen",), ("chat",)),
    Section("Answers side by side", ("alternatives_screen.AlternativesScreen",), ("alternatives",)),
    Section("Everywhere", ("app.KvchatApp",), ("app",)),
    Section("Settings", ("settings_screen.SettingsScreen",), ("settings",)),
    Section(
        "Models",
        ("model_picker.ModelPicker", "model_details.ModelDetails", "pulling.Pulling"),
        ("picker", "details", "pull"),
    ),
    Section("KV inspector", ("inspector.Inspector", "quality.Quality"), ("inspector", "quality")),
    Section("First run", ("first_run.FirstRun", "cache_choice.CacheChoice"), ("first", "cache")),
    Section(
        "Questions",
        (
            "dialogs.Confirm",
            "dialogs.AskLine",
            "alternatives_question.OthersRunning",
            "background_question.AnswersRunning",
            "fit_question.FitQuestion",
            "overflow_question.OverflowQuestion",
            "summary_screen.SummaryEditor",
        ),
        ("confirm", "ask", "others", "answers", "fit", "overflow", "summary"),
    ),
    Section("Palette and help", ("listing.Listing", "palette.Palette"), ("list", "palette")),
    Section("Pinned prefixes", ("prefixes_picker.PrefixPicker",), ("prefixes",)),
    Section("A line with a list", ("inline_keys.LineInput",), ("line",)),
)
FIXED_WORDS = {
    "prompt.send": "Send; while an answer is written, keep one message for after it",
    "prompt.new-line": "New line; a backslash before Enter makes one too",
}
# Where the words of a binding are those of Textual, or only a name.
WORDS = {
    "prompt.cursor-up": "Up; from the first row, what was sent before",
    "prompt.cursor-down": "Down; from the last row, what was sent after",
    "browse.next": "Next block",
    "browse.previous": "Previous block",
    "browse.next_message": "Next message",
    "browse.previous_message": "Previous message",
    "browse.first": "To the top",
    "browse.last": "To the bottom",
    "browse.copy": "Copy the block, of code without its fence",
    "browse.copy_all": "Copy the whole message",
    "browse.fold": "Fold or unfold what the model thought",
    "browse.fold_all": "Fold or unfold all thoughts",
    "browse.edit": "Edit your message; what you send becomes a branch",
    "browse.retry": "Another answer, as a branch",
    "browse.continue": "Go on with an answer that was stopped",
    "browse.pin": "Keep the message in the context whatever leaves it, or let it go again",
    "browse.older": "The version before",
    "browse.newer": "The version after",
    "browse.delete": "Delete the message and what follows it",
    "browse.undo": "Take back the last deletion, summary, or what left a full context last",
    "browse.leave": "Back to the prompt",
}


def actions(section: Section) -> list[Action]:
    """What can be done in a place, those first that are not editing."""
    found = [Action(name, FIXED[name], words) for name, words in FIXED_WORDS.items() if section is SECTIONS[0]]
    for path in section.classes:
        found += _actions_of(path)
    return found


@cache
def _actions_of(path: str) -> tuple[Action, ...]:
    module, _, name = path.rpartition(".")
    cls: type[DOMNode] = getattr(import_module(f"kvchat.ui.{module}"), name)
    found: dict[str, Action] = {}
    for binding in cls.__dict__.get("BINDINGS", ()):
        assert isinstance(binding, Binding)
        assert binding.id, binding
        words = WORDS.get(binding.id, binding.description)
        before = found.get(binding.id, Action(binding.id, (), words, binding.action))
        keys = tuple(key.strip() for key in binding.key.split(","))
        found[binding.id] = Action(binding.id, (*before.usual, *keys), words[:1].upper() + words[1:], binding.action)
    return tuple(found.values())


def everything() -> Iterator[tuple[Section, Action]]:
    """All actions of all places."""
    for section in SECTIONS:
        for action in actions(section):
            yield section, action


def action_of(name: str) -> Action:
    """The action with this name; only the widgets of its place are loaded. KeyError: there is none."""
    place = name.partition(".")[0]
    section = next((section for section in SECTIONS if place in section.places), None)
    found = next((each for each in actions(section) if each.name == name), None) if section is not None else None
    if found is None:
        raise KeyError(name)
    return found


def sections_of(names: Sequence[str]) -> list[Section]:
    """The places that widgets of these classes belong to, from the inside out."""
    found = [
        section for name in names for section in SECTIONS if any(path.endswith(f".{name}") for path in section.classes)
    ]
    return list(dict.fromkeys(found))


def keys_text(action: Action, keys: Keys) -> str:
    """The keys in force, for a person; "" for none."""
    return " ".join(shown(key) for key in keys.keys_of(action.name, action.usual))


def problems(file: KeysFile) -> tuple[list[str], list[str]]:
    """What is to be said of the file beside its own problems, and the names in it that are no actions."""
    known = {action.name: action for _, action in everything()}
    unknown = [name for name in file.wanted if name not in known]
    said = [file.at(name, f"there is no action {name[:60]}{_guess(name, known)}") for name in unknown]
    for name in (name for name in file.wanted if name in known):
        for key in file.wanted[name]:
            said += [file.at(name, clash) for clash in _clashes(known[name], key, known.values(), file)]
    return said, unknown


def _guess(name: str, known: Iterable[str]) -> str:
    guess = nearest(name, known)
    return f", did you mean {guess}?" if guess else ""


def _clashes(action: Action, key: str, known: Iterable[Action], file: KeysFile) -> Iterator[str]:
    """What a key that the person gave to an action takes from others, or leaves to them."""
    for other in known:
        keys = file.wanted.get(other.name, other.usual)
        as_built_in = key in action.usual and key in other.usual
        if other.name == action.name or key not in keys or as_built_in:
            continue
        if is_within(action.name, other.name):
            yield f"{shown(key)} is for {other.name} too, which does not have it there"
        elif other.name in file.wanted and is_within(other.name, action.name):
            yield f"{shown(key)} is for {other.name} too, which has it there"
        elif same_place(action.name, other.name) or is_within(other.name, action.name):
            yield f"{shown(key)} was for {other.name}, which does not have it any more"


def template() -> str:
    """A keys.toml in which everything is as built in, and said."""
    lines = [
        '# Keys of kvchat. Take away the # before a line and write another key, or several: ["ctrl+t", "f9"].',
        "# An empty list [] takes the key away. Names: ctrl+t, alt+x, shift+tab, f9, pageup, escape, [, G.",
        "# Read when kvchat starts; a mistake is told then.",
    ]
    for section in SECTIONS:
        lines += ["", f"# {section.title}"]
        for action in actions(section):
            keys = ", ".join(f'"{key}"' for key in action.usual)
            lines.append(f"# {action.name} = {keys if len(action.usual) == 1 else f'[{keys}]'}  # {action.words}")
    return "\n".join(lines) + "\n"
