"""A process that tells about a model file, and about the build: `python -m kvchat.engine.look_process FD`.

Owns the one conversation that is shown as an example; loads a vocabulary, and no weights. Its stdout and stderr are the
log file.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection

from kvchat.backend.inspection import Example, Look, Looked, Vocabulary
from kvchat.backend.values import Failure
from kvchat.engine import llama
from kvchat.engine.llama_devices import build
from kvchat.engine.llama_vocabulary import vocabulary
from kvchat.engine.template import Turn, choose_template
from kvchat.errors import KvchatError

NICENESS = 10
SYSTEM = Turn("system", "Answer briefly.")
TURNS = (Turn("user", "What is a cache?"), Turn("assistant", "Memory for later."), Turn("user", "Thanks!"))


def look(command: Look) -> Looked:
    """Do it. Raises KvchatError when nothing can be told at all."""
    found = build()
    if not command.model_path:
        return Looked(found)
    try:
        model = llama.NativeModel(
            command.model_path, gpu_layers=0, extra_buffers=False, progress=lambda _: True, vocabulary_only=True
        )
    except ValueError:
        return Looked(found, problem="llama.cpp cannot read its vocabulary, see the log")
    told = vocabulary(model)
    try:
        return Looked(found, told, example(model, told))
    except KvchatError as error:
        return Looked(found, told, problem=error.message)
    finally:
        model.close()


def example(model: llama.NativeModel, told: Vocabulary) -> Example:
    """A short conversation up to where the next answer begins, as this model reads it. KvchatError: it cannot be."""
    texts = {token.role: token.text for token in told.special}
    template, name, note = choose_template(model.chat_template(), bos=texts.get("BOS", ""), eos=texts.get("EOS", ""))
    turns = (SYSTEM, *TURNS) if template.system_role else TURNS
    text = template.render(turns, time.time())
    return Example(name, text, len(model.tokenize(text, special=True)), template.system_role, note)


def main() -> int:
    """Entry of the child. The argument is the inherited file descriptor of the pipe."""
    os.nice(NICENESS)
    connection = Connection(int(sys.argv[1]))
    command = connection.recv()
    llama.start(_log)
    try:
        connection.send(look(command))
    except KvchatError as error:
        connection.send(Failure(error.message, error.hint))
    return 0


def _log(text: str, *, error: bool) -> None:  # noqa: ARG001 (llama.cpp's log has levels, the file has not)
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
