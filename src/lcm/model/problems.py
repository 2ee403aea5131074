"""Error responses of the API: problem details (RFC 9457) with a code that clients can rely on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from lcm.model.base import CaseInsensitiveEnum, LenientModel


class ProblemCode(CaseInsensitiveEnum):
    """Why a request was rejected."""

    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NAME_TAKEN = "name_taken"
    VERSION_CONFLICT = "version_conflict"
    ILLEGAL_TRANSITION = "illegal_transition"
    NOT_POSSIBLE_NOW = "not_possible_now"
    STALE_LEADER = "stale_leader"
    LEADER_HEADERS_MISSING = "leader_headers_missing"
    ATTEMPT_MISMATCH = "attempt_mismatch"
    MIN_WORKERS = "min_workers"
    COOLDOWN = "cooldown"
    MAX_WORKERS = "max_workers"
    BOOKED = "booked"
    BOOKING_REFUSED = "booking_refused"
    HELD = "held"
    BREAKER_OPEN = "breaker_open"
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    CSRF = "csrf"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    TOO_MANY_STREAMS = "too_many_streams"
    TOO_LARGE = "too_large"
    REQUEST_TIMEOUT = "request_timeout"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


PROBLEM_MEDIA_TYPE = "application/problem+json"

HTTP_STATUS_BY_CODE: dict[ProblemCode, int] = {
    ProblemCode.INVALID: 422,
    ProblemCode.UNAUTHENTICATED: 401,
    ProblemCode.FORBIDDEN: 403,
    ProblemCode.NOT_FOUND: 404,
    ProblemCode.METHOD_NOT_ALLOWED: 405,
    ProblemCode.LEADER_HEADERS_MISSING: 400,
    ProblemCode.CSRF: 403,
    ProblemCode.TOO_MANY_ATTEMPTS: 429,
    ProblemCode.TOO_MANY_STREAMS: 429,
    ProblemCode.TOO_LARGE: 413,
    ProblemCode.REQUEST_TIMEOUT: 408,
    ProblemCode.UNAVAILABLE: 503,
    ProblemCode.INTERNAL: 500,
}
"""A code that is not listed means a conflict with the current state: 409."""

TITLE_BY_HTTP_STATUS: dict[int, str] = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict with the current state",
    412: "Changed by another request",
    413: "Too large",
    422: "Invalid request",
    429: "Too many attempts",
    500: "Internal server error",
    503: "Service unavailable",
}


class FieldProblem(LenientModel):
    """What is wrong with one field, and what is expected."""

    field: str
    message: str


class Problem(LenientModel):
    """An error response. `detail` says what to do about it."""

    type: str = "about:blank"
    title: str
    status: int
    code: ProblemCode
    detail: str = ""
    instance: str | None = None
    errors: tuple[FieldProblem, ...] = ()
    current: dict[str, Any] | None = Field(
        default=None, description="The state that caused the conflict, such as the current version."
    )
