"""The folder in which a benchmark has its store: beside the person's, so that the same disk is measured, and gone
afterwards. Owns its making and removal, also of those that a killed process left.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvchat.errors import KvchatError
from kvchat.leftovers import is_alive
from kvchat.paths import Paths, ensure_private

_NAME = re.compile(r"bench-(\d+)-\w+")


@contextmanager
def scratch(paths: Paths) -> Iterator[Path]:
    """An empty folder (0700) until the end. KvchatError when there can be none."""
    beside = ensure_private(paths.kv_folder.parent)
    _sweep(beside)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{os.getpid()}-", dir=beside))
    except OSError as error:
        raise KvchatError(f"no folder can be made in {beside}: {error.strerror}", "make room there") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(beside: Path) -> None:
    """Remove what processes left that are no more."""
    for folder in beside.glob("bench-*"):
        found = _NAME.fullmatch(folder.name)
        if found is not None and folder.is_dir() and not folder.is_symlink() and not is_alive(int(found[1])):
            shutil.rmtree(folder, ignore_errors=True)
