"""Keys that keep their order. Owns the running of a widget's own bindings in the widget's own queue.

A binding usually runs only after its key has travelled up to the app; characters that were typed after it and wait in
the widget are handled before. Here a key does what it is bound to when its turn comes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from kvchat.clean import clean_line

_STEPS = {"up": -1, "down": 1, "pageup": -8, "pagedown": 8}


async def run_bound(node: Widget | Screen[Any], event: events.Key) -> bool:
    """Run what the key is bound to on `node`, now; False when it is bound to nothing there. A key whose screen has
    another one over it by then goes on its way, which leads to that one."""
    bindings = node._bindings.key_to_bindings.get(event.key)
    if not bindings or event.is_printable or (isinstance(node, Screen) and not is_on_top(node)):
        return False
    event.stop()
    event.prevent_default()
    for binding in bindings:
        await node.run_action(binding.action)
    return True


def is_on_top(screen: Screen[Any]) -> bool:
    """Whether no other screen is over this one, and it is not gone. Keys that came in one read are all for the screen
    that was on top then: a second Escape would take away the one below."""
    return screen.app.screen_stack[-1:] == [screen]


def is_there(screen: Screen[Any]) -> bool:
    """Whether it has its widgets: a screen that is being left loses them before it is gone itself, and so does each
    when the app ends."""
    return screen.is_attached and screen.display and screen.app.is_running


class LineInput(Input):
    """One line of text; Up and Down are for a list beside it, Enter submits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"step({step})", "Move in the list", show=False, id=f"line.{key}") for key, step in _STEPS.items()
    ]

    class Stepped(Message):
        """The person wants to go `step` rows down in the list."""

        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__()

    def __init__(self, placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, select_on_focus=False)

    def action_step(self, step: int) -> None:
        """Tell whoever has the list."""
        self.post_message(self.Stepped(step))

    def on_mount(self) -> None:
        """A blink would be a frame twice a second for nothing."""
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        await run_bound(self, event)

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(clean_line(event.text))
