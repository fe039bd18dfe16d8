"""The words of the command line for chats, sampling and the screen.

Owns these flags and their help; their values are read by config_options.
"""

from __future__ import annotations

import argparse
from typing import Any


def add_chat_flags(parser: argparse.ArgumentParser) -> None:
    """What a chat is told, how its answers are drawn, what is kept of it."""
    group = parser.add_argument_group("chat and sampling")
    group.add_argument("-s", "--system", metavar="TEXT", help="system prompt")
    group.add_argument("--history", metavar="append|exact", help="keep what was rendered, or render it all each turn")
    words = "what drafts ahead: ngram (earlier text), model (the draft model), auto (both), off"
    group.add_argument("--draft", metavar="auto|ngram|model|off", help=words)
    words = "when the context is full: stop, or let the oldest turns go (shift), all but first and last (sinks),"
    words = f"{words} what attracts the least attention (prune), or sum the oldest up (summarize)"
    group.add_argument("--overflow", metavar="stop|shift|sinks|prune|summarize", help=words)
    group.add_argument("-n", "--predict", metavar="N", help="longest answer in tokens, -1 for no limit")
    group.add_argument(
        "--seed", metavar="N", help="where drawing begins, for the same answer again; -1 draws another each time"
    )
    group.add_argument("--temp", metavar="X", help="temperature; 0 always takes the likeliest token")
    group.add_argument("--top-k", metavar="N", help="draw from so many of the likeliest tokens; 0 is off")
    group.add_argument("--top-p", metavar="P", help="draw from the likeliest that make up this share; 1 is off")
    group.add_argument(
        "--min-p", metavar="P", help="leave out what is less likely than this share of the likeliest; 0 is off"
    )
    group.add_argument("--repeat-penalty", metavar="X", help="makes what was said less likely; 1 is off")
    group.add_argument("--repeat-last-n", metavar="N", help="tokens that count for the penalty")
    group.add_argument("--stop", metavar="TEXT", action="append", help="end the answer before this text; repeatable")
    group.add_argument("--fit", metavar="ask|off", help="whether to ask before loading what does not fit")
    words = "keep chat, drafts and KV in memory alone, and look at none of those on disk"
    group.add_argument("--incognito", action="store_true", help=words)
    group.add_argument("--no-kv", dest="kv", action="store_false", help="compute everything, reuse and save nothing")
    group.add_argument("--kv-budget", metavar="SIZE", help="most that the KV state may take on disk, such as 8GiB")
    words = "cache type in which it is saved where that takes less room, such as q8_0; same: as it is in memory"
    group.add_argument("--kv-type-disk", metavar="TYPE", help=words)
    add_offline(group)


def add_screen_flags(parser: argparse.ArgumentParser) -> None:
    """How the app looks, and what it does while one writes."""
    group = parser.add_argument_group("screen")
    group.add_argument("--plain", action="store_true", help="lines instead of a screen: screen readers, pipes")
    group.add_argument("--theme", metavar="NAME", help="colours: auto, ink, paper, contrast, or one that /theme lists")
    words = "read a message when it is sent, not while it is written"
    group.add_argument("--no-read-ahead", dest="read_ahead", action="store_false", help=words)


def add_offline(group: Any) -> None:
    """The word that keeps everything off the network."""
    group.add_argument("--offline", action="store_true", help="fetch nothing from the network")
