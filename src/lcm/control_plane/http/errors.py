"""Errors as problem details, whatever raised them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from lcm.control_plane.auth.roles import AccessRefused, TooManyAttempts
from lcm.control_plane.errors import PreconditionFailed, Refusal
from lcm.control_plane.store.port import BadCursor, StoreUnavailable, Taken
from lcm.model.lablet.status import IllegalLabletTransition
from lcm.model.problems import MEDIA_TYPE, STATUS, TITLES, FieldProblem, Problem, ProblemCode
from lcm.model.worker.transitions import IllegalTransition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from fastapi import APIRouter, FastAPI, Request

    ErrorPage: TypeAlias = Callable[[Request, Problem], Response | None]

log = structlog.get_logger(__name__)


def respond(
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
    number = status or STATUS.get(code, 409)
    problem = Problem(
        title=TITLES.get(number, "Error"),
        status=number,
        code=code,
        detail=detail,
        instance=request.url.path,
        errors=errors,
        current=current,
    )
    error_page: ErrorPage | None = getattr(request.app.state, "error_page", None)
    shown = None if error_page is None else error_page(request, problem)
    if shown is not None:
        shown.headers.update(headers or {})
        return shown
    return Response(problem.model_dump_json(exclude_none=True), number, dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Have every error told as a problem."""
    _install_ours(app)
    _install_the_frameworks(app, routers)


def _install_ours(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        status = 412 if isinstance(error, PreconditionFailed) else None
        return respond(request, error.code, error.detail, status=status, current=error.current)

    @app.exception_handler(IllegalLabletTransition)
    @app.exception_handler(IllegalTransition)
    async def illegal(request: Request, error: IllegalTransition | IllegalLabletTransition) -> Response:
        return respond(request, ProblemCode.ILLEGAL_TRANSITION, str(error), current={"status": error.current.value})

    @app.exception_handler(AccessRefused)
    async def kept_out(request: Request, error: AccessRefused) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if isinstance(error, TooManyAttempts):
            headers["Retry-After"] = str(error.retry_after)
        return respond(request, error.code, str(error), headers=headers)

    @app.exception_handler(Taken)
    async def taken(request: Request, error: Taken) -> Response:
        detail = f"{error.field}: {error.value} is taken; choose another"
        return respond(request, ProblemCode.NAME_TAKEN, detail, current={"owner": error.owner})

    @app.exception_handler(BadCursor)
    async def bad_cursor(request: Request, error: BadCursor) -> Response:
        field = FieldProblem(field="cursor", message=str(error))
        return respond(request, ProblemCode.INVALID, f"cursor: {error}", errors=(field,))

    @app.exception_handler(StoreUnavailable)
    async def unavailable(request: Request, error: StoreUnavailable) -> Response:
        return respond(request, ProblemCode.UNAVAILABLE, str(error), headers={"Retry-After": "5"})


def _install_the_frameworks(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = tuple(_field_problem(found) for found in error.errors())
        detail = "; ".join(f"{problem.field}: {problem.message}" for problem in errors[:3])
        return respond(request, ProblemCode.INVALID, detail, errors=errors)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            methods = ", ".join(_methods(routers, request))
            detail = f"{request.method} is not possible here; possible: {methods}"
            return respond(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers={"Allow": methods})
        if error.status_code == 400:
            return respond(request, ProblemCode.INVALID, f"body: {error.detail}")
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"there is nothing at {request.url.path}" if code is ProblemCode.NOT_FOUND else str(error.detail)
        return respond(request, code, detail, status=error.status_code)

    @app.exception_handler(Exception)
    async def our_fault(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = "something went wrong on our side; it is in the control plane's log"
        return respond(request, ProblemCode.INTERNAL, detail)


def _field_problem(found: Mapping[str, Any]) -> FieldProblem:
    """Where and what, without what was given: it may be a secret."""
    where = [str(part) for part in found["loc"] if part not in ("body", "query", "path", "header")]
    return FieldProblem(field=".".join(where) or "body", message=str(found["msg"]).removeprefix("Value error, "))


def _methods(routers: Sequence[APIRouter], request: Request) -> list[str]:
    """All methods of the template that this path was taken for; a fixed path counts before one with a parameter."""
    by_template: dict[str, set[str]] = {}
    for route in (route for router in routers for route in router.routes):
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            by_template.setdefault(getattr(route, "path", ""), set()).update(getattr(route, "methods", None) or set())
    chosen = min(by_template, key=lambda template: template.count("{"), default="")
    return sorted(by_template.get(chosen, set()))
