"""What the processes that compute are started with."""

from __future__ import annotations

import os

import pytest

from kvchat.backend.environment import environment


def test_products_of_matrices_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert environment() == {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def test_what_a_person_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    assert environment() == dict(os.environ)
