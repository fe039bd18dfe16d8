"""Whether this machine keeps kvchat's promises: exact resume, cache types, transcoding, speed. See gpu_check.sh.

    python benchmarks/gpu_check.py [--cpu] [--tiny] [--resume-only] [--keep FOLDER]

Makes a model with random weights, in the shape of Llama 3.1 8B, reads a prompt, saves it, and goes on from what was
saved in another process. On a GPU all layers are there. Prints what was found, and ends with 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from random_model import LLAMA_8B, TINY, write

from kvchat.backend.errands import look
from kvchat.backend.inspection import Build, Look
from kvchat.machine import physical_cores, processor

CHILD = Path(__file__).with_name("gpu_check_run.py")
PROMPT, PROMPT_TINY = 2000, 300
LAST = 24  # tokens after the restore whose logits are compared
TYPES = ("f16", "bf16", "q8_0", "q4_0")
CLOSE = 0.02  # by so much less than f16 and native ones, logits of transcoded and native ones may correlate
SLOW = 0.5  # of the decode speed with f16: then attention does not run where it should
ON_GPU = 0.9  # of the weights' bytes that the memory of GPUs must lose

Found = dict[str, Any]


@dataclass
class Report:
    """What was found so far."""

    broken: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def say(self, words: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f} s] {words}", flush=True)

    def check(self, holds: bool, words: str) -> None:
        self.say(f"{'ok    ' if holds else 'BROKEN'} {words}")
        if not holds:
            self.broken.append(words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="without a GPU: whether the check itself works")
    parser.add_argument("--tiny", action="store_true", help="a tiny model")
    parser.add_argument("--resume-only", action="store_true", help="exact resume with an f16 cache, and nothing else")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the model is made, and stays")
    given = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="kvchat-check-") as temporary:
        folder = Path(temporary)
        if not check_build(look(Look(), folder / "look.log").build, given.cpu, report):
            return 1
        model = make_model(given.keep or folder, given.tiny, report)
        spec = {
            "model": str(model),
            "folder": str(folder / "kv"),
            "context": 1024 if given.tiny else 4096,
            "threads": 1 if given.tiny else physical_cores(),
            "gpu_layers": 0 if given.cpu else -1,
            "prompt": PROMPT_TINY if given.tiny else PROMPT,
            "types": TYPES[:1] if given.resume_only else TYPES,
        }
        size = (TINY if given.tiny else LLAMA_8B).vocabulary
        spec["tokens"] = np.random.default_rng(5).integers(3, size, spec["prompt"] + LAST).tolist()
        examine(spec, folder, report, gpu=not given.cpu, resume_only=given.resume_only)
    report.say(f"broken: {'; '.join(report.broken)}" if report.broken else "all promises hold")
    return int(bool(report.broken))


def check_build(build: Build, cpu: bool, report: Report) -> bool:
    """Say what is there; whether it is enough to go on."""
    report.say(f"{processor()}, {physical_cores()} cores")
    for device in build.devices:
        report.say(f"{device.name} of {device.backend}: {device.description}, {device.total_bytes / 2**30:.1f} GiB")
    if cpu or any(device.is_gpu for device in build.devices):
        return True
    report.check(False, "llama.cpp finds no GPU: was it built for one, is the driver there?")
    return False


def make_model(folder: Path, tiny: bool, report: Report) -> Path:
    path = folder / f"random-{'tiny' if tiny else '8b'}-q4_0.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(path.with_suffix(".part"), TINY if tiny else LLAMA_8B).rename(path)
    report.say(f"{path.name}: {path.stat().st_size / 2**30:.2f} GiB of random weights")
    return path


def run(mode: str, spec: dict[str, Any], folder: Path) -> Found:
    """One process. SystemExit with its last words when it fails."""
    out, log = folder / f"{mode}.npz", folder / f"{mode}.log"
    (folder / "spec.json").write_text(json.dumps(spec))
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, CHILD, mode, folder / "spec.json", out], check=False, stdout=stream, stderr=stream
        )
    if done.returncode:
        words = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"BROKEN: the process {mode!r} ended with {done.returncode}\n{words}")
    with np.load(out) as found:
        return dict(found)


def examine(spec: dict[str, Any], folder: Path, report: Report, *, gpu: bool, resume_only: bool) -> None:
    stay = run("stay", spec, folder)
    report.say(f"loaded in {stay['load']:.1f} s, {stay['weights'] / 2**30:.2f} GiB of weights")
    if gpu:
        taken = float(stay["vram"])
        report.check(taken > ON_GPU * stay["weights"], f"weights are on the GPU: {taken / 2**30:.2f} GiB of its memory")
    resumed = run("resume", spec, folder)
    for cache in spec["types"]:
        check_resume(cache, stay, resumed, spec["prompt"], report)
    if resume_only:
        return
    for cache in spec["types"]:
        speed(cache, stay, resumed, spec["prompt"], report)
    for cache in spec["types"][1:] if gpu else ():
        ratio = float(stay["f16 decode"] / stay[f"{cache} decode"])
        report.check(ratio > SLOW, f"{cache}: decodes at {ratio:.2f} of the speed with f16")
    transcoded = run("transcode", spec, folder)
    for cache in spec["types"][1:]:
        check_transcoded(cache, stay, transcoded, spec["prompt"], report)


def check_resume(cache: str, stay: Found, resumed: Found, prompt: int, report: Report) -> None:
    """All of the prompt comes from pages, and the logits after each further token are the same bits."""
    pages = int(resumed[f"{cache} from"][1])
    report.check(pages == prompt, f"{cache}: {pages:,} of {prompt:,} tokens come from pages in another process")
    a, b = stay[f"{cache} logits"], resumed[f"{cache} logits"]
    same = np.array_equal(a.view(np.uint32), b.view(np.uint32))
    farthest = float(np.abs(a - b).max())
    finite = bool(np.isfinite(a).all()) and float(a.std()) > 0
    words = f"logits after {len(a)} further tokens are equal bit for bit"
    report.check(same and finite, f"{cache}: {words}" + ("" if same else f"; no, the farthest is {farthest:.3g} off"))


def speed(cache: str, stay: Found, resumed: Found, prompt: int, report: Report) -> None:
    restore, size = float(resumed[f"{cache} restore"]), float(resumed[f"{cache} bytes"])
    report.say(
        f"       {cache}: reads {prompt / stay[f'{cache} read']:,.0f} tokens/s, "
        f"decodes {1 / stay[f'{cache} decode']:,.1f} tokens/s at depth {prompt:,}, "
        f"restores {size / 2**20:,.0f} MiB in {restore:.3f} s ({size / restore / 1e9:.2f} GB/s)"
    )


def check_transcoded(cache: str, stay: Found, transcoded: Found, prompt: int, report: Report) -> None:
    """Pages of f16 serve a context of another type, and its logits are about those of native keys and values."""
    tokens = int(transcoded[f"{cache} from"][2])
    report.check(
        tokens == prompt, f"f16 to {cache}: {tokens:,} of {prompt:,} tokens are transcoded, none is read again"
    )
    native = stay[f"{cache} logits"]
    alike, usual = correlation(native, transcoded[f"{cache} logits"]), correlation(native, stay["f16 logits"])
    words = f"logits correlate by {alike:.4f} with native ones, which do by {usual:.4f} with those of f16"
    report.check(alike > usual - CLOSE, f"f16 to {cache}: {words}")


def correlation(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """Of all logits but those of the control tokens, which are always 0. With another prompt it is about 0."""
    return float(np.corrcoef(a[:, 3:].ravel(), b[:, 3:].ravel())[0, 1])


if __name__ == "__main__":
    sys.exit(main())
