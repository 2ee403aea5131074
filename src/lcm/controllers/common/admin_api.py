"""Refusals of a controller's own surface, told as the API tells its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lcm.controllers.common.admin_auth import KeptOut
from lcm.model.problems import MEDIA_TYPE, STATUS, TITLES, Problem, ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger(__name__)


class Refused(Exception):
    """What was asked for is not possible; the text says why."""

    def __init__(self, code: ProblemCode, detail: str, current: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.current = current


def tell_problems(app: FastAPI, whose: str) -> None:
    """Tell every failure as a problem. `whose` log holds what went wrong on our side."""

    @app.exception_handler(KeptOut)
    async def kept_out(request: Request, error: KeptOut) -> Response:
        headers = {"WWW-Authenticate": "Bearer"} if error.code is ProblemCode.UNAUTHENTICATED else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return _problem(request, error.code, str(error), headers=headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return _problem(request, error.code, str(error), current=error.current)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            detail = f"{request.method} is not possible here"
            return _problem(request, ProblemCode.METHOD_NOT_ALLOWED, detail, headers=error.headers)
        code = ProblemCode.NOT_FOUND if error.status_code == 404 else ProblemCode.INVALID
        detail = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
        return _problem(request, code, detail, headers=error.headers)

    @app.exception_handler(Exception)
    async def our_fault(request: Request, error: Exception) -> Response:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        detail = f"something went wrong on our side; it is in the {whose}'s log"
        return _problem(request, ProblemCode.INTERNAL, detail)


def _problem(
    request: Request,
    code: ProblemCode,
    detail: str,
    *,
    current: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    number = STATUS.get(code, 409)
    problem = Problem(
        title=TITLES[number],
        status=number,
        code=code,
        detail=detail,
        instance=request.url.path,
        current=current,
    )
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, number, dict(headers or {}), media_type=MEDIA_TYPE)
