"""How the app looks and listens: theme, mouse, keys, where the view goes while an answer comes. Owns these choices
while the app runs; what a person chooses here is kept in config.toml.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kvchat.config_options import FOLLOWS
from kvchat.errors import KvchatError
from kvchat.ui.mouse import set_mouse
from kvchat.ui.room import Room
from kvchat.ui.themes import ordered, theme_for, unknown

if TYPE_CHECKING:
    from kvchat.config_write import Scalar

WORDS = {
    "bottom": "The view follows an answer to its end.",
    "start": "The view stays at the beginning of an answer.",
    "off": "The view stays where it is while an answer comes.",
}


class Appearance:
    """Carries out /theme, /mouse, /follow and /keys."""

    def __init__(self, room: Room, choose_theme: Callable[[], object]) -> None:
        """`choose_theme` is for /theme without a name."""
        self._room = room
        self._choose_theme = choose_theme
        self._follow: str = room.desk.settings.follow
        self._mouse = room.desk.settings.mouse

    # ------------------------------------------------------------------ theme

    @property
    def themes(self) -> tuple[str, ...]:
        """The names that can be chosen."""
        return ordered(self._room.screen.app.available_themes)

    def theme(self, name: str) -> None:
        """`/theme [name]`."""
        app = self._room.screen.app
        if app.no_color:
            self._room.toast("NO_COLOR is set, so there is no theme to choose.")
        elif not name:
            self._choose_theme()
        elif name.lower() not in self.themes:
            self._room.toast(unknown(name, app.available_themes))
        else:
            self.show_theme(name.lower())
            self._keep({"theme": name.lower()}, f"Theme {name.lower()}, from now on.")

    def show_theme(self, name: str) -> None:
        """Show it, and keep nothing."""
        app = self._room.screen.app
        shown, _ = theme_for(name, app.available_themes, os.environ, app.no_color)
        if shown != app.theme:
            app.theme = shown

    # ------------------------------------------------------------------ mouse

    def mouse(self, word: str) -> None:
        """`/mouse [on|off]`."""
        wanted = {"on": True, "off": False, "": not self._mouse}.get(word.lower())
        if wanted is None:
            self._room.toast("/mouse takes on or off.")
            return
        if not set_mouse(self._room.screen.app._driver, wanted):
            self._room.toast("This terminal has no mouse.")
            return
        self._mouse = wanted
        said = "The mouse is for the app." if wanted else "The mouse is the terminal's: it selects text as elsewhere."
        self._keep({"mouse": wanted}, said)

    # ------------------------------------------------------------------ follow

    def follow(self, word: str) -> None:
        """`/follow [bottom|start|off]`."""
        if not word:
            self._room.toast(WORDS[self._follow])
        elif word.lower() not in FOLLOWS:
            self._room.toast(f"/follow takes one of {', '.join(FOLLOWS)}.")
        else:
            self._follow = word.lower()
            self._keep({"follow": self._follow}, WORDS[self._follow])

    def turned(self) -> None:
        """An answer begins, perhaps: the view goes with it as far as the person wants."""
        live = self._room.conversation.live
        if live is None or self._follow == "bottom":
            self._room.transcript.hold = None
        elif self._follow == "start":
            self._room.transcript.hold = live.message
        else:
            self._room.transcript.follow = False

    # ------------------------------------------------------------------ keys

    def keys(self, _: str = "") -> None:
        """`/keys`: where the file is; one with everything as it is, commented out, where there is none."""
        room, file = self._room, self._room.desk.paths.keys_file

        def write() -> bool:
            from kvchat.ui.key_catalogue import template
            from kvchat.ui.keys_file import write_template

            return write_template(file, template())

        def done(made: bool) -> None:
            what = "A file with all keys as they are was made" if made else "Your keys are in the file"
            room.transcript.note(f"{what}: {file}\nIt is read when kvchat starts. /help shows the keys in force.")

        room.aside(write, done, lambda error: room.say(error, "no file of keys"))

    # ------------------------------------------------------------------ inside

    def _keep(self, values: Mapping[str, Scalar], said: str) -> None:
        room = self._room

        def write() -> None:
            from kvchat.config_write import write_values

            write_values(room.desk.paths.config_file, values)

        def failed(error: KvchatError) -> None:
            room.say(error, "not kept for the next start")

        room.aside(write, lambda _: room.toast(said), failed)
