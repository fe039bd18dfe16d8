"""What `kvchat --plain` prints while a turn runs. Owns which stream gets what; must not decide anything."""

from __future__ import annotations

from kvchat.clean import clean
from kvchat.commands.printing import Printer


class PlainPrinter(Printer):
    """Nothing that a terminal would obey, whatever stdout is; what it tells about a turn, it tells always."""

    def text(self, text: str) -> None:
        """A piece of the answer."""
        super().text(clean(text))

    def aside(self, line: str) -> None:
        """As good as a note here."""
        self.status(line)

    def status(self, line: str) -> None:
        """A line about what was done."""
        print(clean(line), file=self._err, flush=True)

    def end_line(self) -> None:
        """What was typed is left as it is."""
        print(file=self._err, flush=True)

    def forget(self) -> None:
        """A note that was told in an earlier turn is told again."""
        self._said.clear()
