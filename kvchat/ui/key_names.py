"""What keys are called: as a person writes them in a file, as Textual has them, as they are shown. Pure."""

from __future__ import annotations

from textual.keys import REPLACED_KEYS, _character_to_key, key_to_character

from kvchat.config_options import nearest

MODIFIERS = ("ctrl", "alt", "shift", "super", "meta", "hyper")
_WORDS = "escape enter tab space backspace delete insert home end pageup pagedown up down left right"
NAMED = frozenset((*_WORDS.split(), *(f"f{number}" for number in range(1, 25))))
OTHER_NAMES = {
    "esc": "escape",
    "return": "enter",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "del": "delete",
    "ins": "insert",
}
# What terminals send for these is what they send for the other.
SAME = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace", "ctrl+left_square_bracket": "escape"}
SHOWN = {
    "escape": "Esc",
    "enter": "Enter",
    "tab": "Tab",
    "space": "Space",
    "backspace": "Backspace",
    "delete": "Del",
    "insert": "Ins",
    "home": "Home",
    "end": "End",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


class NoKey(Exception):
    """There is no such key; the text says what would do."""


def key_of(written: str) -> str:
    """The key that a person means, as Textual calls it. NoKey: there is none."""
    *modifiers, base = _parts(written.strip())
    modifiers = [modifier.lower() for modifier in modifiers]
    for modifier in modifiers:
        if modifier not in MODIFIERS:
            raise NoKey(f"there is no key {modifier!r} to hold down: {', '.join(MODIFIERS)}")
    base = _base(base, bool(modifiers))
    if modifiers == ["shift"] and len(base) == 1 and base.isalpha():
        return base.upper()
    key = "+".join([*(each for each in MODIFIERS if each in modifiers), base])
    if key in SAME:
        raise NoKey(f"a terminal sends {SAME[key]} for {written!r}")
    return key


def _parts(written: str) -> list[str]:
    """Split at plus signs, of which the last may be the key itself."""
    if written == "+" or written.endswith("++"):
        return [*written[:-2].split("+"), "+"] if len(written) > 1 else ["+"]
    return written.split("+")


def _base(base: str, modified: bool) -> str:
    if len(base) == 1 and base.isprintable() and base != " ":
        return _character_to_key(base.lower() if modified else base)
    name = base.lower()
    name = OTHER_NAMES.get(name, name)
    if name in NAMED or (len(name) > 1 and character_of(name)):
        return name
    guess = nearest(name, NAMED)
    raise NoKey(f"there is no key {base[:30]!r}" + (f", did you mean {guess}?" if guess else ""))


def is_typed(key: str) -> bool:
    """Whether the key writes a character where one can write."""
    return key == "space" or bool(character_of(key))


def character_of(key: str) -> str:
    """The character that a key writes; "" for none. Backspace and the like are characters for Unicode."""
    character = key_to_character(REPLACED_KEYS.get(key, key)) or ""
    return character if character.isprintable() else ""


def shown(key: str) -> str:
    """The key for a person: "^N", "Shift+Enter", "[", "PgUp"."""
    *modifiers, base = key.split("+")
    name = SHOWN.get(base) or (base.upper() if base[1:].isdigit() else character_of(base) or base)
    if modifiers == ["ctrl"] and base not in SHOWN:
        return f"^{name.upper()}" if len(name) == 1 else f"^{name}"
    if modifiers == ["ctrl"]:
        return f"^{name}"
    return "+".join([*(modifier.capitalize() for modifier in modifiers), name])
