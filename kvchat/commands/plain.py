"""`kvchat --plain`: a chat in lines, for screen readers, terminals without control sequences, and pipes.

Owns the loop of reading a line and carrying it out, and the exit code. Must not draw: answers are lines of text without
control sequences on stdout; notes, errors and the line after each answer go to stderr.
At a terminal a failure is told and the chat goes on. In a pipe it ends the run: what follows was written for an answer
that did not come.
"""

from __future__ import annotations

from typing import TextIO

from kvchat.backend.client import EngineFactory
from kvchat.backend.switching import SwitchingEngine
from kvchat.chats.thread import INCOGNITO_GONE
from kvchat.clean import clean_line
from kvchat.commands.plain_chat import PlainChat
from kvchat.commands.plain_commands import Ask, Commands, Offer, Quit, Several, describe
from kvchat.commands.plain_lines import Left, Lines
from kvchat.commands.plain_printing import PlainPrinter
from kvchat.config import Settings
from kvchat.errors import INTERRUPTED, KvchatError
from kvchat.paths import Paths

AGAIN = "Ctrl+C again or Ctrl+D leaves."


def run_plain(
    settings: Settings,
    paths: Paths,
    *,
    chat: str | None,
    continue_last: bool,
    out: TextIO,
    err: TextIO,
    stdin: TextIO,
    engine_factory: EngineFactory = SwitchingEngine,
) -> int:
    """Chat until there are no more lines; the exit code: 0, or 130 when an answer was interrupted and nothing came
    after it. KvchatError: it could not begin, or, in a pipe, a line could not be carried out."""
    lines = Lines(stdin, out, err)
    printer = PlainPrinter(out, err, quiet=False)
    with PlainChat(settings, paths, printer, engine_factory) as opened:
        opened.begin(chat, continue_last)
        if lines.typed:
            printer.status(f"{clean_line(_model(opened))}. {describe(opened)} /help lists commands.")
        code = _Loop(opened, Commands(opened, out), lines, printer).run()
        if opened.was_incognito:
            printer.status(INCOGNITO_GONE)
        return code


def _model(chat: PlainChat) -> str:
    config = chat.engine.config
    if config.remote is not None:
        return f"{config.remote.model or 'the model'} of {config.remote.host}"
    path = config.model_path
    return next((model.name for model in chat.models if str(model.path) == path), path)


class _Loop:
    def __init__(self, chat: PlainChat, commands: Commands, lines: Lines, printer: PlainPrinter) -> None:
        self._chat = chat
        self._commands = commands
        self._lines = lines
        self._printer = printer
        self._open = ""  # the chat whose messages Up brings back
        self._interrupted = False  # nothing was entered since the last Ctrl+C
        self._code = 0

    def run(self) -> int:
        while True:
            try:
                self._step()
            except (Left, Quit):
                return self._code
            except KeyboardInterrupt:
                if self._leaves():
                    return self._code
            except KvchatError as error:
                if not self._lines.typed:
                    raise
                self._tell(error)

    def _tell(self, error: KvchatError) -> None:
        self._printer.status(f"error: {error.message}" + (f" ({error.hint})" if error.hint else ""))

    def _step(self) -> None:
        """One line."""
        if self._chat.conversation.chat.id != self._open:
            self._open = self._chat.conversation.chat.id
            self._lines.remember([each.text for each in self._chat.conversation.messages if each.role == "user"])
        text = self._lines.next()
        self._interrupted = False
        self._code = 0
        if not text.strip():
            return
        self._printer.forget()
        wish = self._commands.read(text)
        if isinstance(wish, Offer):
            wish = self._edited(wish)
        if wish is not None:
            self._turn(wish)

    def _turn(self, wish: Ask) -> None:
        try:
            reason = self._chat.turn(wish.begin) if not isinstance(wish, Several) else self._several(wish)
        except KeyboardInterrupt:  # the second one in a turn
            self._code = INTERRUPTED
            raise Left from None
        if reason == "cancelled":
            self._interrupted, self._code = True, INTERRUPTED
            if self._chat.ending or not self._lines.typed:
                raise Left
        if isinstance(wish, Several):
            self._pick()

    def _several(self, wish: Several) -> str:
        """How they ended. One that failed is no reason not to keep another."""
        try:
            return self._chat.several(wish.begin)
        except KvchatError as error:
            if not self._lines.typed or not self._chat.conversation.alternatives:
                raise
            self._tell(error)
            return "error"

    def _pick(self) -> None:
        conversation = self._chat.conversation
        found = conversation.alternatives
        while True:
            self._printer.status(f"Which one is kept? 1 to {len(found)}, an empty line keeps the first.")
            word = self._lines.next().strip() or "1"
            place = int(word) if word.isascii() and word.isdigit() and len(word) < 4 else 0
            if 0 < place <= len(found):
                conversation.pick(found[place - 1].message.id).result()
                self._printer.status(f"Answer {place} is kept; the others stay beside it.")
                return
            if not self._lines.typed:
                raise KvchatError(f"{word[:20]!r} is none of the answers", f"1 to {len(found)}, or an empty line")

    def _edited(self, offer: Offer) -> Ask | None:
        if not self._lines.editable:
            raise KvchatError("here a line cannot be edited", "/edit TEXT takes the new text")
        text = self._lines.next(offer.text)
        return Ask(lambda: offer.edited(text)) if text.strip() else None

    def _leaves(self) -> bool:
        """Ctrl+C at the prompt: the line is given up; at one that is empty, the second one in a row leaves."""
        self._printer.end_line()
        if not self._lines.typed:
            self._code = INTERRUPTED
            return True
        if self._interrupted and not self._lines.begun:
            return True
        self._interrupted = True
        self._printer.status(AGAIN)
        return False
