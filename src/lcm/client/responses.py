"""Requests to the control plane, and what their responses mean: data, an API error, or an unusable response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from lcm.client.errors import (
    ApiError,
    ClientError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ProtocolError,
    ServerError,
    ServiceUnavailableError,
    TooManyAttemptsError,
    UnauthenticatedError,
    UnreachableError,
    error_class,
)
from lcm.core.text import single_line
from lcm.model.base import LenientModel
from lcm.model.problems import FieldProblem, ProblemCode
from lcm.model.validation import problems_of

if TYPE_CHECKING:
    from collections.abc import Mapping

M = TypeVar("M", bound=BaseModel)

_MAX_EXCERPT = 300
_GATEWAY_STATUSES = (502, 503, 504)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to the control plane. `expected_statuses` are those of a successful response."""

    operation: str
    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    expected_statuses: tuple[int, ...] = (200, 201, 202, 204)

    @property
    def is_read(self) -> bool:
        """Whether the request changes nothing."""
        return self.method == "GET"

    @property
    def is_internal(self) -> bool:
        """Whether it is a request of a controller."""
        return self.path.startswith("/api/internal/")

    @property
    def is_idempotent(self) -> bool:
        """Whether sending the request twice has the same effect as sending it once."""
        return self.is_read or self.idempotency_key is not None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A complete response."""

    status: int
    content_type: str
    body: bytes
    retry_after: float | None = None


class _ProblemDocument(LenientModel):
    """A problem document, also of a newer server with codes that this client does not know."""

    title: str = ""
    code: str
    detail: str = ""
    errors: tuple[FieldProblem, ...] = ()
    current: dict[str, Any] | None = None


def raise_for_problem(call: ApiRequest, response: ApiResponse) -> ApiResponse:
    """Return a successful response; raise the error of any other."""
    if response.status in call.expected_statuses:
        return response
    api_error = _to_api_error(response)
    if api_error is not None and (response.status < 500 or call.is_read):
        raise api_error
    message = (
        f"{call.operation}: HTTP {response.status}: {_excerpt(response) if api_error is None else api_error.detail}"
    )
    if response.status < 500:
        raise ProtocolError(f"{message}; is this the address of a control plane?")
    if call.is_read:
        raise UnreachableError(message) if response.status in _GATEWAY_STATUSES else ProtocolError(message)
    # The server may have failed after the commit.
    raise OutcomeUnknownError(
        f"{message}; it may have happened", idempotency_key=call.idempotency_key, server_error=api_error
    )


def decode_body(call: ApiRequest, body: bytes, model: type[M]) -> M:
    """The data of a response."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        where, text = next(problems_of(error))
        message = f"{call.operation}: invalid response: {'.'.join(where) or 'body'}: {text}"
    raise unreadable_response(call, message)


def unreadable_response(call: ApiRequest, message: str) -> ClientError:
    """The error for a response that cannot be used: a write may have happened."""
    if call.is_read:
        return ProtocolError(message)
    return OutcomeUnknownError(f"{message}; it may have happened", idempotency_key=call.idempotency_key)


def is_retryable(error: ClientError) -> bool:
    """Whether the same request may succeed if it is sent again soon."""
    cause = error.server_error if isinstance(error, OutcomeUnknownError) else error
    if isinstance(cause, TooManyAttemptsError):
        return cause.retry_after is not None  # an earlier retry would only extend the wait
    return cause is None or isinstance(cause, UnreachableError | ServiceUnavailableError)


def rules_out_earlier_attempts(error: ClientError) -> bool:
    """Whether the error proves that no earlier attempt with this key was executed.

    It does not if the request was rejected before the key was checked.
    """
    before_key_check = (
        UnauthenticatedError,
        PermissionDeniedError,
        TooManyAttemptsError,
        ServiceUnavailableError,
        ServerError,
    )
    return isinstance(error, ApiError) and not isinstance(error, before_key_check)


def _to_api_error(response: ApiResponse) -> ApiError | None:
    if response.status < 400 or "json" not in response.content_type:
        return None
    try:
        problem = _ProblemDocument.model_validate_json(response.body)
    except ValidationError:
        return None
    try:
        code: str = ProblemCode(problem.code)
    except ValueError:
        code = problem.code
    return error_class(response.status, code)(
        response.status,
        code,
        problem.detail or problem.title or code,
        errors=problem.errors,
        current=problem.current,
        retry_after=response.retry_after,
    )


def _excerpt(response: ApiResponse) -> str:
    """The beginning of a response that is no problem document, on one line."""
    return single_line(response.body[: 4 * _MAX_EXCERPT].decode(errors="replace"), _MAX_EXCERPT) or "empty response"
