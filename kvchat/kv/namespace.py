"""What must be equal for saved keys and values to be valid, and the key at which all chains begin.

Owns `Namespace`; must not read models or folders. State of another namespace is a miss, never an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from kvchat.errors import FormatError
from kvchat.formats.page import VERSION, digest

Scalar = str | int | float | bool

_TEXTS = ("fingerprint", "model", "lora", "type_k", "type_v", "backend_version")


@dataclass(frozen=True, slots=True)
class Namespace:
    """One model in one configuration.

    `fingerprint` of the GGUF; `model` is its name, a label that takes no part in the key; `lora` with its scale, empty
    without one; `rope` the effective parameters with the choice of long or short factors, as (name, value);
    `type_k` and `type_v` by llama.cpp's names; `rotation` whether llama.cpp rotates quantized rows;
    `backend_version` of llama-cpp-python.
    """

    fingerprint: str
    model: str
    lora: str
    rope: tuple[tuple[str, Scalar], ...]
    type_k: str
    type_v: str
    rotation: bool
    backend_version: str
    page_version: int = VERSION

    @property
    def root(self) -> bytes:
        """The key (32 bytes) of the empty history."""
        fields = asdict(self)
        del fields["model"]
        fields["rope"] = sorted(self.rope)
        return digest(b"namespace", json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())

    @property
    def id(self) -> str:
        """Name of the folder of its pages: 16 hex digits."""
        return self.root.hex()[:16]

    def alike(self, other: Namespace) -> bool:
        """Whether the state of both is that of one computation, stored in whatever cache types."""
        return self._without_types() == other._without_types()

    def _without_types(self) -> Namespace:
        return replace(self, model="", rope=tuple(sorted(self.rope)), type_k="", type_v="", rotation=False)

    def dumps(self) -> str:
        """JSON that spells everything out, for `namespace.json`."""
        return json.dumps(asdict(self) | {"rope": dict(self.rope)}, indent=2) + "\n"


def loads(text: str | bytes) -> Namespace:
    """Read `namespace.json`. Raises FormatError."""
    try:
        fields = json.loads(text)
        namespace = Namespace(**(fields | {"rope": tuple(fields["rope"].items())}))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"namespace.json is malformed: {error!r}") from None
    texts = (getattr(namespace, name) for name in _TEXTS)
    scalars = (value for _, value in namespace.rope)
    if (
        not all(isinstance(value, str) for value in texts)
        or not all(isinstance(value, Scalar) for value in scalars)
        or type(namespace.rotation) is not bool
        or type(namespace.page_version) is not int
    ):
        raise FormatError("namespace.json has a field of the wrong type")
    return namespace
