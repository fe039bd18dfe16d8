"""One process of gpu_check.py: `gpu_check_run.py MODE SPEC.json OUT.npz`.

MODE "stay" reads a prompt in each cache type, saves it and goes on; "resume" goes on from what was saved, in another
process; "transcode" goes on in each other cache type from what was saved in f16. The logits after each of the last
tokens are written, float32 (tokens, vocabulary), with what was restored and how long things took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.llama_devices import build
from kvchat.engine.model import Model
from kvchat.engine.seat import Seat
from kvchat.formats.past import Past

Found = dict[str, Any]


def config_of(spec: dict[str, Any], folder: str, cache: str) -> EngineConfig:
    return EngineConfig(
        spec["model"],
        context=spec["context"],
        type_k=cache,  # type: ignore[arg-type]
        type_v=cache,  # type: ignore[arg-type]
        flash_attention="on",
        threads=spec["threads"],
        gpu_layers=spec["gpu_layers"],
        extra_buffers=False,
        kv_folder=folder,
        kv_budget=2**40,
    )


def decode(seat: Seat, tokens: list[int], start: int, end: int) -> float:
    """Compute tokens [start, end); seconds."""
    began = time.perf_counter()
    seat.context.decode(tokens[start:end], start, output=1)
    seat.context.native.synchronize()
    seconds = time.perf_counter() - began
    seat.cells.append(tokens[start:end], seconds)
    return seconds


def read(seat: Seat, tokens: list[int], end: int) -> float:
    """Read a prompt in the engine's steps, and save it; seconds of computing."""
    assert seat.saver is not None
    seat.reuser.prepare(Past([*tokens[:end], 0]), 0, keep=True)
    seat.saver.begin()
    seconds = 0.0
    while (start := len(seat.cells)) < end:
        seconds += decode(seat, tokens, start, min(end, start + seat.context.chunk))
        seat.saver.advance(len(seat.cells))
    seat.saver.finish()
    return seconds


def go_on(seat: Seat, tokens: list[int]) -> Iterator[tuple[npt.NDArray[np.float32], float]]:
    """The rest, token by token: logits, and seconds."""
    while (start := len(seat.cells)) < len(tokens):
        seconds = decode(seat, tokens, start, start + 1)
        yield seat.context.logits(), seconds


def one(mode: str, model: Model, spec: dict[str, Any], cache: str) -> Found:
    """What is found with one cache type."""
    tokens, prompt = spec["tokens"], spec["prompt"]
    # Each type has a folder of its own, so that no native pages go before those that are to be transcoded.
    source = "f16" if mode == "transcode" else cache
    seat = Seat(model, config_of(spec, str(Path(spec["folder"]) / source), cache), lambda: False)
    found: Found = {}
    if mode == "stay":
        found["read"] = read(seat, tokens, prompt)
    began = time.perf_counter()
    reuse = seat.reuser.prepare(Past([*tokens[:prompt], 0]), prompt, keep=True)
    found["restore"] = time.perf_counter() - began
    found["from"] = [reuse.resident, reuse.pages, reuse.transcoded_tokens]
    if len(seat.cells) < prompt:  # something is lost, and what follows is about other cells
        read(seat, tokens, prompt)
    logits, seconds = zip(*go_on(seat, tokens), strict=True)
    found["logits"], found["decode"] = np.array(logits), float(np.median(seconds[1:]))
    found["bytes"] = seat.context.held_bytes(prompt)
    seat.close()
    return found


def _log(text: str, *, error: bool) -> None:  # noqa: ARG001 (all of it goes to one file)
    sys.stderr.write(text)


def main() -> None:
    mode, spec, out = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    llama.start(_log)
    free = {device.name: device.free_bytes for device in build().devices if device.is_gpu}
    began = time.perf_counter()
    model = Model(config_of(spec, spec["folder"], "f16"), lambda _: True)
    found: Found = {"load": time.perf_counter() - began}
    taken = [free[device.name] - device.free_bytes for device in build().devices if device.name in free]
    found["vram"], found["weights"] = sum(taken), model.native.bytes
    for cache in spec["types"]:
        if mode == "transcode" and cache == "f16":
            continue
        found |= {f"{cache} {name}": value for name, value in one(mode, model, spec, cache).items()}
    model.native.close()
    np.savez(out, **{name: np.asarray(value) for name, value in found.items()})


if __name__ == "__main__":
    main()
