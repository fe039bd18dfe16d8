"""`kvchat bench show A.json` and `compare A.json B.json`: reports that were kept, again or side by side.

Owns the reading of their files; must not measure.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from kvchat.bench.compare import Comparison, compare
from kvchat.bench.report import Report, read_report, value_object
from kvchat.commands.bench_telling import free_name, tell, width
from kvchat.commands.bench_text import print_comparison
from kvchat.errors import FormatError, KvchatError, UsageError

_LARGEST = 16 << 20  # bytes of a report


def run_compare(files: Sequence[str], *, json: bool, out: TextIO) -> int:
    """Print how the second report is to the first. UsageError where there are not two, KvchatError (FormatError) for a
    file that is none."""
    if len(files) != 2:
        raise UsageError("kvchat bench compare takes two files", "kvchat bench compare A.json B.json")
    first, second = map(_read, files)
    found = compare(first, second)
    if json:
        print(jsonlib.dumps(_object(found), allow_nan=False), file=out)
    else:
        print_comparison(found, (files[0], files[1]), out, width())
    return 0


def run_show(files: Sequence[str], *, html: str | None, json: bool, out: TextIO) -> int:
    """Print a report as it was printed when it was made, with `html` as a page, too. Errors as in `run_compare`."""
    if len(files) != 1:
        raise UsageError("kvchat bench show takes one file", "kvchat bench show A.json")
    target = free_name(html)
    tell(_read(files[0]), target=target, json=json, out=out)
    return 0


def _read(name: str) -> Report:
    path = Path(name)
    try:
        if path.stat().st_size > _LARGEST:
            raise FormatError(f"{name} is too large for a report", "kvchat bench --json > FILE makes one")
        found = jsonlib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise KvchatError(f"{name} cannot be read: {error.strerror}", "kvchat bench --json > FILE makes one") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{name} is no report of kvchat bench", "kvchat bench --json > FILE makes one") from None
    try:
        return read_report(found)
    except FormatError as error:
        raise FormatError(f"{name}: {error.message}", error.hint) from None


def _object(found: Comparison) -> dict[str, Any]:
    return {
        "differences": [asdict(each) for each in found.differences],
        "results": [
            {
                "part": each.part,
                "row": each.row,
                "result": each.column.key,
                "first": value_object(each.first),
                "second": value_object(each.second),
                "ratio": each.ratio,
                "verdict": each.verdict,
            }
            for each in found.results
        ],
        "left_out": list(found.left_out),
    }
