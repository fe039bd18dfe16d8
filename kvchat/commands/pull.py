"""`kvchat models pull`: fetch a model, or say what the catalogue has. Owns what is printed meanwhile; must not know how
files are fetched.
"""

from __future__ import annotations

import json as jsonlib
import shlex
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TextIO

from kvchat.clean import clean_line
from kvchat.commands.table import print_table, size_text
from kvchat.config import Settings
from kvchat.formats.gguf import model_name
from kvchat.kv.compute import workload
from kvchat.kv.geometry import geometry
from kvchat.kv.needs import Memory, Subject
from kvchat.kv.plan import Wanted, make_plan
from kvchat.library.catalog import Offer, offers
from kvchat.library.pace import Pace, progress_words
from kvchat.library.pull import Pulled, Source, pull, refuse_offline, source_of
from kvchat.library.transport import Wire
from kvchat.machine import free_memory, free_vram
from kvchat.paths import Paths

_COLUMNS = ("name", "size", "fits", "licence", "drafts for it", "what it is")
_EVERY = {True: 0.1, False: 10.0}  # seconds between two lines, on a terminal and elsewhere
_BAR_CELLS = 24


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the catalogue. `size` in bytes; `fits`: into this machine's free memory, None: not known."""

    name: str
    title: str
    repository: str
    file: str
    size: int
    sha256: str
    licence: str
    fits: bool | None
    context_trained: int
    draft: str


def run_pull(
    settings: Settings,
    paths: Paths,
    name: str | None,
    *,
    sha256: str | None,
    json: bool,
    out: TextIO,
    err: TextIO,
) -> int:
    """Fetch a model into our folder; without a name print the catalogue. KvchatError: it cannot be had."""
    if name is None:
        _print_catalogue(json=json, out=out)
        return 0
    if settings.offline:
        raise refuse_offline()
    source = source_of(name, sha256)
    progress = _Progress(source.name, err, quiet=json)
    if not json:
        print(clean_line(_announced(source)), file=err)
    try:
        pulled = pull(source, paths.models_folder, progress.tell, Wire())
    except KeyboardInterrupt:
        progress.end()
        if not json:
            print("stopped; what has come stays, and pulling it again goes on there", file=err)
        raise
    finally:
        progress.end()
    _print_pulled(source, pulled, progress.seconds, json=json, out=out)
    if not json:
        print(clean_line(f"to chat with it: kvchat -m {shlex.quote(model_name(pulled.path))}"), file=err)
    return 0


def _announced(source: Source) -> str:
    size = f", {size_text(source.size)}" if source.size is not None else ""
    licence = f", licence: {source.licence}" if source.licence else ""
    files = f" in {len(source.files)} parts" if len(source.files) > 1 else ""
    return f"{source.name}{size}{files}{licence}"


def _print_pulled(source: Source, pulled: Pulled, seconds: float, *, json: bool, out: TextIO) -> None:
    if json:
        found = {
            "name": source.name,
            "path": str(pulled.path),
            "size": pulled.size,
            "fetched": not pulled.had,
            "checked": pulled.checked,
            "sha256": [file.sha256 for file in pulled.files],
            "seconds": round(seconds, 3),
        }
        print(jsonlib.dumps(found), file=out)
        return
    how = "was there already" if pulled.had else "checksum agrees" if pulled.checked else "no checksum was known"
    print(f"{clean_line(str(pulled.path))}  {size_text(pulled.size)}, {how}", file=out)


# ------------------------------------------------------------------ the catalogue


def _print_catalogue(*, json: bool, out: TextIO) -> None:
    memory = Memory(free_memory(), free_vram())
    lines = [(_line(found, memory), found.about) for found in offers()]
    if json:
        print(jsonlib.dumps([asdict(line) for line, _ in lines]), file=out)
        return
    fits = {True: "yes", False: "no", None: "-"}
    rows = [
        (line.name, size_text(line.size), fits[line.fits], line.licence, line.draft or "-", about)
        for line, about in lines
    ]
    print_table(_COLUMNS, rows, out, numbers={"size"})


def _line(found: Offer, memory: Memory) -> _Line:
    shape = geometry(found.header)
    subject = Subject(found.name, found.header, shape, found.size, workload(found.header, shape))
    return _Line(
        found.name,
        found.title,
        found.repository,
        found.file,
        found.size,
        found.sha256,
        found.licence,
        make_plan(subject, memory, Wanted()).chosen.fits,
        shape.context_trained,
        found.draft,
    )


# ------------------------------------------------------------------ progress


class _Progress:
    """How far a pull is: a bar that is drawn over itself on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str, err: TextIO, *, quiet: bool) -> None:
        self._name = clean_line(name)
        self._err = err
        self._quiet = quiet
        self._terminal = err.isatty()
        self._pace = Pace()
        self._begun = time.monotonic()
        self._last = -_EVERY[False] if self._terminal else self._begun
        self._drawn = False
        self._there: tuple[int, int | None] = (0, None)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun

    def tell(self, done: int, total: int | None) -> None:
        """So much is there."""
        now = time.monotonic()
        self._there = done, total
        if not self._quiet and now - self._last >= _EVERY[self._terminal]:
            self._last = now
            self._pace.note(done, now)
            self._draw(done, total)

    def end(self) -> None:
        """The bar stays as it is now, and what follows begins on a line of its own."""
        if self._drawn:
            self._draw(*self._there)
            print(file=self._err, flush=True)
            self._drawn = False

    def _draw(self, done: int, total: int | None) -> None:
        words = progress_words(done, total, self._pace)
        if not self._terminal:
            print(f"{self._name}: {words}", file=self._err, flush=True)
            return
        room = shutil.get_terminal_size().columns - 1
        line = _bar(done, total, min(_BAR_CELLS, room - len(words) - 4)) + words
        name = f"{self._name}  " if len(self._name) + len(line) + 2 <= room else ""
        print(f"\r{name}{line}"[: room + 1] + "\x1b[K", end="", file=self._err, flush=True)
        self._drawn = True


def _bar(done: int, total: int | None, cells: int) -> str:
    if not total or cells < 4:
        return ""
    full = min(cells, cells * done // total)
    return "━" * full + "─" * (cells - full) + "  "
