"""What the tests of the real engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driver import Driver


@pytest.fixture(autouse=True)
def by_fork(request: pytest.FixtureRequest) -> None:
    """Except those of module fixtures, and of tests that are marked."""
    if request.node.get_closest_marker("as_program") is None:
        request.getfixturevalue("engines_by_fork")


@pytest.fixture
def start(tmp_path: Path, smollm2: Path) -> Iterator[Callable[..., Driver]]:
    """Starts engines that share one home, on the built-in model or another one; they are closed at the end."""
    drivers: list[Driver] = []

    def start(model: Path = smollm2, **config: object) -> Driver:
        drivers.append(Driver.start(tmp_path, model, **config))
        drivers[-1].ready()
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.engine.close()
