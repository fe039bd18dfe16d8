"""One chat, another cache type and another model and back, in a real terminal with the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from test_tmux import Terminal, is_ready


@pytest.fixture
def terminal(home: Path, smollm2: Path) -> Iterator[Terminal]:
    (home / "models").mkdir()
    tiny.build("llama", home / "models")
    terminal = Terminal(home)
    terminal.open("-m", "SmolLM2", "-n", "12", "--temp", "0")
    terminal.until(lambda screen: is_ready(screen) and "SmolLM2" in screen)
    terminal.keys("Tell me about the sea.", "Enter")
    terminal.until(lambda screen: "12 tokens" in screen and is_ready(screen))
    yield terminal
    terminal.close()


def test_cache_type_and_back(terminal: Terminal) -> None:
    terminal.keys("F2")
    terminal.until_text("Applying changes nothing")
    terminal.keys("Right", "Right")  # K cache: f16, bf16, q8_0
    terminal.until_text("switches 47 tokens")  # told before it is done: all but the token that was sampled last
    terminal.keys("Escape")
    terminal.until(lambda screen: "─ Settings ─" not in screen)
    terminal.keys("/cache q8_0 q8_0", "Enter")
    terminal.until(lambda screen: " q8_0 " in screen.rpartition("╰")[2] and is_ready(screen))
    terminal.keys("And the sky?", "Enter")
    terminal.until(lambda screen: "f16 pages" in screen.rpartition("And the sky?")[2] and is_ready(screen))
    terminal.keys("/cache f16 f16", "Enter")
    terminal.until_text("74 tokens back from pages and q8_0 pages")
    terminal.keys("And the sun?", "Enter")
    terminal.until(lambda screen: "reused 74 of" in screen.rpartition("And the sun?")[2] and is_ready(screen))
    assert "cut:" not in terminal.screen()


def test_another_model_and_back(terminal: Terminal) -> None:
    terminal.keys("/model llama", "Enter")
    terminal.until(lambda screen: "○ llama" in screen)
    terminal.keys("And the sky?", "Enter")
    terminal.until(lambda screen: "And the sky?" in screen and screen.count("12 tokens") >= 2 and is_ready(screen))
    terminal.keys("/model SmolLM2", "Enter")
    terminal.until(lambda screen: "○ SmolLM2" in screen and "47 tokens" in screen)
    terminal.keys("C-q")
    terminal.until_text("ended with 0")
