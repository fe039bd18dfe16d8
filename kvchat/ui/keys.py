"""The keys in force: the person's over the built-in ones. Owns which key a widget's action has; must not read files.

Each widget holds its bindings by itself, and some run them in the order in which keys were typed, before the app hears
of them. So a widget's bindings are changed in place, once, before the first key is given to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakSet

from textual import events
from textual.binding import Binding
from textual.dom import DOMNode

from kvchat.ui.keys_file import WITHIN_CHAT, is_within, same_place

# Actions that a widget does not have as bindings: the first of the keys is what the widget understands.
FIXED = {"prompt.send": ("enter",), "prompt.new-line": ("ctrl+j", "shift+enter", "ctrl+enter")}
_CHARACTERS = {"enter": "\r", "ctrl+j": "\n"}
_OUTER = ("app.", "chat.")


class Keys:
    """`wanted`: action -> keys, for those that are not as built in."""

    def __init__(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        self._wanted = dict(wanted)
        self._done: WeakSet[DOMNode] = WeakSet()
        # A key that was given to the chat is taken from what lies within it.
        self._outer = {key for name, keys in wanted.items() if name.startswith(_OUTER) for key in keys}
        self._fixed = self._fixed_keys()

    def keys_of(self, name: str, usual: Iterable[str]) -> tuple[str, ...]:
        """The keys of an action that has these where the person does not say otherwise."""
        own = self._wanted.get(name)
        if own is not None:
            return own
        taking = [other for other in self._wanted if same_place(name, other) or is_within(name, other)]
        given = {key for other in taking for key in self._wanted[other]}
        return tuple(key for key in usual if key not in given)

    def forget(self, names: Iterable[str]) -> None:
        """These are no actions."""
        for name in names:
            self._wanted.pop(name, None)

    def apply(self, nodes: Iterable[DOMNode]) -> None:
        """Have these widgets follow the person."""
        if not self._wanted:
            return
        for node in nodes:
            if node not in self._done:
                self._done.add(node)
                self._rebind(node)

    def translated(self, event: events.Key, in_prompt: bool) -> events.Key | None:
        """The key as the prompt understands it; None: it means nothing any more."""
        if not in_prompt or event.key not in self._fixed:
            return event
        key = self._fixed[event.key]
        return events.Key(key, _CHARACTERS[key]) if key else None

    def _rebind(self, node: DOMNode) -> None:
        found = node._bindings.key_to_bindings
        usual = {key: [each for each in bindings if each.id not in self._wanted] for key, bindings in found.items()}
        own: dict[str, list[Binding]] = {}
        for bindings in list(found.values()):
            for binding in bindings:
                for key in self._wanted.get(binding.id or "", ()):
                    same = own.setdefault(key, [])
                    if all(each.action != binding.action for each in same):
                        same.append(binding.with_key(key))
        inner = any(
            (each.id or "").partition(".")[0] in WITHIN_CHAT for bindings in found.values() for each in bindings
        )
        taken = self._outer if inner else set()
        kept = {key: bindings for key, bindings in usual.items() if bindings and key not in own and key not in taken}
        node._bindings.key_to_bindings = {**kept, **own}

    def _fixed_keys(self) -> dict[str, str]:
        """Key -> the key that the prompt understands, "" for one that means nothing any more."""
        table: dict[str, str] = {}
        for name, usual in FIXED.items():
            if name in self._wanted:
                table |= dict.fromkeys(usual, "")
        for name, usual in FIXED.items():
            table |= dict.fromkeys(self._wanted.get(name, ()), usual[0])
        return table


BUILT_IN = Keys({})
