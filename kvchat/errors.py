"""Errors that a person reads. Owns their shape; must not know what any layer does.

Every failure that a person can meet is a `KvchatError`: one sentence that says what is wrong and, in
`hint`, what to do about it. Anything else that escapes is a bug.
"""

from __future__ import annotations

INTERRUPTED = 130  # exit code of what somebody ended by Ctrl+C before it was done


class KvchatError(Exception):
    """What went wrong, in one sentence, and what to do about it. Exit code 1."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(KvchatError):
    """The command line, the environment or the settings file ask for something that does not exist. Exit code 2."""

    exit_code = 2


class FormatError(KvchatError):
    """A file is not what it should be: wrong magic, truncated, absurd counts, failed checksum."""
