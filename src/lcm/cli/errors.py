"""Errors of commands: a message for standard error, and an exit code."""

from __future__ import annotations

import sys

from lcm.core.text import escape_unprintable

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandError(Exception):
    """The command failed; the message gives the reason and a remedy."""

    code = FAILED


class UsageError(CommandError):
    """The arguments are invalid; the message says what is allowed."""

    code = USAGE


def yaml_problem(error: Exception) -> str:
    """What is wrong in a file, and where: the parser's own message begins with what it was doing."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def print_error(text: str, code: int) -> int:
    """Print one line per problem on standard error, and return the exit code."""
    from lcm.cli.output.durations import local_times

    sys.stdout.flush()
    for line in local_times(text).splitlines():
        sys.stderr.write(f"lcm: {escape_unprintable(line)}\n")
    return code
