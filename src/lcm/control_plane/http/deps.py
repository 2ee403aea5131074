"""Who calls: the token, the JWT or the cookie of a request, and the headers of a leader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Request
from pydantic import WithJsonSchema

from lcm.control_plane.auth.cookies import session_id_in
from lcm.control_plane.auth.links import SignInLinks
from lcm.control_plane.auth.oidc import Oidc, looks_like_jwt
from lcm.control_plane.auth.rate_limit import Throttle
from lcm.control_plane.auth.roles import Caller, Unauthenticated
from lcm.control_plane.auth.sessions import Sessions, check_csrf
from lcm.control_plane.auth.tokens import Tokens, token_id_of
from lcm.control_plane.errors import Refusal
from lcm.control_plane.records.idempotency import Key
from lcm.control_plane.workers.controller_writes import Leader
from lcm.model.access import Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CSRF_HEADER = "X-LCM-CSRF"
_READING = ("GET", "HEAD", "OPTIONS")
_LONGEST_KEY = 128
_VERSION = r'^(\*|(W/)?"?[0-9]{1,15}"?)$'


@dataclass(frozen=True, slots=True)
class Gate:
    """Everything that can tell who is calling."""

    tokens: Tokens
    sessions: Sessions
    throttle: Throttle
    oidc: Oidc | None = None
    links: SignInLinks = field(default_factory=SignInLinks)

    async def admit(self, request: Request) -> Caller:
        """The caller, or a refusal. Failed attempts are counted before the next is looked at."""
        text = _bearer(request)
        if text is None:
            return await self._by_cookie(request)
        return await self.by_token(request, text)

    async def by_token(self, request: Request, text: str) -> Caller:
        """Who shows this token or JWT."""
        address = request.client.host if request.client else ""
        token_id = token_id_of(text)
        if token_id is None:
            self.throttle.check(address)  # a token from the settings could be guessed, one that we made cannot
        try:
            return await self._verify(text)
        except Unauthenticated:
            self.throttle.failed(address, token_id)
            self.throttle.check(address, token_id)
            raise

    async def _verify(self, text: str) -> Caller:
        """A token of ours first: one from the settings may look like anything, also like a JWT."""
        try:
            return await self.tokens.verify(text)
        except Unauthenticated:
            if self.oidc is None or not looks_like_jwt(text):
                raise
        return await self.oidc.verify(text)

    async def _by_cookie(self, request: Request) -> Caller:
        session_id = session_id_in(request.cookies, secure=request.url.scheme == "https")
        if session_id is None:
            raise Unauthenticated("Sign in: send Authorization: Bearer <token>, or use lcm login.")
        session = await self.sessions.resume(session_id)
        if request.method not in _READING:
            check_csrf(session, request.headers.get(CSRF_HEADER))
        return session.caller


def _bearer(request: Request) -> str | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if not text:
        return None
    if scheme.lower() != "bearer":
        raise Unauthenticated("Only Authorization: Bearer <token> is understood.")
    return text.strip()


async def anybody(request: Request) -> Caller:
    """Whoever is signed in, with whatever role."""
    gate: Gate = request.app.state.parts.gate
    return await gate.admit(request)


NEEDED_ROLES: dict[Callable[[Request], Awaitable[Caller]], Role] = {}
"""Which role each of the checks below asks for: what the OpenAPI document says is read here."""


def _needs(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    async def check(request: Request) -> Caller:
        caller = await anybody(request)
        caller.require(role)
        return caller

    NEEDED_ROLES[check] = role
    return check


Anybody = Annotated[Caller, Depends(anybody)]
Viewer = Annotated[Caller, Depends(_needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(_needs(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(_needs(Role.ADMIN))]
Controller = Annotated[Caller, Depends(_needs(Role.CONTROLLER))]


async def leader(
    caller: Controller,
    x_lcm_controller: Annotated[
        str | None, Header(max_length=64, description="The name of the controller that writes: its service_name")
    ] = None,
    x_lcm_leader_term: Annotated[
        str | None, Header(max_length=20, description="The term it leads in; a term older than the newest is refused")
    ] = None,
) -> Leader:
    """The controller and term of a write; without both nothing is written."""
    if not x_lcm_controller or not x_lcm_leader_term or not x_lcm_leader_term.isdecimal():
        detail = "writes of controllers carry X-LCM-Controller (a name) and X-LCM-Leader-Term (a number)"
        raise Refusal(ProblemCode.LEADER_HEADERS_MISSING, detail)
    return Leader(x_lcm_controller, int(x_lcm_leader_term))


async def idempotency_key(
    request: Request,
    caller: Operator,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=_LONGEST_KEY, description="The same key with the same request gets the same answer for a day"
        ),
    ] = None,
) -> Key | None:
    """The Idempotency-Key of a request, bound to the caller and to what was asked."""
    if idempotency_key is None:
        return None
    body = await request.body()
    return Key(caller.name, idempotency_key, f"{request.method} {request.url.path}\n".encode() + body)


async def if_match(
    if_match: Annotated[
        str | None,
        Header(pattern=_VERSION, description="Change it only at this version, as ETag gave it; else 412"),
        WithJsonSchema({"type": "string", "pattern": _VERSION}),
    ] = None,
) -> int | None:
    """The version of If-Match, with or without quotes; * and nothing mean any."""
    if if_match is None or if_match.strip() == "*":
        return None
    return int(if_match.strip().removeprefix("W/").strip('"'))


TheLeader = Annotated[Leader, Depends(leader)]
TheKey = Annotated[Key | None, Depends(idempotency_key)]
IfMatch = Annotated[int | None, Depends(if_match)]
