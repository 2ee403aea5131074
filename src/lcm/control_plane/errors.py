"""A request that cannot be granted, and why."""

from __future__ import annotations

from typing import Any

from lcm.model.problems import ProblemCode


class ProblemError(Exception):
    """Nothing was changed. `detail` says what is in the way and what would help."""

    def __init__(self, code: ProblemCode, detail: str, *, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.current = current


class PreconditionFailedError(ProblemError):
    """If-Match named another version than the present one."""

    def __init__(self, what: str, current: int, asked: int) -> None:
        detail = f"the {what} is at version {current}, not {asked}; read it again and decide anew"
        super().__init__(ProblemCode.VERSION_CONFLICT, detail, current={"version": current})
