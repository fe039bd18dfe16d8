"""A process that transcodes one chain of the page store: `python -m kvchat.engine.transcode_process FD`.

Owns that one piece of work; loads ggml's conversions, and no model. Its stdout and stderr are the log file.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from kvchat.backend.protocol import Transcode, Transcoded
from kvchat.backend.values import Failure
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.namespace import rotates
from kvchat.errors import KvchatError
from kvchat.formats.gguf import read_header
from kvchat.kv.folder import PageFolder
from kvchat.kv.geometry import geometry
from kvchat.kv.transcode import Transcoder, form_of
from kvchat.kv.transcode_chain import transcode_chain

NICENESS = 10


def transcode(command: Transcode) -> Transcoded:
    """Do it. Raises KvchatError."""
    folder = Path(command.kv_folder)
    source = PageFolder(folder).namespaces().get(command.namespace)
    if source is None:
        raise KvchatError("nothing says of what model these pages are", "their namespace.json is missing or damaged")
    shape = geometry(read_header(Path(command.model_path)))
    refusal = shape.refusal(command.type_k, command.type_v, "auto")
    if refusal is not None:
        raise refusal
    rotation = rotates(shape, command.type_k, command.type_v)
    target = replace(source, type_k=command.type_k, type_v=command.type_v, rotation=rotation)
    transcoder = Transcoder(NativeQuants(), shape, form_of(source), form_of(target))
    done = transcode_chain(folder, command.kv_budget, source, command.last, target, transcoder)
    return Transcoded(done.tokens, done.pages, done.written, done.written_bytes, done.last)


def main() -> int:
    """Entry of the child. The argument is the inherited file descriptor of the pipe."""
    os.nice(NICENESS)
    connection = Connection(int(sys.argv[1]))
    command = connection.recv()
    try:
        connection.send(transcode(command))
    except KvchatError as error:
        connection.send(Failure(error.message, error.hint))
    return 0


if __name__ == "__main__":
    sys.exit(main())
