"""The draft in the person's own editor. Owns the file that it goes through and the terminal meanwhile.

The file is the person's alone and is gone afterwards; where the app is killed meanwhile it stays, and the next one
says so. While the editor has the terminal the app draws nothing, but goes on: an answer that is being written is kept
as always. Must not know what the text is for.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from textual.app import App, SuspendNotSupported

from kvchat.errors import KvchatError
from kvchat.leftovers import draft_prefix
from kvchat.paths import ensure_private

FALLBACKS = ("nano", "vi")
LONGEST_GOODBYE = 1.0  # seconds for an editor that has to end
LOOK = 0.05  # seconds between two looks at whether the editor has ended, or the app does
_HINT = "set EDITOR to the name of an editor"


def editor_command() -> list[str]:
    """What the person edits texts with. KvchatError when there is nothing."""
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if wanted:
        try:
            words = shlex.split(wanted)
        except ValueError as error:
            raise KvchatError(f"VISUAL or EDITOR cannot be read: {error}", _HINT) from error
        if not words or shutil.which(words[0]) is None:
            raise KvchatError(f"there is no editor {wanted}", _HINT)
        return words
    found = next(filter(shutil.which, FALLBACKS), None)
    if found is None:
        raise KvchatError("there is no editor", _HINT)
    return [found]


async def edit(app: App[None], text: str, folder: Path) -> str:
    """The text after the person has edited it. KvchatError when nothing can be taken from the editor."""
    command = editor_command()
    try:
        descriptor, name = tempfile.mkstemp(suffix=".md", prefix=draft_prefix(), dir=ensure_private(folder))
        path = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            code = await _run(app, [*command, name])
            if code != 0:
                raise KvchatError(f"{command[0]} ended with {code}", "the draft is what it was")
            after = path.read_text(encoding="utf-8", errors="replace")
        finally:
            with suppress(OSError):
                path.unlink()
    except SuspendNotSupported as error:
        raise KvchatError("this terminal cannot be given to an editor", "write here") from error
    except OSError as error:
        raise KvchatError(f"the draft could not be edited: {error.strerror or error}", _HINT) from error
    return after[:-1] if after.endswith("\n") and not text.endswith("\n") else after


async def _run(app: App[None], command: list[str]) -> int:
    """Run it on the terminal, which the app does not draw on or read from meanwhile. An app that ends ends it."""
    with app.batch_update(), app.suspend(), open("/dev/tty", "r+b", buffering=0) as terminal:  # noqa: PTH123
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
        try:
            while (code := process.poll()) is None:
                await asyncio.sleep(LOOK)
                if app.return_code is not None:
                    raise KvchatError("the app ends", "the draft is kept")  # not past `suspend`, which would go on
        finally:
            if process.returncode is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LONGEST_GOODBYE)
        return code
