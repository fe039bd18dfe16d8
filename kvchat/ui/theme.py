"""Colours. Owns the themes of kvchat and what it adds to those of others; must not know widgets.

Every text colour of ink and paper has at least 4.5:1 against each background, of contrast at least 6.5:1. Bare has no
colour at all: what it shows is told by glyphs, bold and reverse.
"""

from __future__ import annotations

from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

# Colours of our own: the dim text below an answer, and the border of what has no focus.
VARIABLES = {"meta": "#8991b8", "edge": "#3b4261"}
_NO_COLOR = "ansi_default"
LEGIBLE = 4.5  # least contrast of a text


def _scrollbar(handle: str, groove: str) -> dict[str, str]:
    grooves = ("background", "background-hover", "background-active", "corner-color")
    return {"scrollbar": handle, **{f"scrollbar-{name}": groove for name in grooves}}


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
    variables={"block-cursor-text-style": "none", **_scrollbar("#24283b", "#16161e"), **VARIABLES},
)
PAPER = Theme(
    name="paper",
    primary="#1f4fae",
    secondary="#1f4fae",
    accent="#7a35a8",
    success="#2c661c",
    warning="#7d4b00",
    error="#ac1f37",
    foreground="#24262e",
    background="#faf9f5",
    surface="#f1f0ea",
    panel="#dad7cb",
    dark=False,
    variables={
        "block-cursor-text-style": "none",
        **_scrollbar("#c9c6ba", "#faf9f5"),
        "meta": "#525666",
        "edge": "#b4b1a4",
    },
)
CONTRAST = Theme(
    name="contrast",
    primary="#8fc7ff",
    secondary="#8fc7ff",
    accent="#f2b8ff",
    success="#8df08d",
    warning="#ffd75f",
    error="#ff9d9d",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#303030",
    dark=True,
    variables={
        "block-cursor-text-style": "bold",
        **_scrollbar("#b0b0b0", "#000000"),
        "meta": "#d6d6d6",
        "edge": "#a0a0a0",
    },
)
BARE = Theme(
    name="bare",
    primary=_NO_COLOR,
    foreground=_NO_COLOR,
    background=_NO_COLOR,
    surface=_NO_COLOR,
    panel=_NO_COLOR,
    boost=_NO_COLOR,
    ansi=True,
    variables={**dict.fromkeys(BUILTIN_THEMES["ansi-dark"].variables, _NO_COLOR), "meta": _NO_COLOR, "edge": _NO_COLOR}
    | {"input-cursor-text-style": "reverse"},
)
OWN = (INK, PAPER, CONTRAST)


def variables(theme: Theme) -> dict[str, str]:
    """Our own colours in a theme that does not name them: as dim as can still be read on all of its backgrounds."""
    if theme.ansi:
        return {"meta": _NO_COLOR, "edge": "ansi_bright_black"}
    colors = theme.to_color_system().generate()
    foreground = Color.parse(colors["foreground"])
    grounds = [Color.parse(colors[name]) for name in ("background", "surface", "panel")]
    meta = foreground
    for part in range(1, 8):
        dimmer = foreground.blend(grounds[0], part / 10)
        if any(contrast(dimmer, ground) < LEGIBLE for ground in grounds):
            break
        meta = dimmer
    return {"meta": meta.hex, "edge": foreground.blend(grounds[0], 0.7).hex}


def contrast(one: Color, other: Color) -> float:
    """How well one can be read on the other, from 1 to 21 (WCAG 2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    parts = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized)
    red, green, blue = parts
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
