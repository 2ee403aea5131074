"""Signing in and out with a browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth.cookies import cleared_cookie, session_cookie, session_id_in
from lcm.control_plane.auth.roles import AccessRefused, Caller, CsrfRefused
from lcm.control_plane.services import parts
from lcm.control_plane.web.auth import SIGN_IN, field_of, form_of, is_fragment, safe_back
from lcm.control_plane.web.rendering import fragment
from lcm.model.problems import STATUS

router = APIRouter(include_in_schema=False)


@router.get(SIGN_IN)
async def sign_in_page(request: Request) -> Response:
    """Where a token is asked for, and where a sign-in link leads."""
    return fragment("sign_in.html", problem="", back=safe_back(request.query_params.get("next")))


@router.post(SIGN_IN)
async def sign_in(request: Request) -> Response:
    """Exchange a token for a session."""
    form = await form_of(request)
    back = safe_back(field_of(form, "next"))
    try:
        _require_our_page(request)
        caller = await parts(request).gate.by_token(request, field_of(form, "token"))
        return await _signed_in(request, caller, back)
    except AccessRefused as error:
        return _refused(error, back)


@router.post(f"{SIGN_IN}/link")
async def sign_in_by_link(request: Request) -> Response:
    """Exchange the code of a link for a session."""
    form = await form_of(request)
    back = safe_back(field_of(form, "next"))
    try:
        _require_our_page(request)
        return await _signed_in(request, parts(request).gate.links.redeem(field_of(form, "code")), back)
    except AccessRefused as error:
        return _refused(error, back)


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session. Nothing is lost by it, so it needs no proof of where it came from but the cookie itself."""
    secure = request.url.scheme == "https"
    session_id = session_id_in(request.cookies, secure=secure)
    if session_id is not None:
        await parts(request).gate.sessions.end(session_id)
    headers = {"Set-Cookie": cleared_cookie(secure=secure)}
    if is_fragment(request):
        return Response(status_code=204, headers={**headers, "HX-Redirect": SIGN_IN})
    return RedirectResponse(SIGN_IN, 303, headers)


async def _signed_in(request: Request, caller: Caller, back: str) -> Response:
    session = await parts(request).gate.sessions.begin(caller)
    secure = request.url.scheme == "https"
    return RedirectResponse(back, 303, {"Set-Cookie": session_cookie(session, secure=secure)})


def _refused(error: AccessRefused, back: str) -> Response:
    return fragment("sign_in.html", status=STATUS[error.code], problem=str(error), back=back)


def _require_our_page(request: Request) -> None:
    """Another site must not sign somebody in under a name of its choice."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise CsrfRefused("This sign-in did not come from our own page. Open the page and try again.")
