"""Where things lie. Owns the names of folders and files; must not read what is in them or make any at import.

With KVCHAT_HOME=DIR everything is under DIR: `config.toml`, `chats.db`, `kv/`, `models/`, `state/`, `logs/`. Without it
each kind of file goes where the platform keeps its kind (XDG folders on Linux): what may be deleted at any time, the
KV pages, into the cache folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvchat.errors import KvchatError

HOME_VARIABLE = "KVCHAT_HOME"
_NAME = "kvchat"


@dataclass(frozen=True, slots=True)
class Paths:
    """`kv_folder` holds index.db and pages/, `log_file` the output of the engine process."""

    config_file: Path
    chats_db: Path
    kv_folder: Path
    models_folder: Path
    state_folder: Path
    log_file: Path

    @property
    def keys_file(self) -> Path:
        """The keys of the app, beside the settings."""
        return self.config_file.with_name("keys.toml")

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Paths:
        """The paths for this environment. Makes no folder."""
        home = environ.get(HOME_VARIABLE, "")
        return cls._under(_absolute(home)) if home else cls._of_platform()

    @classmethod
    def _under(cls, home: Path) -> Paths:
        return cls(
            config_file=home / "config.toml",
            chats_db=home / "chats.db",
            kv_folder=home / "kv",
            models_folder=home / "models",
            state_folder=home / "state",
            log_file=home / "logs" / "engine.log",
        )

    @classmethod
    def _of_platform(cls) -> Paths:
        from platformdirs import PlatformDirs

        dirs = PlatformDirs(_NAME, appauthor=False)
        return cls(
            config_file=dirs.user_config_path / "config.toml",
            chats_db=dirs.user_data_path / "chats.db",
            kv_folder=dirs.user_cache_path / "kv",
            models_folder=dirs.user_data_path / "models",
            state_folder=dirs.user_state_path,
            log_file=dirs.user_log_path / "engine.log",
        )


def ensure_private(folder: Path) -> Path:
    """Make `folder` and its missing parents, open to their owner only (0700), and return it.

    A folder that exists keeps its mode: it may be the person's own, named in KVCHAT_HOME. Files are 0600 either way.
    KvchatError when the folder cannot be made or not be written.
    """
    missing = []
    at = folder
    try:
        while not at.exists():
            missing.append(at)
            at = at.parent
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)  # another process may have been faster
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file")
    except OSError as error:
        reason = error.strerror or str(error)
        raise KvchatError(f"the folder {folder} cannot be made: {reason}", _writable_hint(at)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise KvchatError(f"the folder {folder} cannot be written", _writable_hint(folder))
    return folder


def typed_path(text: str) -> Path:
    """The path that a person wrote, with `~` for a home. Where nobody has that name it stays, and nothing is there."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser raises then)


def close_to_others(paths: Paths) -> list[str]:
    """Take from others the rights to what holds chats or tells of them: a sentence for each place where they had some.

    The folder of the chats itself is left alone where it can be the person's own; the files in it are not.
    """
    folders = (paths.kv_folder, paths.kv_folder / "pages", paths.state_folder, paths.log_file.parent)
    logs = (paths.log_file, paths.log_file.with_name("app.log"))
    files = (paths.kv_folder / "index.db", *logs, *paths.chats_db.parent.glob(f"{paths.chats_db.name}.*"))
    said = []
    for path in (*folders, *files):
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) or not mode & 0o077:
                continue
            path.chmod(0o700 if stat.S_ISDIR(mode) else 0o600)
            if path.stat().st_mode & 0o077:  # a file system that keeps no rights
                continue
            said.append(f"others had rights to {path}: it is closed to them now")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            said.append(f"others have rights to {path}, and it cannot be closed to them: {error.strerror}")
    return said


def _writable_hint(place: Path) -> str:
    return f"look at the rights of {place}, or set {HOME_VARIABLE} to a folder that you can write"


def _absolute(home: str) -> Path:
    path = Path(home)
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise KvchatError(f"{HOME_VARIABLE}={home}: {error}", "give the whole path") from error
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.resolve would follow links that the person chose)
