"""What processes take, by Linux's own account. Owns the reading of /proc; starts and ends nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a group of processes. `rss` counts what they share once for each, `pss` once in all; of that `anonymous`
    is what no file stands behind, such as the KV cache, and the rest mostly the mapped model."""

    rss: int
    pss: int
    anonymous: int


def family(root: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for pid in found:  # grows meanwhile
        found += parents.get(pid, [])
    return found


def memory(pids: list[int]) -> Memory:
    """Of processes that live."""
    kinds = {"Rss:": 0, "Pss:": 0, "Pss_Anon:": 0}
    for pid in pids:
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            name, *numbers = line.split()
            if name in kinds:
                kinds[name] += int(numbers[0]) * 1024
    return Memory(kinds["Rss:"], kinds["Pss:"], kinds["Pss_Anon:"])


def written(pids: list[int]) -> int:
    """Bytes that they have handed to file systems so far. 0 for what lies on a file system in memory."""
    total = 0
    for pid in pids:
        fields = dict(line.split(": ") for line in (_PROC / str(pid) / "io").read_text().splitlines())
        total += int(fields["write_bytes"])
    return total


def on_disk(folder: Path) -> int:
    """Bytes of all files below it, as they say themselves."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
