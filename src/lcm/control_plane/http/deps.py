"""Dependencies of routes: the authenticated caller, the leader of a controller's write, and request headers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Request
from pydantic import WithJsonSchema

from lcm.control_plane.auth.oidc.command_line import CommandLineSignIns
from lcm.control_plane.auth.oidc.sign_in import FinishedSignIn, NotRecognizedError, OidcSignIn
from lcm.control_plane.auth.oidc.verifier import NoRoleError, OidcVerifier, looks_like_jwt
from lcm.control_plane.auth.rate_limit import MAX_FAILED_CALLBACKS, AcceptedCredentials, SignInRateLimiter
from lcm.control_plane.auth.roles import Caller, TooManyAttemptsError, UnauthenticatedError
from lcm.control_plane.auth.security_log import SecurityLog
from lcm.control_plane.auth.session_cookies import attempt_from, check_csrf, session_id_from
from lcm.control_plane.auth.session_record import session_id_of_token
from lcm.control_plane.auth.sessions import OpenSession, SessionService
from lcm.control_plane.auth.sign_in_links import SignInLinks
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.auth.tokens import TokenService, parse_token_id
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.journal.sse_client import StreamAccess
from lcm.control_plane.records.idempotency import IdempotencyKey
from lcm.control_plane.records.unit_of_work import Leader
from lcm.core import clock
from lcm.http.callers import is_in_process
from lcm.model.access import CallerKind, Role, SessionKind
from lcm.model.fleet.state import FIRST_TERM
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.auth.oidc.provider import TokenSet

CSRF_HEADER = "X-LCM-CSRF"
_CALLER = "lcm.caller"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_KEY_LENGTH = 128
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
_ETAG_PATTERN = r'^(\*|(W/)?"?[0-9]{1,15}"?)$'


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Authenticates requests by token, session token, JWT or session cookie."""

    tokens: TokenService
    sessions: SessionService
    rate_limiter: SignInRateLimiter
    links: SignInLinks
    security_log: SecurityLog
    oidc: OidcVerifier | None = None
    sign_in: OidcSignIn | None = None
    command_line: CommandLineSignIns | None = None
    accepted: AcceptedCredentials = field(default_factory=AcceptedCredentials)
    callback_limiter: SignInRateLimiter = field(default_factory=lambda: SignInRateLimiter(limit=MAX_FAILED_CALLBACKS))
    teams: TeamDirectory | None = None

    async def authenticate(self, request: Request) -> Caller:
        """The caller, or `UnauthenticatedError`. A failed attempt is counted before the next one is checked."""
        text = _bearer_token(request)
        if text is None:
            return await self.in_teams(await self._authenticate_session(request))
        return await self.in_teams(await self.authenticate_token(request, text))

    async def in_teams(self, caller: Caller) -> Caller:
        """The caller with the roles in teams that they have now."""
        return caller if self.teams is None else await self.teams.with_grants(caller)

    async def authenticate_token(self, request: Request, text: str) -> Caller:
        """The caller that a token, session token or JWT belongs to."""
        if is_in_process(request.scope):
            return await self._verify(text)  # controllers of this process: no guess elsewhere may block them
        address = client_address(request)
        token_id = parse_token_id(text)
        generated = token_id is not None or session_id_of_token(text) is not None
        if not generated and not self.accepted.contains(address, text):
            self._check_rate(address)  # a token from the settings can be guessed, a generated one cannot
        try:
            caller = await self._verify(text)
        except NoRoleError as error:
            self.security_log.no_role(error, address)  # the token is valid, so this is no guess
            raise
        except UnauthenticatedError:
            self.accepted.discard(address, text)
            self.rate_limiter.record_failure(address, token_id)
            self.security_log.refused(address, token_id, request.url.path)
            self._check_rate(address, token_id)
            raise
        self.accepted.add(address, text)
        return caller

    async def begin_session(self, request: Request, caller: Caller, issued: TokenSet | None = None) -> OpenSession:
        """Open a session for a caller who has just signed in; `issued` are the tokens of the identity provider."""
        session = await self.sessions.begin(caller, client_address(request), issued)
        self.security_log.signed_in(caller, client_address(request))
        return session

    async def finish_sign_in(self, request: Request) -> FinishedSignIn:
        """The person, by the answer of the identity provider; no session is open yet."""
        assert self.sign_in is not None
        address = client_address(request)
        cookie = attempt_from(request.cookies, secure=request.url.scheme == "https")
        # An answer to a sign-in that began here is no guess: wrong tokens of a neighbor must not stop it.
        limiter = self.callback_limiter if self.sign_in.has_started(cookie) else self.rate_limiter
        self._check_rate(address, limiter=limiter)
        try:
            return await self.sign_in.finish(cookie, dict(request.query_params))
        except NoRoleError as error:
            self.security_log.no_role(error, address)
            if lapsed := self.sign_in.replaced_by(cookie):
                await self.sessions.forget(lapsed)  # as when a renewal finds that the groups are lost
            raise
        except NotRecognizedError as error:
            await self.sessions.forget(error.replaces)  # the next page asks for a sign-in at once
            raise
        except UnauthenticatedError as error:
            limiter.record_failure(address)
            self.security_log.refused(address, None, request.url.path, reason=str(error))
            raise

    async def open_session(self, request: Request, finished: FinishedSignIn) -> OpenSession:
        """The session of a browser that came back from the identity provider."""
        if not finished.replaces:
            return await self.begin_session(request, finished.caller, finished.tokens)
        address = client_address(request)
        session = await self.sessions.begin_again(finished.replaces, finished.caller, address, finished.tokens)
        if session is None:
            if self.sign_in is not None and finished.tokens.refresh_token is not None:
                self.sign_in.give_back(finished.tokens.refresh_token)
            raise UnauthenticatedError(
                f"Your session has ended, and {finished.caller.name} is signed in at the identity provider now."
                f" Sign in again to continue as {finished.caller.name}."
            )
        return session

    async def end_session(self, request: Request) -> str | None:
        """Sign out: end the session of the session token or cookie, if there is one.

        Returns where the browser goes to sign out at the identity provider too; None if the session has none.
        """
        session_id = _session_id(request)
        ended = None if session_id is None else await self.sessions.end(session_id)
        if ended is None:
            return None
        self.security_log.signed_out(ended.caller, client_address(request))
        return None if self.sign_in is None else await self.sign_in.sign_out(ended)

    def _check_rate(
        self, address: str, token_id: str | None = None, *, limiter: SignInRateLimiter | None = None
    ) -> None:
        try:
            (limiter or self.rate_limiter).check(address, token_id)
        except TooManyAttemptsError as error:
            self.security_log.limited(address, token_id, error.retry_after)
            raise

    async def access_of(self, request: Request, caller: Caller) -> StreamAccess:
        """The access of a request that stays open: it ends with the token or session that it began with."""
        session_id = _session_id(request)
        by_session = caller.kind is CallerKind.SESSION and session_id is not None

        async def still_valid() -> bool:
            if caller.expires_at is not None and caller.expires_at <= clock.now():
                return False
            now: Caller | None = caller
            if by_session:
                assert session_id is not None
                now = await self.sessions.current_caller(session_id)
            elif caller.token_id is not None and not await self.tokens.still_valid(caller.token_id):
                return False
            # A person who leaves a team, or changes to another, may not see what the stream began with.
            return now is not None and (await self.in_teams(now)).scope == caller.scope

        return StreamAccess(caller.identity or f"{caller.kind.value}:{caller.name}", still_valid, caller.scope)

    async def _verify(self, text: str) -> Caller:
        """Try tokens first: a token from the settings can have any form, also that of a JWT."""
        if (session_id := session_id_of_token(text)) is not None:
            return (await self.sessions.resume(session_id, SessionKind.COMMAND_LINE)).caller
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


def _session_id(request: Request) -> str | None:
    """The session that a request belongs to: that of its bearer token, else that of its cookie."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return session_id_of_token(text.strip())
    return session_id_from(request.cookies, secure=request.url.scheme == "https")


def client_address(request: Request) -> str:
    """The address of the client; empty if it has none."""
    return request.client.host if request.client else ""


def _bearer_token(request: Request) -> str | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if not text:
        return None
    if scheme.lower() != "bearer":
        raise UnauthenticatedError("Only Authorization: Bearer <token> is supported.")
    return text.strip()


async def any_caller(request: Request) -> Caller:
    """The authenticated caller, whatever its role. Several dependencies of a route ask for it."""
    known: Caller | None = request.scope.get(_CALLER)
    if known is None:
        authenticator: Authenticator = request.app.state.services.authenticator
        known = request.scope[_CALLER] = await authenticator.authenticate(request)
    return known


REQUIRED_ROLES: dict[Callable[[Request], Awaitable[Caller]], Role] = {}
"""The role that each dependency below requires. The OpenAPI document reads it."""


def _require_role(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    async def check(request: Request) -> Caller:
        caller = await any_caller(request)
        caller.require(role)
        return caller

    REQUIRED_ROLES[check] = role
    return check


REQUIRED_TEAM_ROLES: dict[Callable[[Request], Awaitable[Caller]], tuple[Role, ...]] = {}
"""The roles in a team that do as well, for dependencies that accept any."""


def _require_role_or_team(role: Role, *in_team: Role) -> Callable[[Request], Awaitable[Caller]]:
    """A role for the whole fleet, or one of these in any team. The route decides which objects the caller sees."""

    async def check(request: Request) -> Caller:
        caller = await any_caller(request)
        caller.require_any(role, *in_team)
        return caller

    REQUIRED_ROLES[check], REQUIRED_TEAM_ROLES[check] = role, in_team
    return check


AnyCaller = Annotated[Caller, Depends(any_caller)]
Viewer = Annotated[Caller, Depends(_require_role(Role.VIEWER))]
Operator = Annotated[Caller, Depends(_require_role(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(_require_role(Role.ADMIN))]
Member = Annotated[Caller, Depends(_require_role_or_team(Role.VIEWER, Role.INSTRUCTOR, Role.LEARNER))]
MemberWriter = Annotated[Caller, Depends(_require_role_or_team(Role.OPERATOR, Role.INSTRUCTOR, Role.LEARNER))]
Instructor = Annotated[Caller, Depends(_require_role_or_team(Role.VIEWER, Role.INSTRUCTOR))]
InstructorWriter = Annotated[Caller, Depends(_require_role_or_team(Role.OPERATOR, Role.INSTRUCTOR))]
InstructorAdmin = Annotated[Caller, Depends(_require_role_or_team(Role.ADMIN, Role.INSTRUCTOR))]
Controller = Annotated[Caller, Depends(_require_role(Role.CONTROLLER))]


async def leader_from_headers(
    caller: Controller,
    x_lcm_controller: Annotated[
        str | None, Header(max_length=64, description="The name of the controller that writes (its service_name).")
    ] = None,
    x_lcm_leader_term: Annotated[
        str | None,
        Header(max_length=20, description="Its leadership term. A term older than the newest one is rejected."),
    ] = None,
    x_lcm_time: Annotated[
        str | None, Header(max_length=40, description="What its clock shows. It is compared with the other clocks.")
    ] = None,
    x_lcm_earliest_time: Annotated[
        str | None, Header(max_length=40, description="The earliest time that follows from the clocks it knows.")
    ] = None,
) -> Leader:
    """The controller and term of a write. The first two headers are required."""
    term = int(x_lcm_leader_term) if x_lcm_leader_term and x_lcm_leader_term.isdecimal() else 0
    if not x_lcm_controller or term < FIRST_TERM:
        detail = (
            "writes of controllers require the headers X-LCM-Controller (a name)"
            " and X-LCM-Leader-Term (a number from 1 on)"
        )
        raise ProblemError(ProblemCode.LEADER_HEADERS_MISSING, detail)
    sent_at = _parse_time(x_lcm_time)
    earliest = _parse_time(x_lcm_earliest_time)
    if sent_at is not None:
        clock.compare(f"the clock of {x_lcm_controller}", sent_at)
    if earliest is not None:
        clock.record_earliest(f"the earliest time of {x_lcm_controller}", earliest)
    return Leader(x_lcm_controller, term, sent_at)


def _parse_time(text: str | None) -> datetime | None:
    """A time with a zone, in years that clocks show; None for anything else, as no request is refused for its clock."""
    try:
        shown = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    if shown is None or shown.tzinfo is None or not _FIRST_YEAR <= shown.year <= _LAST_YEAR:
        return None
    return shown


async def idempotency_key_from_header(
    request: Request,
    caller: AnyCaller,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=_MAX_KEY_LENGTH,
            description="For one day, a repeated request with the same key gets the same response.",
        ),
    ] = None,
) -> IdempotencyKey | None:
    """The Idempotency-Key of a request, bound to the caller and to the content of the request."""
    if idempotency_key is None:
        return None
    body = await request.body()
    return IdempotencyKey(caller.unique_name, idempotency_key, f"{request.method} {request.url.path}\n".encode() + body)


async def version_from_if_match(
    if_match: Annotated[
        str | None,
        Header(
            pattern=_ETAG_PATTERN,
            description="Apply the change only to this version, as returned in ETag; otherwise 412.",
        ),
        WithJsonSchema({"type": "string", "pattern": _ETAG_PATTERN}),
    ] = None,
) -> int | None:
    """The version in If-Match, with or without quotes. `*` or no header means any version."""
    if if_match is None or if_match.strip() == "*":
        return None
    return int(if_match.strip().removeprefix("W/").strip('"'))


LeaderDep = Annotated[Leader, Depends(leader_from_headers)]
IdempotencyKeyDep = Annotated[IdempotencyKey | None, Depends(idempotency_key_from_header)]
IfMatchDep = Annotated[int | None, Depends(version_from_if_match)]
