"""How a program that is measured talks to the harness: a line of JSON for each command and each event.

The end of a worker. Standard library alone: it also runs in an environment without kvchat. Must not measure: when an
event comes is seen by the harness, for every program in the same way.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


class Wire:
    """stdin and stdout of this process. What anything else prints goes to stderr."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def tell(self, event: str, **fields: Any) -> None:
        """One event, out at once."""
        self._out.write(json.dumps({"event": event, **fields}) + "\n")
        self._out.flush()

    def commands(self) -> Iterator[dict[str, Any]]:
        """What the harness asks for, until it closes the pipe."""
        for line in sys.stdin:
            yield json.loads(line)


def setup() -> dict[str, Any]:
    """What the worker was started with: the only argument."""
    found = json.loads(sys.argv[1])
    assert isinstance(found, dict)
    return found
