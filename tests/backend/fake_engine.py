"""A child that speaks the engine's protocol and fails as told: `fake_engine.py MODE FD`."""

import os
import signal
import struct
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
    if mode == "a-terabyte":
        os.write(pipe.fileno(), struct.pack("!iQ", -1, 1 << 40) + bytes(100))
        time.sleep(1000)
    if mode.startswith("half-an-event"):
        os.write(pipe.fileno(), struct.pack("!i", 1000) + bytes(100))
        if mode.endswith("dies"):
            die(signal.SIGKILL)
        time.sleep(1000)
    if mode == "closes-its-pipe":
        pipe.close()
        time.sleep(1000)
    if mode == "hangs":
        time.sleep(1000)
    if mode == "measures":
        pipe.send(TextDelta(request.turn, str(len(request.messages[-1].text)), (1,)))
    if mode == "echoes":
        pipe.send(TextDelta(request.turn, request.messages[-1].text, (1,)))
    if mode.startswith("die-in-answer") or (mode == "die-drafting" and drafts):
        die(getattr(signal, mode.partition(" ")[2] or "SIGABRT"))
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
    if mode == "killed-in-load" or (mode.startswith("killed-in-load of ") and config.model_path.endswith(mode[18:])):
        die(signal.SIGKILL)
    if mode == "refuse":
        pipe.send(LoadFailed(Failure("no", "try another")))
        return
    if mode == "deaf-in-load":
        time.sleep(1000)
    if mode == "slow-load":
        for part in range(5):
            pipe.send(Loading(part / 5))
            time.sleep(0.1)
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
