"""What the tests of the real engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driver import Driver

PROGRAMS = {"test_engine_process"}  # modules whose engines are started as the app starts them


@pytest.fixture(autouse=True)
def by_fork(request: pytest.FixtureRequest) -> None:
    """Except those of module fixtures."""
    if request.module.__name__ not in PROGRAMS:
        request.getfixturevalue("engines_by_fork")


@pytest.fixture
def start(tmp_path: Path, smollm2: Path) -> Iterator[Callable[..., Driver]]:
    """Starts engines on the built-in model that share one home; they are closed at the end."""
    drivers: list[Driver] = []

    def start(**config: object) -> Driver:
        drivers.append(Driver.start(tmp_path, smollm2, **config))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()
