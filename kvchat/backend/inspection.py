"""What can be told of a model, and of this build of llama.cpp, without loading weights: the values that say it.

Frozen and plain, as in `values`. All texts come from files and drivers: they are cleaned where they are shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """Tell about a model file, or with "" about the build alone. Answered by Looked, or by a Failure."""

    model_path: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a backend ("CUDA0" of "CUDA"). `kind`: CPU, GPU, integrated GPU, accelerator, group, other. A device
    that does not tell its memory says 0."""

    name: str
    backend: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int

    @property
    def is_gpu(self) -> bool:
        """Whether layers of a model can lie there."""
        return self.kind in ("GPU", "integrated GPU")


@dataclass(frozen=True, slots=True)
class Build:
    """The installed llama.cpp. `features`: its own line about the kernels it was built with. `offloads`: layers can go
    to a GPU; `most_devices` to so many."""

    devices: tuple[Device, ...]
    features: str
    offloads: bool
    most_devices: int
    mmap: bool
    mlock: bool


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """`role` as llama.cpp has it: "BOS", "end of turn", ...; several can be the same token."""

    role: str
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`ends`: ids of all tokens that end an answer, with their texts. `adds_bos`, `adds_eos`: to every prompt."""

    kind: str
    size: int
    special: tuple[SpecialToken, ...]
    ends: tuple[tuple[int, str], ...]
    adds_bos: bool
    adds_eos: bool


@dataclass(frozen=True, slots=True)
class Example:
    """A short conversation as the model reads it. `template`: "GGUF" or the name of the fallback, `note`: why it is not
    the file's own. `system_role`: it takes a system message; without, none is in the example."""

    template: str
    text: str
    tokens: int
    system_role: bool
    note: str | None


@dataclass(frozen=True, slots=True)
class Looked:
    """`vocabulary`, `example`: of the model, None without one. `problem`: why they cannot be told."""

    build: Build
    vocabulary: Vocabulary | None = None
    example: Example | None = None
    problem: str | None = None
