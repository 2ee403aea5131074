"""Who looks at a page: whoever is signed in, or somebody who has to sign in first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl, quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth import sessions
from lcm.control_plane.auth.roles import Caller, UnauthenticatedError, allows
from lcm.control_plane.auth.sessions import check_csrf, session_id_from
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.api.workers import split_values
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.control_plane.services import get_services
from lcm.model.access import Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from fastapi import FastAPI

SIGN_IN_PATH = sessions.SIGN_IN_LINK_PATH
_SAFE_METHODS = ("GET", "HEAD")
_MAX_FORM_BYTES = 2_000_000
MAX_IDS = 100


class SignInRequiredError(Exception):
    """Nobody is signed in; `back` is where they wanted to go."""

    def __init__(self, back: str) -> None:
        super().__init__(back)
        self.back = back


@dataclass(frozen=True, slots=True)
class WebUser:
    """Somebody who is signed in. `csrf` goes into their pages and comes back with every change."""

    caller: Caller
    csrf: str

    @property
    def operates(self) -> bool:
        """Whether they may change workers."""
        return allows(self.caller.role, Role.OPERATOR)

    @property
    def administers(self) -> bool:
        """Whether they may change templates, settings and breakers."""
        return allows(self.caller.role, Role.ADMIN)


async def current_user(request: Request) -> WebUser:
    """Who is signed in by cookie. A change must carry the proof that it comes from one of our pages."""
    session_id = session_id_from(request.cookies, secure=request.url.scheme == "https")
    if session_id is None:
        raise SignInRequiredError(_return_path(request))
    try:
        session = await get_services(request).gate.sessions.resume(session_id)
    except UnauthenticatedError:
        raise SignInRequiredError(_return_path(request)) from None
    if request.method not in _SAFE_METHODS:
        check_csrf(session, request.headers.get(CSRF_HEADER))
    return WebUser(session.caller, session.csrf.reveal())


async def require_operator(who: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    """Who may change workers."""
    who.caller.require(Role.OPERATOR)
    return who


async def require_admin(who: Annotated[WebUser, Depends(current_user)]) -> WebUser:
    """Who may change templates, settings and breakers."""
    who.caller.require(Role.ADMIN)
    return who


CurrentUser = Annotated[WebUser, Depends(current_user)]
OperatorUser = Annotated[WebUser, Depends(require_operator)]
AdminUser = Annotated[WebUser, Depends(require_admin)]


def is_fragment(request: Request) -> bool:
    """Whether a script of ours asks for a part of a page."""
    return request.headers.get("HX-Request") == "true"


def safe_return_path(address: str | None) -> str:
    """A path of ours to go to; anything that could lead elsewhere becomes the first page."""
    if not address or not address.startswith("/") or address.startswith(("//", "/\\")) or "\\" in address:
        return "/"
    return address if address.isprintable() and len(address) <= 2000 else "/"


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form that was sent."""
    body = await request.body()
    if len(body) > _MAX_FORM_BYTES:
        raise ProblemError(ProblemCode.INVALID, "body: the form is too large")
    fields: dict[str, list[str]] = {}
    for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=2000):
        fields.setdefault(name, []).append(value)
    return fields


def form_field(form: dict[str, list[str]], name: str) -> str:
    """One field, without blanks around it; empty when it is missing."""
    return form.get(name, [""])[-1].strip()


def form_version(form: dict[str, list[str]]) -> int | None:
    """The version of what somebody looked at before they asked for a change."""
    version = form_field(form, "version")
    return int(version) if version.isdecimal() else None


def query_ids(request: Request, most: int = MAX_IDS) -> list[str]:
    """The records that an address names."""
    return split_values(request.query_params.getlist("ids"))[:most]


def install(app: FastAPI) -> None:
    """Have whoever is not signed in led to where they can."""

    @app.exception_handler(SignInRequiredError)
    async def sign_in_first(request: Request, error: SignInRequiredError) -> Response:
        address = SIGN_IN_PATH if error.back == "/" else f"{SIGN_IN_PATH}?next={quote(error.back, safe='')}"
        if is_fragment(request):
            # A redirect would be followed by the script itself, and the sign-in page put into the middle of a page.
            return Response(status_code=401, headers={"HX-Redirect": address})
        return RedirectResponse(address, 303)


def _return_path(request: Request) -> str:
    shown = request.headers.get("HX-Current-URL") if is_fragment(request) else None
    if shown is not None:
        return safe_return_path(_path_of_url(shown))
    if request.method not in _SAFE_METHODS:
        return "/"
    query = f"?{request.url.query}" if request.url.query else ""
    return safe_return_path(request.url.path + query)


def _path_of_url(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return "/" + rest.partition("/")[2] if scheme in ("http", "https") else address
