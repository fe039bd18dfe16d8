"""Keys in what is said on the screen. Owns how a hint names the key of an action; must not know widgets.

A hint is a template: in `{chat.browse} browse` stands an action, and what is shown is the key that it has now, the
person's or the built-in one. `{chat.browse|chat.palette}` is the key of the first of them that has one. Parts of a row
stand two spaces apart; a part goes when none of its actions has a key. Keys that nobody can change stand as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from textual.dom import DOMNode

from kvchat.ui.key_catalogue import action_of
from kvchat.ui.key_names import shown
from kvchat.ui.keys import BUILT_IN, Keys

_BRIEF = {"enter": "⏎", "escape": "esc", "tab": "tab", "space": "space"}
_ACTIONS = re.compile(r"\{([\w.\-|]+)\}")
_GAP = re.compile(r" {2,}")


def keys_at(node: DOMNode) -> Keys:
    """The keys in force in the app of a widget; an app without keys of the person's has the built-in ones."""
    found = getattr(node.app, "keys", None)
    return found if isinstance(found, Keys) else BUILT_IN


def first_key(names: str, keys: Keys = BUILT_IN) -> str:
    """The first key of an action, as Textual calls it; of several with `|` between them, of the first that has one. ""
    where there is none."""
    for name in names.split("|"):
        for key in keys.keys_of(name, action_of(name).usual):
            return key
    return ""


def key_text(names: str, keys: Keys = BUILT_IN) -> str:
    """The same for a sentence: "^N", "Esc"."""
    key = first_key(names, keys)
    return shown(key) if key else ""


def brief(key: str) -> str:
    """A key in a row of hints: "⏎", "esc", "^N"."""
    return _BRIEF.get(key) or shown(key)


def told(parts: Iterable[str], keys: Keys = BUILT_IN, name: Callable[[str], str] = brief) -> list[str]:
    """The parts with their keys, named by `name`, without those that have none."""
    return [" ".join(_with_keys(part, keys, name).split()) for part in parts if _has_key(part, keys)]


def hints(template: str, keys: Keys = BUILT_IN) -> str:
    """A row of parts."""
    return "  ".join(told(_GAP.split(template), keys))


def words_of(template: str) -> str:
    """A part without its keys."""
    return _ACTIONS.sub("", template).strip()


def _has_key(part: str, keys: Keys) -> bool:
    names = _ACTIONS.findall(part)
    return not names or any(first_key(each, keys) for each in names)


def _with_keys(part: str, keys: Keys, named: Callable[[str], str]) -> str:
    """Keys of one character can stand close together, as "jk" and "←→"."""
    text, end, last = "", 0, ""
    for match in _ACTIONS.finditer(part):
        key = first_key(match[1], keys)
        name = named(key) if key else ""
        between = part[end : match.start()]
        if last and name and not between and max(len(last), len(name)) > 1:
            between = " "
        text, end, last = f"{text}{between}{name}", match.end(), name
    return text + part[end:]
