"""What the header of a model file says, for the screens that offer models. Owns the thread that reads headers.

Must not know widgets: what was read goes to a function that the screen gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvchat.backend.values import CacheType
from kvchat.errors import KvchatError
from kvchat.kv.fit import automatic_context, cache_bytes
from kvchat.kv.geometry import Geometry, geometry
from kvchat.library.find import ModelFile, check


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`geometry` is None exactly when the model cannot be run; `problem` then says why. Names and problems come from
    the file: they are cleaned where they are shown."""

    model: ModelFile
    geometry: Geometry | None
    quantization: str
    problem: str = ""


def read_facts(model: ModelFile) -> ModelFacts:
    """Read the header; what is wrong with the file is told in `problem`."""
    try:
        header = check(model)
        return ModelFacts(model, geometry(header), header.quantization)
    except KvchatError as error:
        return ModelFacts(model, None, "", error.message)


def needed_bytes(facts: ModelFacts, type_k: CacheType, type_v: CacheType, free: int | None) -> int:
    """Bytes for the weights and the cache at the automatic context size; with an f16 cache where the model cannot have
    these types. Only the weights of a model that cannot be run."""
    shape = facts.geometry
    if shape is None:
        return facts.model.size
    if shape.refusal(type_k, type_v, "auto") is not None:
        type_k = type_v = "f16"
    return facts.model.size + cache_bytes(shape, type_k, type_v, automatic_context(shape, type_k, type_v, free))


class FactsReader:
    """Reads headers one after the other on a thread of its own, which the end of the program does not wait for.

    `post` is called on that thread and must only hand over.
    """

    def __init__(self, models: Sequence[ModelFile], post: Callable[[ModelFacts], object]) -> None:
        self._models = tuple(models)
        self._post = post
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._read, name="model headers", daemon=True).start()

    def stop(self) -> None:
        """Nothing is handed over any more, but for what is on its way."""
        self._stopped.set()

    def _read(self) -> None:
        for model in self._models:
            if self._stopped.is_set():
                return
            facts = read_facts(model)
            if not self._stopped.is_set():
                self._post(facts)
