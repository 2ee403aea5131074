"""Signing in and out with a browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth.roles import AccessError, Caller, CsrfError
from lcm.control_plane.auth.sessions import expired_cookie, session_cookie, session_id_from
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import SIGN_IN_PATH, form_field, is_fragment, read_form, safe_return_path
from lcm.control_plane.web.rendering import render_fragment
from lcm.model.problems import HTTP_STATUS_BY_CODE

router = APIRouter(include_in_schema=False)


@router.get(SIGN_IN_PATH)
async def sign_in_page(request: Request) -> Response:
    """Where a token is asked for, and where a sign-in link leads."""
    return render_fragment("sign_in.html", problem="", back=safe_return_path(request.query_params.get("next")))


@router.post(SIGN_IN_PATH)
async def sign_in(request: Request) -> Response:
    """Exchange a token for a session."""
    form = await read_form(request)
    back = safe_return_path(form_field(form, "next"))
    try:
        _require_same_origin(request)
        caller = await get_services(request).gate.authenticate_token(request, form_field(form, "token"))
        return await _start_session(request, caller, back)
    except AccessError as error:
        return _render_refusal(error, back)


@router.post(f"{SIGN_IN_PATH}/link")
async def sign_in_by_link(request: Request) -> Response:
    """Exchange the code of a link for a session."""
    form = await read_form(request)
    back = safe_return_path(form_field(form, "next"))
    try:
        _require_same_origin(request)
        return await _start_session(request, get_services(request).gate.links.redeem(form_field(form, "code")), back)
    except AccessError as error:
        return _render_refusal(error, back)


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session. Nothing is lost by it, so it needs no proof of where it came from but the cookie itself."""
    secure = request.url.scheme == "https"
    session_id = session_id_from(request.cookies, secure=secure)
    if session_id is not None:
        await get_services(request).gate.sessions.end(session_id)
    headers = {"Set-Cookie": expired_cookie(secure=secure)}
    if is_fragment(request):
        return Response(status_code=204, headers={**headers, "HX-Redirect": SIGN_IN_PATH})
    return RedirectResponse(SIGN_IN_PATH, 303, headers)


async def _start_session(request: Request, caller: Caller, back: str) -> Response:
    session = await get_services(request).gate.sessions.begin(caller)
    secure = request.url.scheme == "https"
    return RedirectResponse(back, 303, {"Set-Cookie": session_cookie(session, secure=secure)})


def _render_refusal(error: AccessError, back: str) -> Response:
    return render_fragment("sign_in.html", status=HTTP_STATUS_BY_CODE[error.code], problem=str(error), back=back)


def _require_same_origin(request: Request) -> None:
    """Another site must not sign somebody in under a name of its choice."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise CsrfError("This sign-in did not come from our own page. Open the page and try again.")
