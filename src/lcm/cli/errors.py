"""What commands end with when they cannot do what was asked: words for standard error, and an exit code."""

from __future__ import annotations

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandError(Exception):
    """What was asked for could not be done; the text says why and what would help."""

    code = FAILED


class UsageError(CommandError):
    """What was asked for cannot be understood; the text says what would be."""

    code = USAGE
