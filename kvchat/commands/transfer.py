"""`kvchat chats export` and `import`: chats out into files and in from files. Owns what is told about both.

Must not know what a file of another program looks like, nor what the database does with it.
"""

from __future__ import annotations

import json as jsonlib
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO, get_args

from kvchat.chats.export import Form, file_name, rendered, write_new, write_over
from kvchat.chats.store import ChatStore
from kvchat.chats.transfer import TakenIn
from kvchat.clean import clean_line
from kvchat.commands.database import open_chats
from kvchat.errors import FormatError, UsageError
from kvchat.formats.transcript import NAMES, Broken, Source, Transcript
from kvchat.formats.transcript_read import LARGEST, read_transcripts
from kvchat.paths import Paths, ensure_private, typed_path

_AT_ONCE = 50  # chats in one transaction: one wait for the disk, and nobody else waits long
_MOST_TOLD = 20  # lines about single chats of one file
_READABLE = (".json", ".jsonl", ".zip")
_SUFFIXES = {".md": "md", ".markdown": "md", ".json": "json"}


def run_export(
    paths: Paths,
    chat: str | None,
    *,
    everything: bool,
    form: str | None,
    target: str | None,
    json: bool,
    out: TextIO,
) -> int:
    """Write one chat to stdout or to a new file, or all of them into a folder."""
    if everything == (chat is not None):
        raise UsageError("export takes the name of one chat, or --all", "kvchat chats export CHAT")
    if everything:
        return _export_all(paths, _form(form or "json"), target, json, out)
    chosen = _form(form or _SUFFIXES.get(Path(target or "").suffix.lower()) or ("json" if json else "md"))
    with open_chats(paths) as store:
        transcript = store.export(store.resolve(chat or "").id)
    text = rendered(transcript, chosen)
    if target is None or target == "-":
        out.write(text)
        return 0
    path = typed_path(target)
    write_new(text, path)
    _tell_written([(transcript, path)], json, out)
    return 0


def run_import(paths: Paths, names: Sequence[str], *, json: bool, out: TextIO) -> int:
    """Add the chats in these files; 1 when some of them could not be read."""
    reports: list[_Report] = []
    with open_chats(paths) as store:
        for report in _begun(names):
            reports.append(report)
            if not report.broken:
                _import(store, report.path, report)
            if not json:
                report.print(out)
    if json:
        print(jsonlib.dumps([row for report in reports for row in report.rows()], indent=2), file=out)
    return 1 if any(report.broken for report in reports) else 0


# ------------------------------------------------------------------ out


def _form(name: str) -> Form:
    for known in get_args(Form):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"there is no format {clean_line(name)!r}", "there are md and json")


def _export_all(paths: Paths, form: Form, target: str | None, json: bool, out: TextIO) -> int:
    if target is None or target == "-":
        raise UsageError("--all needs a folder", "kvchat chats export --all -o FOLDER")
    folder = ensure_private(typed_path(target))
    written: list[tuple[Transcript, Path]] = []
    with open_chats(paths) as store:
        for summary in store.chats():
            if summary.messages:
                transcript = store.export(summary.chat.id)
                path = folder / file_name(transcript, form)
                write_over(rendered(transcript, form), path)
                written.append((transcript, path))
    _tell_written(written, json, out)
    return 0


def _tell_written(written: Sequence[tuple[Transcript, Path]], json: bool, out: TextIO) -> None:
    if json:
        rows = [
            {"chat": transcript.id, "title": transcript.title, "file": str(path), "messages": len(transcript.messages)}
            for transcript, path in written
        ]
        print(jsonlib.dumps(rows, indent=2), file=out)
    elif len(written) == 1:
        print(f'"{clean_line(written[0][0].title)}" is in {clean_line(str(written[0][1]))}', file=out)
    else:
        where = f" in {clean_line(str(written[0][1].parent))}" if written else ""
        print(f"{len(written)} chats are{where}" if written else "There are no chats yet.", file=out)


# ------------------------------------------------------------------ in


@dataclass(frozen=True, slots=True)
class _Read:
    """A chat that was read, without its words: those of a large file would fill the memory."""

    source: Source
    messages: int
    skipped: Mapping[str, int]
    taken: TakenIn


@dataclass(slots=True)
class _Report:
    """What became of one file."""

    path: Path
    read: list[_Read] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def rows(self) -> Iterator[dict[str, object]]:
        for each in self.read:
            yield {
                "file": str(self.path),
                "source": each.source,
                "outcome": each.taken.outcome,
                "chat": each.taken.chat,
                "title": each.taken.title,
                "messages": each.messages,
                "skipped": sum(each.skipped.values()),
                "problem": None,
            }
        nothing = {"source": None, "outcome": "broken", "chat": None, "messages": 0, "skipped": 0}
        for broken in self.broken:
            yield {"file": str(self.path), **nothing, "title": broken.title, "problem": broken.problem}

    def print(self, out: TextIO) -> None:
        outcomes = Counter(each.taken.outcome for each in self.read)
        there = outcomes["present"] + outcomes["trashed"]
        said = [_chats(outcomes["imported"], "imported")]
        said += [f"{there} already here"] if there else []
        said += [f"{len(self.broken)} not read"] if self.broken else []
        sources = sorted({NAMES[each.source] for each in self.read})
        name = clean_line(str(self.path)) + (f" ({', '.join(sources)})" if sources else "")
        print(f"{name}: {', '.join(said)}", file=out)
        skipped: Counter[str] = Counter()
        for each in self.read:
            skipped.update(each.skipped if each.taken.outcome == "imported" else {})
        if skipped:
            print(f"  left out: {', '.join(f'{kind} {count}' for kind, count in sorted(skipped.items()))}", file=out)
        lines = [*map(_broken_line, self.broken), *filter(None, (_there_line(each.taken) for each in self.read))]
        for line in lines[:_MOST_TOLD]:
            print(f"  {line}", file=out)
        if len(lines) > _MOST_TOLD:
            print(f"  and {len(lines) - _MOST_TOLD} more; --json tells all", file=out)


def _chats(count: int, what: str) -> str:
    return f"{count} {'chat' if count == 1 else 'chats'} {what}"


def _broken_line(broken: Broken) -> str:
    return f'not read: "{broken.title}": {broken.problem}' if broken.title else f"not read: {broken.problem}"


def _there_line(taken: TakenIn) -> str:
    title = clean_line(taken.title)
    if taken.outcome == "trashed":
        return f'in the trash: "{title}": kvchat chats restore {taken.chat}'
    return f'already here: "{title}"' if taken.outcome == "present" else ""


def _begun(names: Sequence[str]) -> Iterator[_Report]:
    """A report for each file, and for each of those in folders that can be chats. A folder without any has its own."""
    for path in map(typed_path, names):
        if not path.is_dir():
            yield _Report(path)
            continue
        found, why = [], f"no file in it ends in {', '.join(_READABLE)}"
        try:
            found = sorted(file for file in path.iterdir() if file.suffix.lower() in _READABLE)
        except OSError as error:
            why = error.strerror or str(error)
        yield from map(_Report, found) if found else [_Report(path, broken=[Broken("", why)])]


def _import(store: ChatStore, path: Path, report: _Report) -> None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe is waited for, and cannot be read twice
            raise FormatError("it is no file that can be read")
        if status.st_size > LARGEST:
            raise FormatError("it is too large")
        with path.open("rb") as file:
            readable = _readable(read_transcripts(file), report)
            while batch := list(islice(readable, _AT_ONCE)):
                report.read += map(_read, batch, store.take_in(batch))
    except OSError as error:
        report.broken.append(Broken("", error.strerror or str(error)))
    except FormatError as error:
        report.broken.append(Broken("", error.message))


def _readable(found: Iterator[Transcript | Broken], report: _Report) -> Iterator[Transcript]:
    """The conversations in a file until its end, or until nothing more of it can be read."""
    try:
        for each in found:
            if isinstance(each, Broken):
                report.broken.append(each)
            else:
                yield each
    except FormatError as error:
        report.broken.append(Broken("", error.message))
    except OSError as error:
        report.broken.append(Broken("", error.strerror or str(error)))


def _read(transcript: Transcript, taken: TakenIn) -> _Read:
    return _Read(transcript.source, len(transcript.messages), transcript.skipped, taken)
