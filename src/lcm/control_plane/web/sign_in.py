"""The sign-in page, sign-in with the identity provider, that of a command line, sign-in links, and sign-out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from lcm.control_plane.auth.oidc.sign_in import ATTEMPT_LIFETIME, NotRecognizedError
from lcm.control_plane.auth.roles import AccessError, Caller, CsrfError
from lcm.control_plane.auth.session_cookies import attempt_cookie, expired_cookie, session_cookie, session_id_from
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.command_line import COMMAND_LINE_PATH, find_sign_ins
from lcm.control_plane.http.deps import client_address
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import SIGN_IN_PATH, SILENT_PATH, is_fragment, safe_return_path
from lcm.control_plane.web.forms import form_field, read_form
from lcm.control_plane.web.rendering import render_fragment
from lcm.model.problems import HTTP_STATUS_BY_CODE, ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.auth.oidc.sign_in import FinishedSignIn, OidcSignIn
    from lcm.control_plane.auth.sessions import LapsedSession

router = APIRouter(include_in_schema=False)
PROVIDER_PATH = f"{SIGN_IN_PATH}/oidc"
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE = re.compile(r"[A-Za-z0-9_-]{16,128}")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class LoopbackRequest:
    """What a command line waits for (RFC 8252): its port, its PKCE challenge (S256) and its state."""

    port: int
    code_challenge: str
    state: str

    @property
    def page(self) -> str:
        """The page that `lcm login` sends a person to."""
        fields = {"port": self.port, "code_challenge": self.code_challenge, "state": self.state}
        return f"{COMMAND_LINE_PATH}?{urlencode(fields)}"

    def address(self, code: str) -> str:
        """Where the browser brings the code. The host is fixed, so that no code leaves the computer."""
        return f"http://127.0.0.1:{self.port}/?{urlencode({'code': code, 'state': self.state})}"


@router.get(SIGN_IN_PATH)
async def sign_in_page(request: Request) -> Response:
    """The button of the identity provider and the form for a token; also the target of sign-in links."""
    return _render(request, safe_return_path(request.query_params.get("next")))


@router.get(PROVIDER_PATH)
async def sign_in_with_provider(request: Request) -> Response:
    """Send the browser to the identity provider."""
    return await _go_to_provider(request, safe_return_path(request.query_params.get("next")))


@router.get(SILENT_PATH)
async def sign_in_silently(request: Request) -> Response:
    """Send a browser whose session has lapsed to the identity provider, which asks the person for nothing."""
    return_to = safe_return_path(request.query_params.get("next"))
    lapsed = await _lapsed_session(request)
    if lapsed is None:
        return RedirectResponse(f"{SIGN_IN_PATH}?{urlencode({'next': return_to})}", 303)
    return await _go_to_provider(request, return_to, lapsed.key)


@router.get(f"{SILENT_PATH}/possible")
async def silent_sign_in_possible(request: Request) -> Response:
    """Whether the session of this browser has lapsed, so that it may go on without a question."""
    return JSONResponse({"possible": await _lapsed_session(request) is not None})


@router.get(COMMAND_LINE_PATH)
async def sign_in_command_line(request: Request) -> Response:
    """Send the browser to the identity provider, for a command line on the same computer that waits for it."""
    asked = _loopback_request(f"{COMMAND_LINE_PATH}?{request.url.query}")
    if asked is None:
        detail = "this is not an address that lcm login prints; run lcm login again and open the whole address"
        raise ProblemError(ProblemCode.INVALID, detail)
    return await _go_to_provider(request, asked.page)


@router.get(f"{PROVIDER_PATH}/callback")
async def finish_sign_in(request: Request) -> Response:
    """The answer of the identity provider, which the browser brings back."""
    _provider_sign_in(request)
    secure = _is_secure(request)
    authenticator = get_services(request).authenticator
    try:
        finished = await authenticator.finish_sign_in(request)
        if (asked := _loopback_request(finished.return_to)) is not None:
            response = await _finish_on_command_line(request, finished, asked)
        else:
            session = await authenticator.open_session(request, finished)
            # A page, not a redirect: browsers send no strict cookie while they follow redirects from another site.
            response = render_fragment("moving_on.html", title="Signed in", url=safe_return_path(finished.return_to))
            response.headers.append("Set-Cookie", session_cookie(session, secure=secure))
    except AccessError as error:
        response = _render_refusal(request, error, error.return_to if isinstance(error, NotRecognizedError) else "/")
    response.headers.append("Set-Cookie", attempt_cookie(None, 0, secure=secure))
    return response


@router.post(SIGN_IN_PATH)
async def sign_in(request: Request) -> Response:
    """Exchange a token for a session."""
    form = await read_form(request)
    return_to = safe_return_path(form_field(form, "next"))
    try:
        require_same_origin(request)
        caller = await get_services(request).authenticator.authenticate_token(request, form_field(form, "token"))
        return await _start_session(request, caller, return_to)
    except AccessError as error:
        return _render_refusal(request, error, return_to)


@router.post(f"{SIGN_IN_PATH}/link")
async def sign_in_by_link(request: Request) -> Response:
    """Exchange the code of a link for a session."""
    form = await read_form(request)
    return_to = safe_return_path(form_field(form, "next"))
    try:
        require_same_origin(request)
        caller = await get_services(request).authenticator.links.redeem(form_field(form, "code"))
        return await _start_session(request, caller, return_to)
    except AccessError as error:
        return _render_refusal(request, error, return_to)


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session. This is harmless, so that the cookie is enough and no CSRF token is required."""
    elsewhere = await get_services(request).authenticator.end_session(request)
    headers = {"Set-Cookie": expired_cookie(secure=_is_secure(request))}
    if is_fragment(request):
        return Response(status_code=204, headers={**headers, "HX-Redirect": elsewhere or SIGN_IN_PATH})
    if elsewhere is None:
        return RedirectResponse(SIGN_IN_PATH, 303, headers)
    # A page, not a redirect: the response to a form must stay on this site (form-action of our policy).
    response = render_fragment("moving_on.html", title="Signed out of LCM", url=elsewhere)
    response.headers.update(headers)
    return response


def _loopback_request(path: str) -> LoopbackRequest | None:
    """The request in an address that `lcm login` printed; None for any other page or a part of such an address."""
    page, _, query = path.partition("?")
    if page != COMMAND_LINE_PATH:
        return None
    try:
        fields = parse_qs(query, max_num_fields=10, strict_parsing=True)
    except ValueError:
        return None
    port, challenge, state = (fields.get(name, [""])[0] for name in ("port", "code_challenge", "state"))
    if not (_PORT.fullmatch(port) and _CHALLENGE.fullmatch(challenge) and _STATE.fullmatch(state)):
        return None
    return LoopbackRequest(int(port), challenge, state) if int(port) <= _LAST_PORT else None


async def _finish_on_command_line(request: Request, finished: FinishedSignIn, asked: LoopbackRequest) -> HTMLResponse:
    """Open a session for the command line, and let the person hand it over.

    The person decides: another user of the same computer could wait at a port and send this page's address.
    """
    address = client_address(request)
    session, code = await find_sign_ins(request).finish_in_browser(finished, address, asked.code_challenge)
    authenticator = get_services(request).authenticator
    caller = await authenticator.in_teams(session.caller)  # no session has the roles in teams
    authenticator.security_log.signed_in(caller, address)
    return render_fragment(
        "command_line_sign_in.html",
        name=caller.name,
        role=caller.role_text,
        port=asked.port,
        url=asked.address(code.reveal()),
    )


async def _lapsed_session(request: Request) -> LapsedSession | None:
    session_id = session_id_from(request.cookies, secure=_is_secure(request))
    authenticator = get_services(request).authenticator
    if session_id is None or authenticator.sign_in is None:
        return None
    return await authenticator.sessions.lapsed(session_id)


async def _go_to_provider(request: Request, return_to: str, replaces: str = "") -> Response:
    sign_in = _provider_sign_in(request)
    try:
        started = await sign_in.start(return_to, replaces)
    except AccessError as error:
        return _render_refusal(request, error, return_to)
    cookie = attempt_cookie(started.cookie, ATTEMPT_LIFETIME.total_seconds(), secure=_is_secure(request))
    return RedirectResponse(started.url, 303, {"Set-Cookie": cookie})


async def _start_session(request: Request, caller: Caller, return_to: str) -> Response:
    session = await get_services(request).authenticator.begin_session(request, caller)
    return RedirectResponse(return_to, 303, {"Set-Cookie": session_cookie(session, secure=_is_secure(request))})


def _provider_sign_in(request: Request) -> OidcSignIn:
    sign_in = get_services(request).authenticator.sign_in
    if sign_in is None:
        detail = "no identity provider is configured here; an admin must set OIDC_ISSUER and OIDC_CLIENT_ID"
        raise ProblemError(ProblemCode.NOT_FOUND, detail)
    return sign_in


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _render(request: Request, return_to: str, *, problem: str = "", status: int = 200) -> HTMLResponse:
    has_provider = get_services(request).authenticator.sign_in is not None
    provider_url = f"{PROVIDER_PATH}?{urlencode({'next': return_to})}" if has_provider else ""
    return render_fragment(
        "sign_in.html", status=status, problem=problem, return_to=return_to, provider_url=provider_url
    )


def _render_refusal(request: Request, error: AccessError, return_to: str) -> HTMLResponse:
    return _render(request, return_to, problem=str(error), status=HTTP_STATUS_BY_CODE[error.code])


def require_same_origin(request: Request) -> None:
    """Another site must not sign a user in under an account of its choice."""
    origin = request.headers.get("Origin")
    if origin is not None and _host_of(origin) != request.headers.get("Host"):
        raise CsrfError("This request did not come from the sign-in page. Open the sign-in page and try again.")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None  # such as http://[, which is no host of ours
