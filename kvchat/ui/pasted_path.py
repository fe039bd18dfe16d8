"""The path that a pasted or dropped text means. Pure; must not look at the disk.

Terminals put a dropped file as text: quoted, with backslashes before what a shell would take for its own, or as a URL.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

_QUOTED = re.compile(r"""(['"])(.*)\1""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def pasted_path(text: str) -> str:
    """The path or name that is meant by `text`, without the quoting of a shell and without a `file:` in front."""
    text = text.strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return quoted[2]
    if text.lower().startswith("file:"):
        return unquote(urlsplit(text).path)
    return _ESCAPED.sub(r"\1", text)
