"""A child that speaks the engine's protocol and fails as told: `fake_engine.py MODE FD`."""

import os
import signal
import sys
import time
from multiprocessing.connection import Connection

from kvchat.backend.protocol import (
    Cancel,
    Configure,
    Generate,
    LoadFailed,
    Loading,
    Ready,
    Restored,
    TextDelta,
    TurnFinished,
)
from kvchat.backend.values import CacheInfo, DraftInfo, Failure, ModelInfo, Usage


def ready(config):
    model = ModelInfo("m", config.model_path, "llama", "GQA", "f", "k", "GGUF", 2048, 1)
    cache = CacheInfo(config.type_k, config.type_v, 512, False, 1, 0, config.extra_buffers, True)
    draft = DraftInfo("d", config.draft_path, 1, 1) if config.draft_path is not None else None
    return Ready(model, cache, 0.1, draft=draft)


def load_draft(mode, pipe, config):
    if config.draft_path is None:
        return
    pipe.send(Loading(0.0, draft=True))
    if mode == "draft-dies" or (mode == "draft-needs-plain-buffers" and config.extra_buffers):
        die(signal.SIGILL)
    if mode == "draft-is-killed":
        die(signal.SIGKILL)


def die(number):
    print("last words", flush=True)
    os.kill(os.getpid(), number)
    time.sleep(10)


def answer(mode, pipe, request, drafts):
    if mode == "die-in-restore" and request.keep_kv:
        die(signal.SIGSEGV)
    pipe.send(Restored(request.turn, 0, 0, 0, 0, 1, 0.0, None if request.keep_kv else "no-kv"))
    pipe.send(TextDelta(request.turn, "half ", (1,)))
    if mode == "garbage":
        pipe.send_bytes(bytes.fromhex(request.messages[0].text))
        time.sleep(1000)
    if mode == "a-giant":
        os.write(pipe.fileno(), b"\xff\xff\xff\xfe" + bytes(100))  # a length that cannot be
        time.sleep(1000)
    if mode == "die-in-answer" or (mode == "die-drafting" and drafts):
        die(signal.SIGABRT)
    if mode == "wait-for-cancel":
        while not isinstance(pipe.recv(), Cancel):
            pass
        pipe.send(TurnFinished(request.turn, "cancelled", Usage()))
        return
    pipe.send(TurnFinished(request.turn, "stop", Usage()))


def main():
    mode, pipe = sys.argv[1], Connection(int(sys.argv[2]))
    config = pipe.recv().config
    if mode == "no-extra-buffers" and config.extra_buffers:
        die(signal.SIGILL)
    if mode == "only-plain" and (config.extra_buffers or config.flash_attention != "off" or config.type_k != "f16"):
        die(signal.SIGSEGV)
    if mode == "die-in-load":
        die(signal.SIGILL)
    if mode == "killed-in-load":
        die(signal.SIGKILL)
    if mode == "refuse":
        pipe.send(LoadFailed(Failure("no", "try another")))
        return
    if mode == "deaf-in-load":
        time.sleep(1000)
    load_draft(mode, pipe, config)
    pipe.send(ready(config))
    if mode == "deaf":
        time.sleep(1000)
    if mode == "die-measuring" and config.tune:
        die(signal.SIGSEGV)
    if mode == "die-by-number":
        die(35)
    try:
        while True:
            command = pipe.recv()
            if isinstance(command, Configure):
                config = command.config
                load_draft(mode, pipe, config)
                pipe.send(ready(config))
            if isinstance(command, Generate):
                answer(mode, pipe, command, config.draft_path is not None)
    except EOFError:
        print("goodbye", flush=True)


main()
