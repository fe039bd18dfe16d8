"""A place for a chat in the context: a sequence, the record of its cells, and what brings KV in and out.

Owns which of these belong together, and what else is computed beside; must not know turns.
"""

from __future__ import annotations

from kvchat.engine.cells import Cells
from kvchat.engine.reuse import Reuser
from kvchat.engine.saving import Saver
from kvchat.engine.track import Track


class Place:
    """`saver` None: nothing is kept on disk. `resident`: a Reuser that knows no disk. `keeps`: what is in the cells may
    be written. `used`: when a turn was here last, by a count. `beside`: so many other turns are computed together with
    the one here."""

    def __init__(self, track: Track, cells: Cells, reuser: Reuser, saver: Saver | None) -> None:
        self.track = track
        self.cells = cells
        self.reuser = reuser
        self.resident = Reuser(cells, None)
        self.saver = saver
        self.keeps = True
        self.used = 0
        self.beside = 0

    @property
    def occupied(self) -> int:
        """Cells that are in use for this place alone."""
        return max(0, self.cells.held - self.cells.memory.shared)

    @property
    def is_kept(self) -> bool:
        """Whether what is in the cells is on disk, too, after a turn."""
        return self.saver is not None and self.keeps

    def release(self) -> None:
        """Give the cells back."""
        self.cells.truncate(0)
        if self.saver is not None:
            self.saver.let_go()
        self.reuser.check.forget()
        self.track.outputs.forget()
