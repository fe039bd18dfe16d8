"""Foreign text as it is drawn: safe, and as wide on every terminal as it is here. Pure functions over strings.

U+FE0F asks for the emoji form of the character before it, such as of a warning sign or a digit. Some terminals, and
rich, then take two cells for it, others, tmux among them, one, and whatever stands behind it in the row shifts. Without
the selector all of them take one. What is stored, sent and copied keeps it.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

from kvchat.clean import clean, clean_line

SELECTOR = "\ufe0f"
_TEXT_SELECTOR = "\ufe0e"  # takes no cell after a narrow character
_SELECTED = re.compile(f"(?<=(.)){SELECTOR}")
_EMOJI_FORM = re.compile(f"{SELECTOR}+\u20e3?")  # U+20E3 draws a key around a digit


def agreed(text: str) -> str:
    """The text without what terminals disagree about."""
    return _EMOJI_FORM.sub("", text) if SELECTOR in text else text


def agreed_in_place(text: str) -> str:
    """The same width as `agreed`, every character where it was."""
    return _SELECTED.sub(lambda match: SELECTOR if cell_len(match[1]) > 1 else _TEXT_SELECTOR, text)


def display(text: str) -> str:
    """`clean` text to be drawn."""
    return agreed(clean(text))


def display_line(text: str) -> str:
    """`clean_line` of a text to be drawn."""
    return agreed(clean_line(text))
