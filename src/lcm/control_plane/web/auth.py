"""The signed-in user of a page, the role that a page requires, and the redirect to the sign-in page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.auth.session_cookies import check_csrf, session_id_from
from lcm.control_plane.auth.sign_in_links import SIGN_IN_LINK_PATH
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.control_plane.services import get_services
from lcm.control_plane.teams.visibility import instructs
from lcm.model.access import Role

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lcm.model.lablet.record import LabletDefinitionSummary

SIGN_IN_PATH = SIGN_IN_LINK_PATH
SILENT_PATH = f"{SIGN_IN_PATH}/silent"
LABS_PATH = "/my"
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
        return self.caller.allows(Role.OPERATOR)

    @property
    def in_teams_only(self) -> bool:
        """Whether the user has roles in teams, and none for the whole fleet."""
        return self.caller.role is None

    def may_open(self, page: str) -> bool:
        """Whether the user may open a page of the navigation."""
        return not self.in_teams_only or page == "lablets" or (page == "bookings" and self.can_create)

    @property
    def can_create(self) -> bool:
        """Whether the user may create lablets and definitions, in some team or in all."""
        return self.can_operate or any(grant.role is Role.INSTRUCTOR for grant in self.caller.grants)

    @property
    def can_see_definitions(self) -> bool:
        """Whether the user may see definitions, of some team or of all."""
        return self.can_create or self.caller.allows(Role.VIEWER)

    def may_switch(self, definition: LabletDefinitionSummary) -> bool:
        """Whether the user may enable and disable a definition."""
        return self.can_administer or instructs(self.caller, definition.team)

    @property
    def can_administer(self) -> bool:
        """Whether the user may change templates, settings and breakers."""
        return self.caller.allows(Role.ADMIN)


class NoFleetRoleError(Exception):
    """The person has roles in teams only: their page is the one of their labs."""


async def signed_in_user(request: Request) -> WebUser:
    """The user of the session cookie, whatever their role. A change must carry the CSRF token of one of our pages."""
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
    caller = await get_services(request).authenticator.in_teams(session.caller)
    return WebUser(caller, session.csrf.reveal())


async def require_member(user: Annotated[WebUser, Depends(signed_in_user)]) -> WebUser:
    user.caller.require_any(Role.VIEWER, Role.INSTRUCTOR, Role.LEARNER)
    return user


async def require_instructor(user: Annotated[WebUser, Depends(signed_in_user)]) -> WebUser:
    user.caller.require_any(Role.VIEWER, Role.INSTRUCTOR)
    return user


async def require_ender(user: Annotated[WebUser, Depends(signed_in_user)]) -> WebUser:
    user.caller.require_any(Role.OPERATOR, Role.INSTRUCTOR, Role.LEARNER)
    return user


async def require_creator(user: Annotated[WebUser, Depends(signed_in_user)]) -> WebUser:
    user.caller.require_any(Role.OPERATOR, Role.INSTRUCTOR)
    return user


async def require_switcher(user: Annotated[WebUser, Depends(signed_in_user)]) -> WebUser:
    user.caller.require_any(Role.ADMIN, Role.INSTRUCTOR)
    return user


async def current_user(user: Annotated[WebUser, Depends(signed_in_user)]) -> WebUser:
    """A user with a role for the whole fleet: these pages show all of it."""
    if user.caller.role is None:
        raise NoFleetRoleError
    return user


async def require_viewer(user: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    user.caller.require(Role.VIEWER)
    return user


async def require_operator(user: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    user.caller.require(Role.OPERATOR)
    return user


async def require_admin(user: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    user.caller.require(Role.ADMIN)
    return user


CurrentUser = Annotated[WebUser, Depends(require_viewer)]
MemberUser = Annotated[WebUser, Depends(require_member)]
"""Also people with a role in a team. The page shows what they may see."""
InstructorUser = Annotated[WebUser, Depends(require_instructor)]
EnderUser = Annotated[WebUser, Depends(require_ender)]
"""Operators, and people with a role in a team: who may end lablets, each those of theirs."""
CreatorUser = Annotated[WebUser, Depends(require_creator)]
"""Operators, and instructors in their teams."""
SwitchUser = Annotated[WebUser, Depends(require_switcher)]
"""Admins, and instructors in their teams: who may enable and disable definitions."""
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

    @app.exception_handler(NoFleetRoleError)
    async def redirect_to_labs(request: Request, error: NoFleetRoleError) -> Response:
        if is_fragment(request) or request.method not in _SAFE_METHODS:
            return Response("This needs a role for the whole fleet.", 403, media_type="text/plain")
        return RedirectResponse(LABS_PATH, 303)


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
