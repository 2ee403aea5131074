"""A request that cannot be granted, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lcm.model.problems import ProblemCode


class Refusal(Exception):
    """Nothing was changed. `detail` says what is in the way and what would help."""

    def __init__(self, code: ProblemCode, detail: str, *, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.current = current
