"""A model whose numbers are none: the turn says so, nothing of it is kept, and the engine lives."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from driver import Driver
from tiny import build

from kvchat.backend.protocol import TurnFinished
from kvchat.backend.values import Sampling


def spoilt(folder: Path, value: float) -> Path:
    """A tiny model with one tensor full of a value that no weight has."""
    model = build("llama", folder)
    raw = bytearray(model.read_bytes())
    (norm,) = (tensor for tensor in gguf.GGUFReader(model).tensors if tensor.name == "output_norm.weight")
    size = norm.data.nbytes
    raw[norm.data_offset : norm.data_offset + size] = np.full(size // 4, value, np.float32).tobytes()
    made = folder / "spoilt.gguf"
    made.write_bytes(raw)
    return made


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_answer_that_cannot_be_drawn(tmp_path: Path, value: float, temperature: float) -> None:
    chat = Driver.start(tmp_path, spoilt(tmp_path, value), context=512)
    try:
        chat.ready()
        pid = chat.engine.pid
        for _ in range(2):
            finished = chat.ask("Hello. " * 60, sampling=Sampling(temperature=temperature, max_tokens=8)).finished
            chat.messages.clear()
            assert isinstance(finished, TurnFinished)
            assert finished.reason == "error"
            assert finished.failure is not None
            assert "no number" in finished.failure.message
            assert finished.usage.reused == 0  # what was computed is no past
        assert chat.engine.pid == pid
    finally:
        chat.engine.close()
    assert not [path for path in tmp_path.glob("kv/pages/*/*/*") if len(path.name) == 64]
