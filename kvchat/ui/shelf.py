"""The models on this machine grow: one is fetched, a folder is added. Owns the way from the wish to the new list.

Reads and writes away from the event loop. Must not know who wished, or what becomes of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvchat.config_options import BY_KEY, BadValue, shown
from kvchat.errors import KvchatError
from kvchat.ui.dialogs import AskLine, Confirm
from kvchat.ui.room import Room

if TYPE_CHECKING:
    from kvchat.library.find import ModelFile
    from kvchat.library.pull import Pulled, Source
    from kvchat.ui.catalogue import Offered

Models = tuple["ModelFile", ...]
Wish = Literal["get", "folder"]


class Shelf:
    """`models` says what was found so far, `renewed` is told what there is now and where was looked."""

    def __init__(
        self, room: Room, models: Callable[[], Models], renewed: Callable[[Models, tuple[Path, ...]], object]
    ) -> None:
        self._room = room
        self._models = models
        self._renewed = renewed

    def enlarge(self, wish: Wish, then: Callable[[Path | None], object]) -> None:
        """More models, one way or the other; `then` with the one that came, if it was one."""
        if wish == "get":
            self.get("", then)
        else:
            self.add_folder(lambda _: then(None))

    def get(self, name: str, then: Callable[[Path | None], object]) -> None:
        """Fetch what is called so, "": what the person chooses of the catalogue; `then` with its file, or None."""
        if self._room.desk.settings.offline:
            from kvchat.library.pull import refuse_offline

            self._room.refuse(refuse_offline())
            then(None)
        elif name:
            self._get_named(name, then)
        else:
            self._choose(then)

    def add_folder(self, then: Callable[[bool], object]) -> None:
        """Ask for a folder that is looked through from now on; `then` with whether there is one more."""

        def answered(text: str | None) -> None:
            if text is None:
                then(False)
            else:
                self._add(text, then)

        self._push(AskLine("A folder with models", "", "its path; subfolders are looked through, too"), answered)

    # ------------------------------------------------------------------ fetching

    def _choose(self, then: Callable[[Path | None], object]) -> None:
        from kvchat.ui.catalogue import Catalogue, offered

        engine = self._room.desk.engine
        config, memory, models = engine.config_for(Path()), engine.memory, self._models()

        def chosen(found: Offered | None) -> None:
            if found is None:
                then(None)
                return
            from kvchat.library import pull

            self._ask(pull.offered(found.offer), found, then)

        self._room.aside(
            lambda: offered(config, memory, models),
            lambda found: self._push(Catalogue(found), chosen),
            lambda error: self._failed(error, lambda: then(None)),
        )

    def _get_named(self, name: str, then: Callable[[Path | None], object]) -> None:
        from kvchat.library.pull import source_of

        self._room.toast(f"Looking for {name}")
        self._room.aside(
            lambda: source_of(name),
            lambda source: self._ask(source, None, then),
            lambda error: self._failed(error, lambda: then(None)),
        )

    def _ask(self, source: Source, about: Offered | None, then: Callable[[Path | None], object]) -> None:
        from kvchat.ui.catalogue import question
        from kvchat.ui.pulling import Pulling

        folder = self._room.desk.paths.models_folder

        def answered(yes: bool | None) -> None:
            if yes:
                self._push(Pulling(source, folder), pulled)
            else:
                then(None)

        def pulled(found: Pulled | None) -> None:
            if found is None:
                self._room.toast("Nothing is fetched any more. What has come stays: fetching it again goes on there.")
                then(None)
            else:
                self._look_again(lambda: then(found.path))

        self._push(Confirm(question(source, folder, about), "fetch it"), answered)

    # ------------------------------------------------------------------ folders

    def _add(self, text: str, then: Callable[[bool], object]) -> None:
        room, settings = self._room, self._room.desk.settings

        def write() -> tuple[Path, ...]:
            from kvchat.config_write import write_values
            from kvchat.ui.pasted_path import pasted_path

            folders = (*settings.model_folders, _folder(pasted_path(text)))
            folders = tuple(dict.fromkeys(folders))
            write_values(room.desk.paths.config_file, {"model_folders": [str(folder) for folder in folders]})
            return folders

        def done(folders: tuple[Path, ...]) -> None:
            room.desk = replace(room.desk, settings=replace(room.desk.settings, model_folders=folders))
            self._look_again(lambda: then(True))

        room.aside(write, done, lambda error: self._failed(error, lambda: then(False)))

    def _look_again(self, then: Callable[[], object]) -> None:
        room = self._room
        paths, folders = room.desk.paths, room.desk.settings.model_folders

        def look() -> tuple[Models, tuple[Path, ...]]:
            from kvchat.library.find import drop_in_folders, find_models, searched

            beside = drop_in_folders(folders)
            return tuple(find_models(paths, beside)), searched(paths, beside)

        def found(now: tuple[Models, tuple[Path, ...]]) -> None:
            self._renewed(*now)
            then()

        room.aside(look, found, lambda error: self._failed(error, then))

    def _failed(self, error: KvchatError, then: Callable[[], object]) -> None:
        self._room.refuse(error)
        then()

    def _push(self, screen: object, answered: Callable[..., object]) -> None:
        self._room.screen.app.push_screen(screen, answered)  # type: ignore[call-overload]


def _folder(text: str) -> Path:
    """The folder that is meant. KvchatError: it is none."""
    try:
        found = BY_KEY["model_folders"].read([text])
    except BadValue as bad:
        raise KvchatError(bad.problem, bad.hint) from bad
    from kvchat.library.walk import is_folder

    folder = found[0] if isinstance(found, tuple) and found else None
    if folder is None or not is_folder(folder):
        raise KvchatError(f"there is no folder {folder or shown(text)}", "check the path")
    return Path(folder)
