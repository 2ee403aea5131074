"""How CML refuses: a code and a description."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SimulatorApiError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description

    def body(self) -> dict[str, object]:
        """The JSON of it."""
        return {"code": self.code, "description": self.description}


class FaultKind(StrEnum):
    """What is done to a request instead of answering it."""

    HTML = "html"  # a web page with status 200
    HUGE = "huge"  # ten megabytes of JSON
    REDIRECT = "redirect"  # to another host
    WRONG_TYPE = "wrong_type"  # JSON that is said to be something else
    WRONG_SHAPE = "wrong_shape"  # JSON of a kind that nobody expects
    DEEP = "deep"  # JSON that is nested without end
    DRIP = "drip"  # an answer that never ends, a byte at a time
    HANG = "hang"  # no answer at all
    STATUS = "status"  # an error of the given status
    DROP = "drop"  # the connection breaks before anything is done
    LOST_REPLY = "lost_reply"  # it is done, and the connection breaks before the answer


@dataclass
class Fault:
    """Something to do to requests whose path begins so; `count` requests, or all until it is cleared."""

    kind: FaultKind
    path: str = "/"
    method: str | None = None
    count: int | None = None
    status: int = 500


class FaultInjector:
    """The faults that are set, first come first served."""

    def __init__(self) -> None:
        self._set: list[Fault] = []

    @property
    def all(self) -> list[Fault]:
        """What is set now."""
        return list(self._set)

    def add(self, fault: Fault) -> None:
        """Set one."""
        self._set.append(fault)

    def clear(self) -> None:
        """Behave again."""
        self._set.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault for this request, counted down."""
        for fault in self._set:
            if path.startswith(fault.path) and fault.method in (None, method):
                if fault.count is not None:
                    fault.count -= 1
                    if fault.count <= 0:
                        self._set.remove(fault)
                return fault
        return None
