"""The errors that services raise for a request that cannot be granted. Routes turn them into problem details."""

from __future__ import annotations

from typing import Any

from lcm.model.problems import ProblemCode


class ProblemError(Exception):
    """The request was rejected and nothing was changed. `detail` says what prevents it and what to do."""

    def __init__(self, code: ProblemCode, detail: str, *, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.current = current


class PreconditionFailedError(ProblemError):
    """If-Match names another version than the current one."""

    def __init__(self, what: str, current: int, expected: int) -> None:
        detail = f"the {what} is at version {current}, not {expected}; read it again and retry"
        super().__init__(ProblemCode.VERSION_CONFLICT, detail, current={"version": current})


def check_version(what: str, current: int, version: int) -> None:
    """Reject a writer that has not read the current version of a record."""
    if version != current:
        detail = f"the {what} is at version {current}, not {version}; read it again"
        raise ProblemError(ProblemCode.VERSION_CONFLICT, detail, current={"version": current})
