"""What is chosen becomes the default: written into the settings file, and taken over by those that hold it meanwhile.

Owns the order of that; what a file looks like is in config_write. Must not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvchat.backend.values import EngineConfig
from kvchat.conversation import Conversation, Defaults
from kvchat.errors import KvchatError
from kvchat.ui.room import Room

SAVED = "Saved as default."


def save_chat(room: Room, conversation: Conversation, then: Callable[[bool], object]) -> None:
    """What holds in this chat becomes the default: in the file, for this chat, and for those that come."""
    ways = conversation.history, conversation.draft, conversation.overflow
    defaults = Defaults(conversation.sampling, *ways)

    def write() -> None:
        from kvchat.config_write import save_chat_defaults

        chosen = defaults.sampling, defaults.history, defaults.draft, defaults.overflow
        save_chat_defaults(room.desk.paths.config_file, *chosen)

    def done(_: None) -> None:
        conversation.defaults = defaults
        settings = replace(
            room.desk.settings,
            sampling=defaults.sampling,
            history=defaults.history,
            draft=defaults.draft,
            overflow=defaults.overflow,
        )
        room.desk = replace(room.desk, settings=settings)
        then(True)

    def failed(error: KvchatError) -> None:
        room.say(error, "not saved")
        then(False)

    room.aside(write, done, failed)


def save_engine(room: Room, config: EngineConfig) -> None:
    """This configuration becomes the one to start with. A server without a name in the settings cannot be."""
    if config.remote is not None and config.remote.name not in {each.name for each in room.desk.settings.remotes}:
        room.toast("Not saved: a server needs a name to be the default, [remote.NAME] in config.toml.")
        return

    def write() -> None:
        from kvchat.config_write import save_engine_defaults

        save_engine_defaults(room.desk.paths.config_file, config)

    room.aside(write, lambda _: room.toast(SAVED), lambda error: room.say(error, "not saved"))
