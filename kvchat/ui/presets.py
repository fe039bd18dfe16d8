"""What /preset does: a chat's system prompt, and its sampling, from a file with a name, and into one.

The form of the files belongs to presets_file. Must not wait for files.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.ui.dialogs import Confirm
from kvchat.ui.presets_file import (
    Preset,
    find_preset,
    presets_folder,
    read_presets,
    write_preset,
)
from kvchat.ui.room import Room
from kvchat.ui.sampling_fields import sampling_words
from kvchat.ui.varying import hint_on

SAVE = "save"


class Presets:
    """Carries out /preset."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def command(self, words: str) -> None:
        """`/preset`, `/preset NAME`, `/preset save NAME`."""
        first, _, rest = words.partition(" ")
        if not words:
            self._list()
        elif first.lower() == SAVE:
            self._save(rest.strip())
        else:
            self._room.aside(lambda: find_preset(words, read_presets(self._folder)), self._use, self._room.refuse)

    @property
    def _folder(self) -> Path:
        return presets_folder(self._room.desk.paths.config_file)

    # ------------------------------------------------------------------ from a file

    def _list(self) -> None:
        from kvchat.ui.presets_picker import PresetPicker

        room, folder = self._room, self._folder

        def chosen(preset: Preset | None) -> None:
            if preset is not None:
                self._use(preset)

        def come(presets: tuple[Preset, ...]) -> None:
            if presets:
                room.screen.app.push_screen(PresetPicker(presets), chosen)
            else:
                room.transcript.note(
                    f"There are no presets yet. /preset save NAME keeps this chat's system prompt in {folder}"
                )

        room.aside(lambda: read_presets(folder), come, room.refuse)

    def _use(self, preset: Preset) -> None:
        """What it does not say stays as it is."""
        room, conversation = self._room, self._room.conversation
        if preset.problem:
            room.say(KvchatError(preset.problem, "mend the file, nothing in it was changed"), "not taken")
            return
        if hint := hint_on(preset.system):
            room.transcript.note(hint)
        read_again = preset.system != conversation.chat.system and bool(preset.system)

        def begin() -> Future[None]:
            done = conversation.set_system(preset.system) if preset.system else None
            if preset.sampling or done is None:
                own = conversation.own
                done = conversation.set_own(replace(own, sampling={**own.sampling, **preset.sampling}))
            return done

        parts = ["its system prompt" if preset.system else "", sampling_words(preset.sampling)]
        said = f"Preset {preset.name}: {', '.join(filter(None, parts)) or 'nothing in it'}."
        said += " The chat is read again with it." if read_again and conversation.messages else ""
        room.try_to(begin, lambda _: room.toast(said), "not taken")

    # ------------------------------------------------------------------ into a file

    def _save(self, name: str) -> None:
        room, conversation, folder = self._room, self._room.conversation, self._folder
        system, sampling = conversation.chat.system, conversation.own.sampling
        if not name:
            room.toast("/preset save takes a name.")
        elif not system and not sampling:
            room.toast("This chat has no system prompt, and no sampling of its own, to keep. /system sets one.")
        else:

            def write() -> Path:
                return write_preset(folder, name, system, sampling)

            def done(path: Path) -> None:
                kept = ", ".join(filter(None, ("system prompt" if system else "", sampling_words(sampling))))
                room.toast(f"Preset {path.stem} keeps {kept}.")

            def answered(yes: bool | None) -> None:
                if yes:
                    room.aside(write, done, lambda error: room.say(error, "not saved"))

            def looked(presets: tuple[Preset, ...]) -> None:
                old = next((each for each in presets if each.name.casefold() == name.casefold()), None)
                if old is None:
                    answered(True)
                else:
                    question = f"There is a preset {old.name}. Put this one in its place?\nThe old one stays beside it."
                    room.screen.app.push_screen(Confirm(question, "replace it"), answered)

            room.aside(lambda: read_presets(folder), looked, lambda error: room.say(error, "not saved"))
