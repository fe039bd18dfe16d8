"""Pages that no history accounts for, deleted.

Owns which pages those are when histories are to go: all but those that hold a part of one that stays, and pinned ones.
Must not know what a chat is. Other processes may use the store meanwhile, and what they have in memory
they may write again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from kvchat.formats.past import Past
from kvchat.kv.collecting import bring_in_line
from kvchat.kv.folder import PageFolder
from kvchat.kv.index import PageIndex
from kvchat.kv.matching import Match, longest_prefix
from kvchat.kv.namespace import Namespace
from kvchat.kv.problems import StoreUnwritable
from kvchat.kv.rows import Row


@dataclass(frozen=True, slots=True)
class Purged:
    """What was deleted: pages and checkpoints, their bytes, and damaged files that were kept for a look."""

    pages: int = 0
    bytes: int = 0
    damaged: int = 0


def purge(path: Path | None, gone: Iterable[Past], stay: Iterable[Past]) -> Purged:
    """Delete from the store in this folder (None: there is none) what only the histories `gone` have had, with what
    goes on behind it, and what none of `stay` accounts for: it may be of a chat that was killed before its tokens were
    known. Raises StoreUnwritable; what was not deleted is still known then, and it can be done again."""
    if path is None or not path.is_dir():
        return Purged()
    try:
        return _purge(PageFolder(path), list(gone), stay)
    except StoreUnwritable as error:
        why = error.message.removeprefix("KV is not saved: ")
        raise StoreUnwritable(f"saved KV could not be deleted: {why}", "close other programs that use it") from error


def _purge(folder: PageFolder, gone: Sequence[Past], stay: Iterable[Past]) -> Purged:
    with closing(PageIndex(folder)) as index:
        index.need_file()
        bring_in_line(folder, index)  # a page that the index lacks has tokens, too
        lost = _lost(folder, index, gone, stay)
        for row in reversed(lost):  # children before parents
            folder.remove(row.namespace, row.key)
        index.remove([(row.namespace, row.key) for row in lost])
        index.rewrite()
    folder.remove_stale()
    return Purged(len(lost), sum(row.bytes for row in lost), _remove_damaged(folder.damaged))


def _lost(folder: PageFolder, index: PageIndex, gone: Sequence[Past], stay: Iterable[Past]) -> list[Row]:
    """Parents before children."""
    spaces = list(folder.namespaces().values())
    accounts = {space.id: _Account() for space in spaces}
    for past in stay:
        for space in spaces:
            accounts[space.id].stays(_match(index, space, past), len(past.ids))
    for past in gone:
        for space in spaces:
            accounts[space.id].goes(_match(index, space, past))
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in index.rows():
        rows[row.namespace].append(row)
    nothing = _Account()  # what is in a namespace that nothing describes is of no use
    lost = [each for name, all_of_it in rows.items() for each in accounts.get(name, nothing).lost(all_of_it)]
    return [row for row in lost if not row.pinned]


def _match(index: PageIndex, space: Namespace, past: Past) -> Match:
    return longest_prefix(index, space.id, past.root or space.root, past.ids, (), past.evictions)


@dataclass(slots=True)
class _Account:
    """Who has how much of which page in one namespace: the most tokens by key, and the pages in which a history ends
    whose further tokens are not known."""

    staying: dict[bytes, int] = field(default_factory=dict)
    going: dict[bytes, int] = field(default_factory=dict)
    ends: set[bytes] = field(default_factory=set)

    def stays(self, match: Match, tokens: int) -> None:
        _note(self.staying, match)
        if match.hits and match.tokens == tokens:
            self.ends.add(match.hits[-1].key)

    def goes(self, match: Match) -> None:
        _note(self.going, match)

    def lost(self, rows: Sequence[Row]) -> list[Row]:
        """Of all pages and checkpoints, parents before children, those that go."""
        kept: dict[bytes, Row] = {}
        open_ended: set[bytes] = set()  # pages behind which a history that stays may go on
        for row in rows:
            if row.kind == "page" and self._keeps(row, open_ended):
                kept[row.key] = row
                if row.key in self.ends or row.before in open_ended:
                    open_ended.add(row.key)
        return [row for row in rows if row.key not in kept and not _within(row, kept.values())]

    def _keeps(self, row: Row, open_ended: set[bytes]) -> bool:
        staying, going = self.staying.get(row.key, 0), self.going.get(row.key, 0)
        if row.tokens and staying == row.tokens:
            return True
        ends_here = row.key in self.ends and staying >= going
        return ends_here or (row.before in open_ended and going == 0)


def _note(taken: dict[bytes, int], match: Match) -> None:
    for hit in match.hits:
        taken[hit.key] = max(taken.get(hit.key, 0), hit.take)


def _within(row: Row, kept: Iterable[Row]) -> bool:
    """Whether a checkpoint lies within one of the pages."""
    return row.kind == "checkpoint" and any(page.parent == row.parent and page.ids.startswith(row.ids) for page in kept)


def _remove_damaged(folder: Path) -> int:
    """What was set aside belongs to whom nobody knows."""
    count = 0
    try:
        for each in list(folder.iterdir()):
            each.unlink(missing_ok=True)
            count += 1
    except FileNotFoundError:
        return count
    except OSError as error:
        raise StoreUnwritable.because(error) from error
    return count
