"""What an answer means: data of the contract, a refusal in the server's words, or nothing that can be relied on."""

from __future__ import annotations

import unicodedata
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
from lcm.model.base import LenientModel
from lcm.model.problems import FieldProblem, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

M = TypeVar("M", bound=BaseModel)

_MAX_EXCERPT = 300
_GATEWAY_STATUSES = (502, 503, 504)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One thing to ask. `answers` are the statuses that carry what was asked for."""

    operation: str
    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    answers: tuple[int, ...] = (200, 201, 202, 204)

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET"

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no more than sending it once."""
        return self.reads or self.idempotency_key is not None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An answer, read to its end."""

    status: int
    content_type: str
    body: bytes
    retry_after: float | None = None


class _ProblemDocument(LenientModel):
    """A problem document, also of a server that knows more codes than we do."""

    title: str = ""
    code: str
    detail: str = ""
    errors: tuple[FieldProblem, ...] = ()
    current: dict[str, Any] | None = None


def raise_for_problem(call: ApiRequest, reply: ApiResponse) -> ApiResponse:
    """The reply, if it is an answer to what was asked; else what went wrong."""
    if reply.status in call.answers:
        return reply
    refusal = _to_api_error(reply)
    if refusal is not None and (reply.status < 500 or call.reads):
        raise refusal
    words = f"{call.operation}: HTTP {reply.status}: {_excerpt(reply) if refusal is None else refusal.detail}"
    if reply.status < 500:
        raise ProtocolError(f"{words}; is this the address of a control plane?")
    if call.reads:
        raise UnreachableError(words) if reply.status in _GATEWAY_STATUSES else ProtocolError(words)
    # Whatever failed there may have failed after the commit.
    raise OutcomeUnknownError(f"{words}; it may have happened", idempotency_key=call.idempotency_key, told=refusal)


def decode_response(call: ApiRequest, reply: ApiResponse, answer: type[M]) -> M:
    """The data of an answer."""
    try:
        return answer.model_validate_json(reply.body)
    except ValidationError as error:
        # Only where and why: what stands there may be a secret.
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        words = f"{call.operation}: the answer cannot be understood: {where}: {first['msg']}"
    raise unreadable_response(call, words)


def unreadable_response(call: ApiRequest, words: str) -> ClientError:
    """An answer came that says nothing: a read is as good as not made, a write may have happened."""
    if call.reads:
        return ProtocolError(words)
    return OutcomeUnknownError(f"{words}; it may have happened", idempotency_key=call.idempotency_key)


def is_retryable(error: ClientError) -> bool:
    """Whether the same request may fare better in a moment."""
    told = error.told if isinstance(error, OutcomeUnknownError) else error
    if isinstance(told, TooManyAttemptsError):
        return told.retry_after is not None  # trying again before would only make the wait longer
    return told is None or isinstance(told, UnreachableError | ServiceUnavailableError)


def rules_out_earlier_attempts(error: ClientError) -> bool:
    """Whether it says that no earlier attempt with this key was carried out: not if it was stopped at the door."""
    at_the_door = (
        UnauthenticatedError,
        PermissionDeniedError,
        TooManyAttemptsError,
        ServiceUnavailableError,
        ServerError,
    )
    return isinstance(error, ApiError) and not isinstance(error, at_the_door)


def _to_api_error(reply: ApiResponse) -> ApiError | None:
    if reply.status < 400 or "json" not in reply.content_type:
        return None
    try:
        told = _ProblemDocument.model_validate_json(reply.body)
    except ValidationError:
        return None
    try:
        code: str = ProblemCode(told.code)
    except ValueError:
        code = told.code
    return error_class(reply.status, code)(
        reply.status,
        code,
        told.detail or told.title or code,
        errors=told.errors,
        current=told.current,
        retry_after=reply.retry_after,
    )


def _excerpt(reply: ApiResponse) -> str:
    """The beginning of an answer that is not ours, fit for a line."""
    text = reply.body[: 4 * _MAX_EXCERPT].decode(errors="replace")
    plain = "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in text)
    return " ".join(plain.split())[:_MAX_EXCERPT] or "no words"
