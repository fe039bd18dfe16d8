"""Servers that can take the place of a model. Owns which there are, and what the person is asked before one reads a
chat. Must not connect to one: the engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvchat.backend.values import EngineConfig, Remote
from kvchat.choosing import known_remotes, may_go_out
from kvchat.config_remote import is_named, remote_named
from kvchat.errors import KvchatError
from kvchat.ui.dialogs import Confirm
from kvchat.ui.remote_rows import CHOSEN_THERE
from kvchat.ui.room import Room


class Servers:
    """Those of the settings and of the command line."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @property
    def offered(self) -> tuple[Remote, ...]:
        """Those that can be chosen now."""
        settings = self._room.desk.settings
        return () if settings.offline else known_remotes(settings)

    def named(self, name: str) -> bool:
        """Whether the name of a model means a server."""
        return is_named(name, known_remotes(self._room.desk.settings))

    def config(self, name: str) -> EngineConfig | None:
        """The present configuration with the server of this name; None: it cannot be had, which is told."""
        settings = self._room.desk.settings
        try:
            remote = remote_named(name, known_remotes(settings))
            may_go_out(settings, remote)
        except KvchatError as error:
            self._room.refuse(error)
            return None
        return self._room.desk.engine.config.on(remote)

    def refuse_fields(self) -> bool:
        """Whether a server answers, whose cache is not chosen here; that is told."""
        if self._room.desk.engine.config.remote is None:
            return False
        self._room.toast(CHOSEN_THERE)
        return True

    def consider(
        self,
        config: EngineConfig,
        remote: Remote,
        then: Callable[[EngineConfig], object],
        otherwise: Callable[[], object],
    ) -> None:
        """Go on with `then`, once the person agrees that another machine reads an incognito chat; else with
        `otherwise`."""
        if not (self._room.conversation.incognito and remote.leaves):
            then(config)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                then(replace(config, incognito_leaves=True))
            else:
                otherwise()

        question = f"This chat is incognito. {remote.host} is another machine,\nwhich reads it then, and may keep it."
        self._room.screen.app.push_screen(Confirm(question, "send it there"), answered)
