"""Errors as problem details, whatever raised them."""

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
from lcm.model.lablet.status import IllegalLabletTransitionError
from lcm.model.problems import (
    HTTP_STATUS_BY_CODE,
    PROBLEM_MEDIA_TYPE,
    TITLE_BY_HTTP_STATUS,
    FieldProblem,
    Problem,
    ProblemCode,
)
from lcm.model.worker.status import IllegalWorkerTransitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from fastapi import APIRouter, FastAPI, Request

    ErrorPageRenderer: TypeAlias = Callable[[Request, Problem], Response | None]

log = structlog.get_logger(__name__)


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
    """The answer that tells of a problem."""
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
    """Have every error told as a problem."""
    _handle_domain_errors(app)
    _handle_framework_errors(app, routers)


def _handle_domain_errors(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def refused(request: Request, error: ProblemError) -> Response:
        status = 412 if isinstance(error, PreconditionFailedError) else None
        return problem_response(request, error.code, error.detail, status=status, current=error.current)

    @app.exception_handler(IllegalLabletTransitionError)
    @app.exception_handler(IllegalWorkerTransitionError)
    async def illegal(request: Request, error: IllegalWorkerTransitionError | IllegalLabletTransitionError) -> Response:
        return problem_response(
            request, ProblemCode.ILLEGAL_TRANSITION, str(error), current={"status": error.current.value}
        )

    @app.exception_handler(AccessError)
    async def kept_out(request: Request, error: AccessError) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if isinstance(error, TooManyAttemptsError):
            headers["Retry-After"] = str(error.retry_after)
        return problem_response(request, error.code, str(error), headers=headers)

    @app.exception_handler(UniqueViolationError)
    async def taken(request: Request, error: UniqueViolationError) -> Response:
        detail = f"{error.field}: {error.value} is taken; choose another"
        return problem_response(request, ProblemCode.NAME_TAKEN, detail, current={"owner": error.owner})

    @app.exception_handler(InvalidCursorError)
    async def bad_cursor(request: Request, error: InvalidCursorError) -> Response:
        field = FieldProblem(field="cursor", message=str(error))
        return problem_response(request, ProblemCode.INVALID, f"cursor: {error}", errors=(field,))

    @app.exception_handler(StoreUnavailableError)
    async def unavailable(request: Request, error: StoreUnavailableError) -> Response:
        return problem_response(request, ProblemCode.UNAVAILABLE, str(error), headers={"Retry-After": "5"})


def _handle_framework_errors(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = tuple(_field_problem(found) for found in error.errors())
        detail = "; ".join(f"{problem.field}: {problem.message}" for problem in errors[:3])
        return problem_response(request, ProblemCode.INVALID, detail, errors=errors)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            methods = ", ".join(_allowed_methods(routers, request))
            detail = f"{request.method} is not possible here; possible: {methods}"
            return problem_response(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers={"Allow": methods})
        if error.status_code == 400:
            return problem_response(request, ProblemCode.INVALID, f"body: {error.detail}")
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"there is nothing at {request.url.path}" if code is ProblemCode.NOT_FOUND else str(error.detail)
        return problem_response(request, code, detail, status=error.status_code)

    @app.exception_handler(Exception)
    async def our_fault(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = "something went wrong on our side; it is in the control plane's log"
        return problem_response(request, ProblemCode.INTERNAL, detail)


def _field_problem(found: Mapping[str, Any]) -> FieldProblem:
    """Where and what, without what was given: it may be a secret."""
    where = [str(part) for part in found["loc"] if part not in ("body", "query", "path", "header")]
    return FieldProblem(field=".".join(where) or "body", message=str(found["msg"]).removeprefix("Value error, "))


def _allowed_methods(routers: Sequence[APIRouter], request: Request) -> list[str]:
    """All methods of the template that this path was taken for; a fixed path counts before one with a parameter."""
    by_template: dict[str, set[str]] = {}
    for route in (route for router in routers for route in router.routes):
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            by_template.setdefault(getattr(route, "path", ""), set()).update(getattr(route, "methods", None) or set())
    chosen = min(by_template, key=lambda template: template.count("{"), default="")
    return sorted(by_template.get(chosen, set()))
