"""A chat goes to a server and back in a real terminal, with the real engine of this machine."""

from __future__ import annotations

from itertools import repeat
from pathlib import Path

from scripted_server import Reply, ScriptedServer, saying, usage
from test_tmux import Terminal, is_ready


def test_there_and_back(home: Path, smollm2: Path) -> None:
    """What was computed here is back in memory when the chat is."""

    def endless(reply: Reply) -> None:
        reply.begin()
        reply.server.until_left(reply, repeat("word "))

    with ScriptedServer(saying("From afar.", usage=usage(60, 3, 40)), endless) as server:
        (home / "config.toml").write_text(f'[remote.lab]\nurl = "{server.url}"\n')
        terminal = Terminal(home)
        try:
            terminal.open("-m", "SmolLM2", "-n", "12", "--temp", "0")
            terminal.until(lambda screen: is_ready(screen) and "SmolLM2" in screen)
            terminal.keys("Tell me about the sea.", "Enter")
            terminal.until(lambda screen: "12 tokens" in screen and is_ready(screen))
            terminal.keys("/model lab", "Enter")
            terminal.until(lambda screen: f"○ {server.host}" in screen)
            terminal.keys("And the sky?", "Enter")
            terminal.until(
                lambda screen: "From afar." in screen and f"reused 40 of 60 from what {server.host}" in screen
            )
            terminal.keys("Go on.", "Enter")
            terminal.until_text("word word")
            terminal.keys("Escape")
            terminal.until_text("stopped: /continue goes on")
            assert server.left.wait(20)
            terminal.keys("/model SmolLM2", "Enter")
            terminal.until_text("47 tokens back from pages")
            terminal.keys("C-q")
            terminal.until_text("ended with 0")
        finally:
            terminal.close()
    assert server.seen[0].said[0] == ("user", "Tell me about the sea.")
