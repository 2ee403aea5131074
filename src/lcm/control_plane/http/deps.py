"""Who calls: the token, the JWT or the cookie of a request, and the headers of a leader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Request
from pydantic import WithJsonSchema

from lcm.control_plane.auth.oidc import OidcVerifier, looks_like_jwt
from lcm.control_plane.auth.rate_limit import SignInRateLimiter
from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.auth.sessions import SessionService, SignInLinks, check_csrf, session_id_from
from lcm.control_plane.auth.tokens import TokenService, parse_token_id
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.idempotency import IdempotencyKey
from lcm.control_plane.workers.controller_writes import Leader
from lcm.model.access import Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CSRF_HEADER = "X-LCM-CSRF"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_KEY_LENGTH = 128
_ETAG_PATTERN = r'^(\*|(W/)?"?[0-9]{1,15}"?)$'


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Everything that can tell who is calling."""

    tokens: TokenService
    sessions: SessionService
    throttle: SignInRateLimiter
    oidc: OidcVerifier | None = None
    links: SignInLinks = field(default_factory=SignInLinks)

    async def admit(self, request: Request) -> Caller:
        """The caller, or a refusal. Failed attempts are counted before the next is looked at."""
        text = _bearer_token(request)
        if text is None:
            return await self._authenticate_session(request)
        return await self.authenticate_token(request, text)

    async def authenticate_token(self, request: Request, text: str) -> Caller:
        """Who shows this token or JWT."""
        address = request.client.host if request.client else ""
        token_id = parse_token_id(text)
        if token_id is None:
            self.throttle.check(address)  # a token from the settings could be guessed, one that we made cannot
        try:
            return await self._verify(text)
        except UnauthenticatedError:
            self.throttle.failed(address, token_id)
            self.throttle.check(address, token_id)
            raise

    async def _verify(self, text: str) -> Caller:
        """A token of ours first: one from the settings may look like anything, also like a JWT."""
        try:
            return await self.tokens.verify(text)
        except UnauthenticatedError:
            if self.oidc is None or not looks_like_jwt(text):
                raise
        return await self.oidc.verify(text)

    async def _authenticate_session(self, request: Request) -> Caller:
        session_id = session_id_from(request.cookies, secure=request.url.scheme == "https")
        if session_id is None:
            raise UnauthenticatedError("Sign in: send Authorization: Bearer <token>, or use lcm login.")
        session = await self.sessions.resume(session_id)
        if request.method not in _SAFE_METHODS:
            check_csrf(session, request.headers.get(CSRF_HEADER))
        return session.caller


def _bearer_token(request: Request) -> str | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if not text:
        return None
    if scheme.lower() != "bearer":
        raise UnauthenticatedError("Only Authorization: Bearer <token> is understood.")
    return text.strip()


async def any_caller(request: Request) -> Caller:
    """Whoever is signed in, with whatever role."""
    gate: Authenticator = request.app.state.parts.gate
    return await gate.admit(request)


REQUIRED_ROLES: dict[Callable[[Request], Awaitable[Caller]], Role] = {}
"""Which role each of the checks below asks for: what the OpenAPI document says is read here."""


def _require_role(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    async def check(request: Request) -> Caller:
        caller = await any_caller(request)
        caller.require(role)
        return caller

    REQUIRED_ROLES[check] = role
    return check


AnyCaller = Annotated[Caller, Depends(any_caller)]
Viewer = Annotated[Caller, Depends(_require_role(Role.VIEWER))]
Operator = Annotated[Caller, Depends(_require_role(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(_require_role(Role.ADMIN))]
Controller = Annotated[Caller, Depends(_require_role(Role.CONTROLLER))]


async def leader_from_headers(
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
        raise ProblemError(ProblemCode.LEADER_HEADERS_MISSING, detail)
    return Leader(x_lcm_controller, int(x_lcm_leader_term))


async def idempotency_key(
    request: Request,
    caller: Operator,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=_MAX_KEY_LENGTH, description="The same key with the same request gets the same answer for a day"
        ),
    ] = None,
) -> IdempotencyKey | None:
    """The Idempotency-Key of a request, bound to the caller and to what was asked."""
    if idempotency_key is None:
        return None
    body = await request.body()
    return IdempotencyKey(caller.name, idempotency_key, f"{request.method} {request.url.path}\n".encode() + body)


async def if_match(
    if_match: Annotated[
        str | None,
        Header(pattern=_ETAG_PATTERN, description="Change it only at this version, as ETag gave it; else 412"),
        WithJsonSchema({"type": "string", "pattern": _ETAG_PATTERN}),
    ] = None,
) -> int | None:
    """The version of If-Match, with or without quotes; * and nothing mean any."""
    if if_match is None or if_match.strip() == "*":
        return None
    return int(if_match.strip().removeprefix("W/").strip('"'))


LeaderDep = Annotated[Leader, Depends(leader_from_headers)]
IdempotencyKeyDep = Annotated[IdempotencyKey | None, Depends(idempotency_key)]
IfMatchDep = Annotated[int | None, Depends(if_match)]
