"""The keys of the settings. Owns which key means which action and what that is called; must not carry it out."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("up", "move(-1)", "Previous field", show=False, id="settings.up"),
    Binding("down", "move(1)", "Next field", show=False, id="settings.down"),
    Binding("tab", "page(1)", "Next page", show=False, id="settings.next-page"),
    Binding("shift+tab", "page(-1)", "Previous page", show=False, id="settings.previous-page"),
    Binding("home", "edge(-1)", "First field", show=False, id="settings.first"),
    Binding("end", "edge(1)", "Last field", show=False, id="settings.last"),
    Binding("left", "step(-1)", "Previous value", show=False, id="settings.left"),
    Binding("right", "step(1)", "Next value", show=False, id="settings.right"),
    Binding("space", "type", "Type the value", show=False, id="settings.type"),
    Binding("backspace,delete", "give_back", "Back to the default", show=False, id="settings.give-back"),
    Binding("enter", "apply", "Apply", show=False, id="settings.apply"),
    Binding("ctrl+s", "save", "Save as default", show=False, id="settings.save"),
    Binding("escape,f2,ctrl+c", "cancel", "Change nothing", show=False, id="settings.cancel"),
]
