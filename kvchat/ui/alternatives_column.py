"""One of several answers: a line that says which it is, one that says how far, and its text. Owns what it shows."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kvchat.conversation import Alternative
from kvchat.ui.display import display, display_line
from kvchat.ui.entry import Entry, ThoughtCost
from kvchat.ui.transcript import Transcript
from kvchat.ui.wording import sentences, thought_cost

_WORKS, _DONE, _FAILED = "◐", "●", "✗"


class AnswerColumn(Vertical):
    """Shows an alternative as it is now; the parts that are as before cost nothing."""

    DEFAULT_CSS = """
    AnswerColumn {
        width: 1fr; height: 1fr; border: round $edge; background: $background;
        & > Static { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; background: $background; }
        & > .which { color: $foreground; }
        & > .state { color: $meta; }
        &.-marked { border: round $primary; }
        &.-marked > .which { color: $primary; text-style: bold; }
    }
    """

    def __init__(self, number: int) -> None:
        super().__init__(id=f"answer-{number}")
        self.number = number
        self.transcript = Transcript()
        self._which = Static("", classes="which", markup=False)
        self._state = Static("", classes="state", markup=False)
        self._said = ("", "")
        self._shown: str | None = None  # the message whose text is shown
        self._characters = 0
        self._over = False

    def compose(self) -> ComposeResult:
        yield self._which
        yield self._state
        yield self.transcript

    def show(self, each: Alternative, which: str, state: str) -> None:
        """This alternative; `which` and `state` are said of it."""
        glyph = _WORKS if each.live is not None else _FAILED if each.failure is not None else _DONE
        said = (display_line(f"{glyph} {which}"), display_line(state))
        if said != self._said:
            self._said = said
            for line, text in zip((self._which, self._state), said, strict=True):
                line.update(Content(text), layout=False)
        self._show_text(each)

    def _show_text(self, each: Alternative) -> None:
        message, thought = each.message, ThoughtCost(each.live.thought if each.live is not None else 0)
        live = each.live is not None
        if message.id != self._shown:
            cost = thought if live else thought_cost(message)
            self.transcript.show([Entry(message.id, "assistant", message.text, live=live, thought=cost)])
            self._shown, self._characters, self._over = message.id, len(message.text), not live
            self._tell_failure(each)
            return
        if new := message.text[self._characters :]:
            self.transcript.append(message.id, new, thought)
            self._characters = len(message.text)
        if not live and not self._over:
            self._over = True
            self.transcript.finish(message.id, "", thought_cost(message))
            self._tell_failure(each)

    def _tell_failure(self, each: Alternative) -> None:
        if each.live is None and each.failure is not None:
            self.transcript.note(display(sentences(each.failure.message, each.failure.hint)), "error")

    def mark(self, marked: bool) -> None:
        """Whether the keys are for this one."""
        self.set_class(marked, "-marked")
