"""The sign-in page, sign-in links, and sign-out."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth.roles import AccessError, Caller, CsrfError
from lcm.control_plane.auth.sessions import expired_cookie, session_cookie
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import SIGN_IN_PATH, is_fragment, safe_return_path
from lcm.control_plane.web.forms import form_field, read_form
from lcm.control_plane.web.rendering import render_fragment
from lcm.model.problems import HTTP_STATUS_BY_CODE

router = APIRouter(include_in_schema=False)


@router.get(SIGN_IN_PATH)
async def sign_in_page(request: Request) -> Response:
    """The form for a token, which is also the target of sign-in links."""
    return render_fragment("sign_in.html", problem="", return_to=safe_return_path(request.query_params.get("next")))


@router.post(SIGN_IN_PATH)
async def sign_in(request: Request) -> Response:
    """Exchange a token for a session."""
    form = await read_form(request)
    return_to = safe_return_path(form_field(form, "next"))
    try:
        _require_same_origin(request)
        caller = await get_services(request).authenticator.authenticate_token(request, form_field(form, "token"))
        return await _start_session(request, caller, return_to)
    except AccessError as error:
        return _render_refusal(error, return_to)


@router.post(f"{SIGN_IN_PATH}/link")
async def sign_in_by_link(request: Request) -> Response:
    """Exchange the code of a link for a session."""
    form = await read_form(request)
    return_to = safe_return_path(form_field(form, "next"))
    try:
        _require_same_origin(request)
        caller = await get_services(request).authenticator.links.redeem(form_field(form, "code"))
        return await _start_session(request, caller, return_to)
    except AccessError as error:
        return _render_refusal(error, return_to)


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session. This is harmless, so that the cookie is enough and no CSRF token is required."""
    secure = request.url.scheme == "https"
    await get_services(request).authenticator.end_session(request)
    headers = {"Set-Cookie": expired_cookie(secure=secure)}
    if is_fragment(request):
        return Response(status_code=204, headers={**headers, "HX-Redirect": SIGN_IN_PATH})
    return RedirectResponse(SIGN_IN_PATH, 303, headers)


async def _start_session(request: Request, caller: Caller, return_to: str) -> Response:
    session = await get_services(request).authenticator.begin_session(request, caller)
    secure = request.url.scheme == "https"
    return RedirectResponse(return_to, 303, {"Set-Cookie": session_cookie(session, secure=secure)})


def _render_refusal(error: AccessError, return_to: str) -> Response:
    return render_fragment(
        "sign_in.html", status=HTTP_STATUS_BY_CODE[error.code], problem=str(error), return_to=return_to
    )


def _require_same_origin(request: Request) -> None:
    """Another site must not sign a user in under an account of its choice."""
    origin = request.headers.get("Origin")
    if origin is not None and _host_of(origin) != request.headers.get("Host"):
        raise CsrfError("This request did not come from the sign-in page. Open the sign-in page and try again.")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None  # such as http://[, which is no host of ours
