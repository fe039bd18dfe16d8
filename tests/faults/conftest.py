from __future__ import annotations

from pathlib import Path

import pytest
from kv_pages import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "kv")
