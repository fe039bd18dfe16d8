"""Why kvchat does worse where it does, and what others do not do at all: for docs/measured.md. Words, no figures."""

from __future__ import annotations

from figures import Figure

# (question, beginning of what, beginning of the program): why. The first that fits.
REASONS: tuple[tuple[str, str, str, str], ...] = ()

NO: tuple[tuple[str, str, str, str], ...] = ()


def reason(figure: Figure) -> str:
    """In a sentence; "" where nobody has found out."""
    for question, what, program, why in REASONS:
        if question == figure.question and figure.what.startswith(what) and figure.program.startswith(program):
            return why
    return ""
