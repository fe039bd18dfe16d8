"""A model whose numbers are none: the turn says so, nothing of it is kept, and the engine lives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from asking import Asked, kept
from driver import Driver
from tiny import build

from kvchat.backend.local import Engine
from kvchat.backend.protocol import TurnFinished
from kvchat.backend.values import Sampling
from kvchat.commands.ask import run_ask
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.paths import Paths


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


def ask(paths: Paths, model: Path, *words: str, continue_last: bool) -> Asked:
    """`kvchat ask` with a real engine."""
    asked = Asked()
    asked.code = run_ask(
        words,
        Settings(
            model=str(model),
            threads=1,
            context=512,
            sampling=Sampling(temperature=0, max_tokens=4),
            given=frozenset({"model"}),
        ),
        paths,
        chat=None,
        continue_last=continue_last,
        resume=False,
        json=False,
        out=asked.out,
        err=asked.err,
        stdin=asked.stdin,
        engine_factory=lambda config, *more: Engine(replace(config, extra_buffers=False), *more),
    )
    return asked


def test_the_chat_goes_on_with_another_model(home: Path, tmp_path: Path) -> None:
    """The person is told, and keeps what was asked."""
    paths, broken = Paths.find({"KVCHAT_HOME": str(home)}), spoilt(tmp_path, float("nan"))
    with pytest.raises(KvchatError, match="no number") as caught:
        ask(paths, broken, "Hello?", continue_last=False)
    assert caught.value.hint
    assert [(message.text, message.finish) for message in kept(paths)] == [("Hello?", ""), ("", "error")]
    asked = ask(paths, build("llama", tmp_path), "And now?", continue_last=True)
    assert asked.code == 0
    assert asked.out.getvalue().strip()
    assert [message.text for message in kept(paths)][:3] == ["Hello?", "", "And now?"]
