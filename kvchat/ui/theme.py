"""Colours. Owns the theme "ink"; must not know widgets. Every colour has at least 4.8:1 against the background."""

from __future__ import annotations

from textual.theme import Theme

# Colours of our own, for every theme: the dim text below an answer, and the border of what has no focus.
VARIABLES = {"meta": "#7982a9", "edge": "#3b4261"}

INK = Theme(
    name="ink",
    primary="#7aa2f7",
    secondary="#7aa2f7",
    accent="#bb9af7",
    success="#9ece6a",
    warning="#e0af68",
    error="#f7768e",
    foreground="#c0caf5",
    background="#16161e",
    surface="#1a1b26",
    panel="#24283b",
    dark=True,
    variables={
        "block-cursor-text-style": "none",
        "scrollbar": "#24283b",
        "scrollbar-background": "#16161e",
        "scrollbar-background-hover": "#16161e",
        "scrollbar-background-active": "#16161e",
        "scrollbar-corner-color": "#16161e",
    },
)
