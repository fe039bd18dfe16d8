"""A model from somewhere into our folder: what a name means, whether there is room, all its files. Owns what is offered
to be fetched and where it goes; the bytes are those of `fetch`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from kvchat.errors import KvchatError
from kvchat.formats.gguf import PART_NAME
from kvchat.library.catalog import Offer, offer, offers
from kvchat.library.fetch import SPARE, Fetched, Remote, Tell, fetch
from kvchat.library.pace import size_words
from kvchat.library.transport import Wire, ascii_url, split_url
from kvchat.library.unfinished import part_of
from kvchat.library.walk import is_gguf

_HUB = "hf:"
_REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_LONGEST_NAME = 200  # bytes
_CHUNK = 1 << 20  # bytes
_WEB_PAGE = ("/blob/", "/resolve/")  # the page about a file on the hub, and the file


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be fetched: `files` are names in `folder` (below the models folder) and where they come from."""

    name: str
    folder: str
    files: tuple[tuple[str, Remote], ...]
    licence: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None: not known before the server has said it."""
        sizes = [remote.size for _, remote in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is there now: its first file, the bytes of all. `had`: it was there before. `checked`: its checksums
    were known before, and agreed."""

    path: Path
    size: int
    files: tuple[Fetched, ...]
    had: bool
    checked: bool


def refuse_offline() -> KvchatError:
    """Why nothing is fetched."""
    return KvchatError("nothing is fetched: offline is set", "leave out --offline, or set offline = false")


def offered(found: Offer) -> Source:
    """A model of the catalogue, as something to fetch."""
    remote = Remote(found.url, found.size, found.sha256)
    return Source(found.name, found.repository, ((found.file, remote),), found.licence)


def source_of(text: str, sha256: str | None = None) -> Source:
    """What a person means: a name of the catalogue, hf:OWNER/NAME[:FILE or quantization], the URL of a GGUF file.

    Asks the hub for the second. KvchatError: nothing of that kind, or what the hub says against it.
    """
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise KvchatError(f"{sha256[:80]!r} is no sha256", "64 hexadecimal digits")
    known = offer(text)
    if known is not None:
        return offered(known)
    if text.lower().startswith(_HUB):
        return _of_hub(text[len(_HUB) :])
    if "://" in text:
        return _of_url(text, sha256.lower() if sha256 else None)
    names = [each.name for each in offers()]
    near = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.4)
    if _REPOSITORY.fullmatch(text.partition(":")[0]):
        near = [f"{_HUB}{text}"]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
    raise KvchatError(f"the catalogue has no {text[:80]!r}", f"{hint} Also hf:OWNER/NAME or a URL")


def pull(source: Source, models_folder: Path, tell: Tell, wire: Wire) -> Pulled:
    """Fetch all files of a model that are not there. `tell` gets the bytes that are there and in all (None: not known).

    Errors of `fetch`; KvchatError also when there is too little room, or another file has the name.
    """
    folder = models_folder / source.folder
    targets = [(folder / name, remote) for name, remote in source.files]
    missing = [(target, remote) for target, remote in targets if not _is_there(target, remote)]
    checked = all(_is_checked(target, remote, wire) for target, remote in targets if (target, remote) not in missing)
    _room_for(source, missing, models_folder)
    done = sum(target.stat().st_size for target, _ in targets if target.exists())
    fetched = []
    try:
        for target, remote in missing:
            found = fetch(remote, target, _beyond(done, source.size, tell), wire)
            done += found.size
            fetched.append(found)
    finally:
        _remove_empty(folder, models_folder)
    size = sum(target.stat().st_size for target, _ in targets)
    checked = checked and all(found.checked for found in fetched)
    return Pulled(targets[0][0], size, tuple(fetched), not missing, checked)


def _remove_empty(folder: Path, root: Path) -> None:
    """Folders that were made for what never came."""
    with suppress(OSError):  # they are not empty, usually
        while root in folder.parents:
            folder.rmdir()
            folder = folder.parent


def _beyond(done: int, total: int | None, tell: Tell) -> Tell:
    """Counts one file as a part of all."""
    return lambda have, size: tell(done + have, size if total is None else total)


def _is_there(target: Path, remote: Remote) -> bool:
    if not target.exists():
        return False
    size = target.stat().st_size
    if remote.size is not None and size != remote.size:
        raise KvchatError(
            f"{target} is there and has {size:,} bytes, not {remote.size:,}", "move it away, or give it another name"
        )
    return True


def _is_checked(target: Path, remote: Remote, wire: Wire) -> bool:
    """Whether the checksum of a file that is there was known, and agrees. A file whose size was known too is taken for
    the one that was checked when it came."""
    if remote.size is not None or remote.sha256 is None:
        return remote.sha256 is not None
    digest = hashlib.sha256()
    try:
        with target.open("rb") as file:
            while data := file.read(_CHUNK):
                wire.check()
                digest.update(data)
    except OSError as error:
        raise KvchatError(f"{target} is there and cannot be read: {error.strerror}", "look at its rights") from error
    if digest.hexdigest() != remote.sha256:
        raise KvchatError(f"{target} is there and has another checksum", "move it away, or give it another name")
    return True


def _room_for(source: Source, missing: list[tuple[Path, Remote]], models_folder: Path) -> None:
    """All at once, before the first byte."""
    needed = 0
    for target, remote in missing:
        part = part_of(target)
        needed += max(0, (remote.size or 0) - (part.stat().st_size if part.exists() else 0))
    place = next(folder for folder in (models_folder, *models_folder.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed > max(0, free - SPARE):
        raise KvchatError(
            f"{source.name} takes {size_words(needed)}, and {models_folder} has {size_words(free)} free",
            f"make room ({size_words(SPARE)} are left to others), or choose a smaller one",
        )


def _of_hub(text: str) -> Source:
    from kvchat.library.hub import hub_files

    repository, _, wanted = text.strip("/").partition(":")
    if not _REPOSITORY.fullmatch(repository):
        raise KvchatError(
            f"{('hf:' + text)[:120]!r} names no repository", "write hf:OWNER/NAME, or hf:OWNER/NAME:Q4_K_M"
        )
    files = tuple((_file_name(name), remote) for name, remote in hub_files(repository, wanted))
    stem = Path(files[0][0]).stem
    part = PART_NAME.fullmatch(stem)
    return Source(part["stem"] if part else stem, repository, files)


def _of_url(url: str, sha256: str | None) -> Source:
    parts = split_url(url)
    url = ascii_url(url)
    if "/blob/" in parts.path and parts.hostname == split_url(offers()[0].endpoint).hostname:
        url = url.replace(*_WEB_PAGE, 1)
    name = _file_name(unquote(parts.path.rpartition("/")[2]))
    part = PART_NAME.fullmatch(Path(name).stem)
    if part is not None:
        raise KvchatError(
            f"{name} is one of {int(part['parts'])} parts", "a split model: hf:OWNER/NAME fetches all of them"
        )
    return Source(Path(name).stem, "", ((name, Remote(url, None, sha256)),))


def _file_name(name: str) -> str:
    """A name that is a name in one folder and nothing else. KvchatError: it is not that of a GGUF file."""
    known = is_gguf(name) and name.isprintable() and not set(name) & set('/\\:*?"<>|') and name.strip() == name
    if not known or len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        raise KvchatError(f"{name[:120]!r} is not the name of a GGUF file", "the address has to end with NAME.gguf")
    return name
