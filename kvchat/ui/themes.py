"""Which theme is shown. Owns the choice between settings and terminal, and the names that can be chosen; must not save
anything or know widgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvchat.config_options import nearest
from kvchat.ui.theme import BARE, INK, OWN, PAPER

AUTO = "auto"
_LIGHT_GROUNDS = {7, *range(9, 16)}  # the terminal's colours that are light; 8 is a dark grey


def theme_for(wanted: str, known: Iterable[str], environ: Mapping[str, str], no_color: bool) -> tuple[str, str]:
    """The theme to show, and a sentence when it is not the one that was wanted."""
    if no_color:
        return BARE.name, ""
    if wanted in known:
        return wanted, ""
    fitting = PAPER.name if is_light(environ) else INK.name
    if wanted == AUTO:
        return fitting, ""
    return fitting, unknown(wanted, known)


def unknown(wanted: str, known: Iterable[str]) -> str:
    """What is said of a theme that is not there."""
    guess = nearest(wanted, [*known, AUTO])
    return f"There is no theme {wanted[:40]}. " + (f"Did you mean {guess}?" if guess else "/theme lists them.")


def is_light(environ: Mapping[str, str]) -> bool:
    """Whether the terminal says that its background is light. COLORFGBG is "foreground;background", or has a third
    field between the two."""
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return ground.isascii() and ground.isdigit() and len(ground) <= 2 and int(ground) in _LIGHT_GROUNDS


def ordered(known: Iterable[str]) -> tuple[str, ...]:
    """Names to choose from: what suits the terminal, ours, the others by name."""
    own = [theme.name for theme in OWN]
    return (AUTO, *own, *sorted(name for name in known if name not in (*own, BARE.name)))
