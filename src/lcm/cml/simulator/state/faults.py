"""How a request can fail: with an error of CML's API, or with an injected fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SimulatorApiError(Exception):
    """An error response of CML: a code and a description."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description

    def body(self) -> dict[str, object]:
        """Its JSON content."""
        return {"code": self.code, "description": self.description}


class FaultKind(StrEnum):
    """What happens to a request instead of a normal response."""

    HTML = "html"  # a web page with status 200
    HUGE = "huge"  # ten megabytes of JSON
    REDIRECT = "redirect"  # to another host
    WRONG_TYPE = "wrong_type"  # JSON with another content type
    WRONG_SHAPE = "wrong_shape"  # JSON of an unexpected structure
    DEEP = "deep"  # JSON that is nested very deeply
    DRIP = "drip"  # a response that never ends, one byte at a time
    HANG = "hang"  # no response at all
    SLOW = "slow"  # the right response, after the given seconds
    STATUS = "status"  # an error with the given status
    DROP = "drop"  # the connection breaks before the request is processed
    LOST_REPLY = "lost_reply"  # the request is processed, and the connection breaks before the response


@dataclass
class Fault:
    """A fault for requests whose path starts with `path`: for `count` requests, or for all until it is cleared."""

    kind: FaultKind
    path: str = "/"
    method: str | None = None
    count: int | None = None
    status: int = 500
    seconds: float = 29.0


class FaultInjector:
    """The active faults. The first one that matches a request applies."""

    def __init__(self) -> None:
        self._set: list[Fault] = []

    @property
    def all(self) -> list[Fault]:
        """The active faults."""
        return list(self._set)

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self._set.append(fault)

    def clear(self) -> None:
        """Remove all faults."""
        self._set.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that applies to this request. Decreases its count."""
        for fault in self._set:
            if path.startswith(fault.path) and fault.method in (None, method):
                if fault.count is not None:
                    fault.count -= 1
                    if fault.count <= 0:
                        self._set.remove(fault)
                return fault
        return None
