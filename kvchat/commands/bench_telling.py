"""The forms of a benchmark's report, and where they go: lines or JSON on stdout, a page in a new file.

Owns that choice.
"""

from __future__ import annotations

import json as jsonlib
import os
import shutil
from pathlib import Path
from typing import TextIO

from kvchat.bench.report import Report, report_object
from kvchat.chats.export import write_new
from kvchat.commands.bench_html import page
from kvchat.commands.bench_text import print_report
from kvchat.errors import UsageError

_NARROWEST, _USUAL_WIDTH = 60, 100  # cells; the latter where stdout is no terminal


def tell(report: Report, *, target: Path | None, json: bool, out: TextIO) -> None:
    """Print it, with `json` as one object, and make a page of it where there is a `target`."""
    if target is not None:
        write_new(page(report), target)
    if json:
        print(jsonlib.dumps(report_object(report), allow_nan=False), file=out)
    else:
        print_report(report, out, width())


def width() -> int:
    """Cells of a line."""
    return max(_NARROWEST, shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns)


def free_name(name: str | None) -> Path | None:
    """Where a page goes, before an hour is spent on it. UsageError: it cannot be there."""
    if name is None:
        return None
    path = Path(name)
    if os.path.lexists(path):
        raise UsageError(f"{name} is there already", "choose another name for --html, or remove it")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"nothing can be written in {path.parent}", "choose another place for --html")
    return path
