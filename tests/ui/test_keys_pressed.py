"""Whatever is pressed, the app goes on: the short form of `benchmarks/keys.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from key_player import Player


@pytest.mark.parametrize("seed", [3])
async def test_no_keys_end_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setenv("VISUAL", "true")
    player = Player(seed)
    await player.play(home, 60)
    assert len(player.acts) >= 60
    assert (home / "chats.db").exists()
