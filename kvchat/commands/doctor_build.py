"""The part of `kvchat doctor` about the installed llama.cpp: its devices, their memory, what it was built with.

Owns the words; asks a process of its own, since a driver that breaks must not take the report along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kvchat.backend.inspection import Build, Device, Look, Looked
from kvchat.commands.table import size_text
from kvchat.errors import KvchatError

Ask = Callable[[Look, Path], Looked]
_RECIPES = "docs/running.md of the source says how to build for CUDA, Metal, Vulkan and ROCm"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """`build` None: nothing was told, and `problem` says why."""

    build: Build | None
    problem: str = ""

    @property
    def fields(self) -> dict[str, object]:
        """For JSON."""
        devices = [asdict(device) | {"gpu": device.is_gpu} for device in self.build.devices] if self.build else []
        return {
            "devices": devices,
            "features": _features(self.build) if self.build else [],
            "gpu_offload": self.build.offloads if self.build else None,
            "mmap": self.build.mmap if self.build else None,
            "mlock": self.build.mlock if self.build else None,
            "problem": self.problem or None,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Label and words; a label can come several times."""
        if self.build is None:
            yield "build", f"PROBLEM: {self.problem}"
            return
        features = _features(self.build)
        yield "build", ", ".join(features) if features else "llama.cpp says nothing about it"
        for device in self.build.devices:
            yield "device", _words(device)
        gpus = sum(device.is_gpu for device in self.build.devices)
        if gpus:
            yield "GPUs", f"layers of a model go there (-ngl), also the cache; {gpus} found"
        elif self.build.offloads:
            yield "GPUs", "this build can use GPUs, and finds none: is the driver there?"
        else:
            yield "GPUs", f"this build uses none; {_RECIPES}"


def ask_build(ask: Ask, log_file: Path) -> BuildReport:
    """What llama.cpp says of itself, or why it does not."""
    try:
        return BuildReport(ask(Look(), log_file).build)
    except KvchatError as error:
        return BuildReport(None, error.message)
    except OSError as error:  # the log cannot be written
        return BuildReport(None, str(error))


def _words(device: Device) -> str:
    memory = ""
    if device.total_bytes:
        memory = f", {size_text(device.total_bytes)}"
    if device.total_bytes and device.kind != "CPU":  # of which ggml calls all memory free
        memory += f", {size_text(device.free_bytes)} free"
    backend = f" of {device.backend}" if device.backend != device.name else ""
    return f"{device.name}{backend}, {device.kind}: {device.description}{memory}"


def _features(build: Build) -> list[str]:
    """ "CPU : SSE3 = 1 | AVX = 1 | CUDA : ARCHS = 900 | ..." as one word each; what is off is left out."""
    found, backend = [], ""
    for part in build.features.split("|"):
        head, colon, rest = part.partition(" : ")
        if colon:
            backend = head.strip()
        name, _, value = (rest if colon else part).partition("=")
        name, value = name.strip(), value.strip()
        if not name or value == "0":
            continue
        said = name if value in ("", "1") else f"{name} {value}"
        found.append(said if backend in ("", "CPU") else f"{backend} {said}")
    return found
