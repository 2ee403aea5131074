"""Who looks at a page: whoever is signed in, or somebody who has to sign in first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl, quote

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from lcm.control_plane.auth import links
from lcm.control_plane.auth.cookies import session_id_in
from lcm.control_plane.auth.roles import Caller, Unauthenticated, allows
from lcm.control_plane.auth.sessions import check_csrf
from lcm.control_plane.errors import Refusal
from lcm.control_plane.http.api.workers import split
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.control_plane.services import parts
from lcm.model.access import Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from fastapi import FastAPI

SIGN_IN = links.PATH
_READING = ("GET", "HEAD")
_LARGEST_FORM = 2_000_000
MOST_IDS = 100


class SignInFirst(Exception):
    """Nobody is signed in; `back` is where they wanted to go."""

    def __init__(self, back: str) -> None:
        super().__init__(back)
        self.back = back


@dataclass(frozen=True, slots=True)
class Looking:
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


async def visitor(request: Request) -> Looking:
    """Who is signed in by cookie. A change must carry the proof that it comes from one of our pages."""
    session_id = session_id_in(request.cookies, secure=request.url.scheme == "https")
    if session_id is None:
        raise SignInFirst(_address(request))
    try:
        session = await parts(request).gate.sessions.resume(session_id)
    except Unauthenticated:
        raise SignInFirst(_address(request)) from None
    if request.method not in _READING:
        check_csrf(session, request.headers.get(CSRF_HEADER))
    return Looking(session.caller, session.csrf.reveal())


async def operator(who: Annotated[Looking, Depends(visitor)]) -> Looking:
    """Who may change workers."""
    who.caller.require(Role.OPERATOR)
    return who


async def admin(who: Annotated[Looking, Depends(visitor)]) -> Looking:
    """Who may change templates, settings and breakers."""
    who.caller.require(Role.ADMIN)
    return who


Visitor = Annotated[Looking, Depends(visitor)]
OperatorVisitor = Annotated[Looking, Depends(operator)]
AdminVisitor = Annotated[Looking, Depends(admin)]


def is_fragment(request: Request) -> bool:
    """Whether a script of ours asks for a part of a page."""
    return request.headers.get("HX-Request") == "true"


def safe_back(address: str | None) -> str:
    """A path of ours to go to; anything that could lead elsewhere becomes the first page."""
    if not address or not address.startswith("/") or address.startswith(("//", "/\\")) or "\\" in address:
        return "/"
    return address if address.isprintable() and len(address) <= 2000 else "/"


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form that was sent."""
    body = await request.body()
    if len(body) > _LARGEST_FORM:
        raise Refusal(ProblemCode.INVALID, "body: the form is too large")
    fields: dict[str, list[str]] = {}
    for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=2000):
        fields.setdefault(name, []).append(value)
    return fields


def field_of(form: dict[str, list[str]], name: str) -> str:
    """One field, without blanks around it; empty when it is missing."""
    return form.get(name, [""])[-1].strip()


def version_of(form: dict[str, list[str]]) -> int | None:
    """The version of what somebody looked at before they asked for a change."""
    version = field_of(form, "version")
    return int(version) if version.isdecimal() else None


def ids_of(request: Request, most: int = MOST_IDS) -> list[str]:
    """The records that an address names."""
    return split(request.query_params.getlist("ids"))[:most]


def install(app: FastAPI) -> None:
    """Have whoever is not signed in led to where they can."""

    @app.exception_handler(SignInFirst)
    async def sign_in_first(request: Request, error: SignInFirst) -> Response:
        address = SIGN_IN if error.back == "/" else f"{SIGN_IN}?next={quote(error.back, safe='')}"
        if is_fragment(request):
            # A redirect would be followed by the script itself, and the sign-in page put into the middle of a page.
            return Response(status_code=401, headers={"HX-Redirect": address})
        return RedirectResponse(address, 303)


def _address(request: Request) -> str:
    shown = request.headers.get("HX-Current-URL") if is_fragment(request) else None
    if shown is not None:
        return safe_back(_path_of(shown))
    if request.method not in _READING:
        return "/"
    query = f"?{request.url.query}" if request.url.query else ""
    return safe_back(request.url.path + query)


def _path_of(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return "/" + rest.partition("/")[2] if scheme in ("http", "https") else address
