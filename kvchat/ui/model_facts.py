"""What the header of a model file says, for the screens that offer models. Owns the thread that reads headers.

Must not know widgets: what was read goes to a function that the screen gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvchat.backend.choices import Remote
from kvchat.errors import KvchatError
from kvchat.kv.compute import workload
from kvchat.kv.geometry import Geometry, geometry
from kvchat.kv.needs import Subject, subject
from kvchat.library.find import ModelFile, check, files_of_model, name_of


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`subject` is None exactly when the model cannot be run here; `problem` then says why. Names and problems come
    from the file: they are cleaned where they are shown. `remote`: no file, but a server that runs it."""

    model: ModelFile
    subject: Subject | None
    problem: str = ""
    remote: Remote | None = None

    @property
    def geometry(self) -> Geometry | None:
        """The shape of its cache."""
        return self.subject.geometry if self.subject is not None else None


def model_at(path: Path, models: Sequence[ModelFile]) -> ModelFile:
    """The model with this path; one that is not among `models` has no size yet."""
    return next((model for model in models if model.path == path), ModelFile(name_of(path), path, 0, "path"))


def read_facts(model: ModelFile) -> ModelFacts:
    """Read the header; what is wrong with the file is told in `problem`."""
    try:
        header = check(model)
        files = files_of_model(model, header)
        if not model.size:
            model = replace(model, size=sum(file.stat().st_size for file in files))
        if len(files) > 1:
            return ModelFacts(model, subject(model.name, files, model.size))
        shape = geometry(header)  # a header with a long vocabulary is not read twice
        return ModelFacts(model, Subject(model.name, header, shape, model.size, workload(header, shape)))
    except KvchatError as error:
        return ModelFacts(model, None, error.message)
    except OSError as error:
        return ModelFacts(model, None, str(error))


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
