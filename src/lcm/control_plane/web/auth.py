"""The signed-in user of a page, the role that a page requires, and the redirect to the sign-in page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth.roles import Caller, UnauthenticatedError, allows
from lcm.control_plane.auth.session_cookies import check_csrf, session_id_from
from lcm.control_plane.auth.sign_in_links import SIGN_IN_LINK_PATH
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.control_plane.services import get_services
from lcm.model.access import Role

if TYPE_CHECKING:
    from fastapi import FastAPI

SIGN_IN_PATH = SIGN_IN_LINK_PATH
SILENT_PATH = f"{SIGN_IN_PATH}/silent"
SIGNED_OUT_EVENT = "lcm:signed-out"
"""The event that informs scripts that the session has ended."""
_SAFE_METHODS = ("GET", "HEAD")


class SignInRequiredError(Exception):
    """No user is signed in. `return_to` is the page to show after the sign-in.

    `has_lapsed` means that the session may go on if the identity provider still knows the person.
    """

    def __init__(self, return_to: str, *, has_lapsed: bool = False) -> None:
        super().__init__(return_to)
        self.return_to = return_to
        self.has_lapsed = has_lapsed


@dataclass(frozen=True, slots=True)
class WebUser:
    """The signed-in user. `csrf` is part of every page and must come back with every change."""

    caller: Caller
    csrf: str

    @property
    def can_operate(self) -> bool:
        """Whether the user may change workers and lablets."""
        return allows(self.caller.role, Role.OPERATOR)

    @property
    def can_administer(self) -> bool:
        """Whether the user may change templates, settings and breakers."""
        return allows(self.caller.role, Role.ADMIN)


async def current_user(request: Request) -> WebUser:
    """The user of the session cookie. A change must carry the CSRF token of one of our pages."""
    session_id = session_id_from(request.cookies, secure=request.url.scheme == "https")
    if session_id is None:
        raise SignInRequiredError(_return_path(request))
    sessions = get_services(request).authenticator.sessions
    try:
        session = await sessions.resume(session_id)
    except UnauthenticatedError:
        has_lapsed = await sessions.lapsed(session_id) is not None
        raise SignInRequiredError(_return_path(request), has_lapsed=has_lapsed) from None
    if request.method not in _SAFE_METHODS:
        check_csrf(session, request.headers.get(CSRF_HEADER))
    return WebUser(session.caller, session.csrf.reveal())


async def require_operator(user: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    user.caller.require(Role.OPERATOR)
    return user


async def require_admin(user: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    user.caller.require(Role.ADMIN)
    return user


CurrentUser = Annotated[WebUser, Depends(current_user)]
OperatorUser = Annotated[WebUser, Depends(require_operator)]
AdminUser = Annotated[WebUser, Depends(require_admin)]


def is_fragment(request: Request) -> bool:
    """Whether htmx requests a part of a page."""
    return request.headers.get("HX-Request") == "true"


def safe_return_path(path: str | None) -> str:
    """The path if it is one of our own pages; the first page for anything that could lead to another site."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or "\\" in path:
        return "/"
    return path if path.isprintable() and len(path) <= 2000 else "/"


def install(app: FastAPI) -> None:
    """Redirect users who are not signed in to the sign-in page."""

    @app.exception_handler(SignInRequiredError)
    async def redirect_to_sign_in(request: Request, error: SignInRequiredError) -> Response:
        page = SILENT_PATH if error.has_lapsed else SIGN_IN_PATH
        url = page if error.return_to == "/" else f"{page}?next={quote(error.return_to, safe='')}"
        if is_fragment(request):
            # The page stays, with everything that was typed: a script asks the user to sign in again.
            return Response(status_code=401, headers={"HX-Trigger": SIGNED_OUT_EVENT, "HX-Reswap": "none"})
        return RedirectResponse(url, 303)


def _return_path(request: Request) -> str:
    current_url = request.headers.get("HX-Current-URL") if is_fragment(request) else None
    if current_url is not None:
        return safe_return_path(_path_of_url(current_url))
    if request.method not in _SAFE_METHODS:
        return "/"
    query = f"?{request.url.query}" if request.url.query else ""
    return safe_return_path(request.url.path + query)


def _path_of_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return "/" + rest.partition("/")[2] if scheme in ("http", "https") else url
