"""Every error as problem details (RFC 9457), and the error responses that the OpenAPI document lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from lcm.control_plane.auth.roles import AccessError, TooManyAttemptsError
from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.store.port import InvalidCursorError, StoreUnavailableError, UniqueViolationError
from lcm.control_plane.store.values import InvalidValueError
from lcm.model.lablet.status import IllegalLabletTransitionError
from lcm.model.problems import (
    HTTP_STATUS_BY_CODE,
    PROBLEM_MEDIA_TYPE,
    TITLE_BY_HTTP_STATUS,
    FieldProblem,
    Problem,
    ProblemCode,
)
from lcm.model.validation import problem_text
from lcm.model.worker.status import IllegalWorkerTransitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from fastapi import APIRouter, FastAPI, Request

    ErrorPageRenderer: TypeAlias = Callable[[Request, Problem], Response | None]

log = structlog.get_logger(__name__)

_ERROR_DESCRIPTIONS = {
    400: "The leader headers are missing.",
    401: "The request is not authenticated.",
    403: "The caller's role does not allow this operation.",
    404: "The resource does not exist.",
    408: "The body took too long to arrive.",
    409: "The operation is not possible in the current state; `code` gives the reason.",
    412: "The version in If-Match is not the current version.",
    413: "The body is too large.",
    422: "A field is invalid; `errors` lists the fields and the allowed values.",
    429: "Too many failed sign-ins.",
    503: "The store is unavailable.",
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, for the OpenAPI document."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _ERROR_DESCRIPTIONS[status], "content": content} for status in statuses}


def problem_response(
    request: Request,
    code: ProblemCode,
    detail: str,
    *,
    status: int | None = None,
    errors: tuple[FieldProblem, ...] = (),
    current: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response that reports a problem: JSON, or a page where the web UI renders one."""
    number = status or HTTP_STATUS_BY_CODE.get(code, 409)
    problem = Problem(
        title=TITLE_BY_HTTP_STATUS.get(number, "Error"),
        status=number,
        code=code,
        detail=detail,
        instance=request.url.path,
        errors=errors,
        current=current,
    )
    error_page: ErrorPageRenderer | None = getattr(request.app.state, "error_page", None)
    shown = None if error_page is None else error_page(request, problem)
    if shown is not None:
        shown.headers.update(headers or {})
        return shown
    return Response(
        problem.model_dump_json(exclude_none=True), number, dict(headers or {}), media_type=PROBLEM_MEDIA_TYPE
    )


def install_error_handlers(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Report every error as problem details."""
    _handle_domain_errors(app)
    _handle_framework_errors(app, routers)


def _handle_domain_errors(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def handle_problem(request: Request, error: ProblemError) -> Response:
        status = 412 if isinstance(error, PreconditionFailedError) else None
        return problem_response(request, error.code, error.detail, status=status, current=error.current)

    @app.exception_handler(IllegalLabletTransitionError)
    @app.exception_handler(IllegalWorkerTransitionError)
    async def handle_illegal_transition(
        request: Request, error: IllegalWorkerTransitionError | IllegalLabletTransitionError
    ) -> Response:
        return problem_response(
            request, ProblemCode.ILLEGAL_TRANSITION, str(error), current={"status": error.current.value}
        )

    @app.exception_handler(AccessError)
    async def handle_access_error(request: Request, error: AccessError) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if isinstance(error, TooManyAttemptsError):
            headers["Retry-After"] = str(error.retry_after)
        return problem_response(request, error.code, str(error), headers=headers)

    @app.exception_handler(UniqueViolationError)
    async def handle_unique_violation(request: Request, error: UniqueViolationError) -> Response:
        detail = f"{error.field}: {error.value} is already in use; choose another"
        return problem_response(request, ProblemCode.NAME_TAKEN, detail, current={"owner": error.owner})

    @app.exception_handler(InvalidCursorError)
    async def handle_invalid_cursor(request: Request, error: InvalidCursorError) -> Response:
        field = FieldProblem(field="cursor", message=str(error))
        return problem_response(request, ProblemCode.INVALID, f"cursor: {error}", errors=(field,))

    @app.exception_handler(InvalidValueError)
    async def handle_invalid_value(request: Request, error: InvalidValueError) -> Response:
        return problem_response(request, ProblemCode.INVALID, str(error))

    @app.exception_handler(StoreUnavailableError)
    async def handle_unavailable_store(request: Request, error: StoreUnavailableError) -> Response:
        return problem_response(request, ProblemCode.UNAVAILABLE, str(error), headers={"Retry-After": "5"})


def _handle_framework_errors(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    @app.exception_handler(RequestValidationError)
    async def handle_invalid_request(request: Request, error: RequestValidationError) -> Response:
        errors = tuple(_field_problem(each) for each in error.errors())
        detail = "; ".join(f"{problem.field}: {problem.message}" for problem in errors[:3])
        return problem_response(request, ProblemCode.INVALID, detail, errors=errors)

    @app.exception_handler(HTTPException)
    async def handle_http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            methods = ", ".join(_allowed_methods(routers, request))
            detail = f"{request.method} is not supported here; supported methods: {methods}"
            return problem_response(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers={"Allow": methods})
        if error.status_code == 400:
            return problem_response(request, ProblemCode.INVALID, f"body: {error.detail}")
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"{request.url.path} does not exist" if code is ProblemCode.NOT_FOUND else str(error.detail)
        return problem_response(request, code, detail, status=error.status_code)

    @app.exception_handler(Exception)
    async def handle_unexpected_error(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = "internal error; see the control plane's log"
        return problem_response(request, ProblemCode.INTERNAL, detail)


def _field_problem(error: Mapping[str, Any]) -> FieldProblem:
    """The field and the problem, but not the value: it may be a secret."""
    location = [str(part) for part in error["loc"] if part not in ("body", "query", "path", "header")]
    return FieldProblem(field=".".join(location) or "body", message=problem_text(error))


def _allowed_methods(routers: Sequence[APIRouter], request: Request) -> list[str]:
    """All methods of the route template that matches this path. Fixed paths win over paths with parameters."""
    by_template: dict[str, set[str]] = {}
    for route in (route for router in routers for route in router.routes):
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            by_template.setdefault(getattr(route, "path", ""), set()).update(getattr(route, "methods", None) or set())
    chosen = min(by_template, key=lambda template: template.count("{"), default="")
    return sorted(by_template.get(chosen, set()))
