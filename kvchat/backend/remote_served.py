"""What a server serves: which model is meant, which program it is, how long its context is. Owns the reading of its
list of models; must not send anything but the question for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvchat.backend.choices import Remote
from kvchat.backend.remote_request import PROGRAMS, left_out
from kvchat.backend.remote_wire import Refused, Wire
from kvchat.clean import clean_line
from kvchat.config_values import nearest
from kvchat.errors import KvchatError
from kvchat.formats.gguf import model_name

_MOST_NAMES = 8
_LONGEST_NAME = 120
_LARGEST_CONTEXT = 1 << 31
_WITHOUT_LIST = (404, 405, 501)  # what those answer that have none


@dataclass(frozen=True, slots=True)
class Served:
    """`model` by the server's name for it, `program` "" for one that is not known, `context` in tokens, 0: not told."""

    model: str
    program: str
    context: int

    @property
    def name(self) -> str:
        """What people call the model: llama-server names a file by its whole path."""
        name = model_name(Path(self.model)) if self.model.lower().endswith(".gguf") else self.model
        return clean_line(name)[:_LONGEST_NAME]

    def notes(self, remote: Remote) -> tuple[str, ...]:
        """Sentences for the person: where the text goes, and what has no effect there."""
        program = f" ({self.program})" if self.program else ""
        bare = ", without encryption" if remote.bare else ""
        where = f"text leaves this machine: {remote.host}{program} reads it{bare}"
        here = f"{remote.host}{program} answers, on this machine"
        return tuple(filter(None, (where if remote.leaves else here, left_out(self.program))))


async def served(wire: Wire, remote: Remote) -> Served:
    """Ask. KvchatError: it cannot be reached, or has no such model, or several and nobody said which."""
    try:
        models = await wire.models()
    except Refused as refused:
        if refused.status not in _WITHOUT_LIST or not remote.model:
            raise
        return Served(remote.model, "", 0)
    found = _meant(models, remote)
    return Served(found["id"], PROGRAMS.get(str(found.get("owned_by")), ""), _context(found))


def _meant(models: Sequence[Mapping[str, Any]], remote: Remote) -> Mapping[str, Any]:
    names = [model["id"] for model in models]
    if not models:
        raise KvchatError(f"{remote.host} serves no model", "load one there")
    if not remote.model and len(models) == 1:
        return models[0]
    wanted = (remote.model, f"{remote.model}:latest")
    found = next((model for model in models if remote.model and model["id"] in wanted), None)
    if found is not None:
        return found
    listed = ", ".join(clean_line(name)[:_LONGEST_NAME] for name in names[:_MOST_NAMES])
    listed += ", ..." if len(names) > _MOST_NAMES else ""
    if not remote.model:
        hint = f"name one, -m NAME or model = in [remote.NAME]: {listed}"
        raise KvchatError(f"{remote.host} serves {len(models)} models", hint)
    guess = nearest(remote.model, names)
    hint = f"did you mean {clean_line(guess)[:_LONGEST_NAME]}?" if guess else f"there are: {listed}"
    raise KvchatError(f"{remote.host} serves no model {remote.model}", hint)


def _context(model: Mapping[str, Any]) -> int:
    """That of llama-server stands in `meta`, that of vLLM and SGLang beside the name."""
    meta = model.get("meta")
    told = meta.get("n_ctx") if isinstance(meta, dict) else model.get("max_model_len")
    good = isinstance(told, int) and not isinstance(told, bool) and 0 < told < _LARGEST_CONTEXT
    return int(told) if good and told is not None else 0
