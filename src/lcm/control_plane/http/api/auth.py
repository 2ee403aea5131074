"""Routes for the caller's identity, tokens, sessions and the rotation of stored secrets."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import structlog
from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.session_cookies import expired_cookie, session_cookie
from lcm.control_plane.auth.sessions import UnknownSessionError
from lcm.control_plane.auth.sign_in_links import SIGN_IN_LINK_SECONDS
from lcm.control_plane.auth.tokens import UnknownTokenError
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.access_preview import preview_new_token, preview_revocation, preview_rotation
from lcm.control_plane.http.deps import Admin, AnyCaller, Authenticator, Member
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, Limit
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.secrets.worker_secrets import rotate_secrets
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import NewJournalEntry
from lcm.control_plane.teams.choice import find_team
from lcm.core import clock
from lcm.model.access import (
    NO_FLEET_ROLE,
    CallerIdentity,
    CreatedToken,
    CreateTokenRequest,
    Role,
    SecretRotationResult,
    SessionInfo,
    SignInLink,
    TokenInfo,
)
from lcm.model.audit import AuditEntry
from lcm.model.base import LenientModel, Page, StrictModel
from lcm.model.change_preview import ChangePreview
from lcm.model.problems import ProblemCode

log = structlog.get_logger(__name__)

router = APIRouter(prefix="/api", tags=["access"], responses=error_responses(401, 403, 422, 429))


TokenIdPath = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The id of the token, as listed.")]


class TokenList(Page[TokenInfo]):
    """A page of tokens, without their secrets."""


class SessionList(Page[SessionInfo]):
    """A page of open sessions."""


@router.get("/whoami")
async def whoami(caller: AnyCaller) -> CallerIdentity:
    """Get the caller's name and roles."""
    return CallerIdentity(
        name=caller.name, role=caller.role, grants=caller.grants, kind=caller.kind, expires_at=caller.expires_at
    )


@router.get("/tokens")
async def list_tokens(request: Request, caller: Admin, limit: Limit = 100, cursor: Cursor = None) -> TokenList:
    """List tokens, without their secrets."""
    page = await get_services(request).authenticator.tokens.page(after=cursor, limit=limit)
    return TokenList(items=tuple(page.items), next_cursor=page.next_cursor)


@router.post("/tokens", status_code=201, responses=error_responses(404, 409))
async def make_token(request: Request, caller: Admin, body: CreateTokenRequest) -> CreatedToken:
    """Create a token. Only this response contains its text."""
    if body.expires_at is not None and body.expires_at <= clock.now():
        raise ProblemError(ProblemCode.INVALID, "expires_at: must be in the future")
    services = get_services(request)
    team = None if body.team is None else find_team(await services.directory.teams(), caller, body.team).id
    details = {} if team is None else {"team": team}
    info, secret = await services.authenticator.tokens.create(
        body.name,
        body.role,
        created_by=caller.name,
        team=team,
        expires_at=body.expires_at,
        audit=lambda token: [_audit_entry(caller, "token_created", token, role=token.role.value, **details)],
    )
    log.info("token created", token_id=info.id, name=info.name, role=info.role.value, by=caller.name)
    return CreatedToken(token=SecretStr(secret.reveal()), info=info)


@router.post("/tokens/preview")
async def preview_token(request: Request, caller: Admin, body: CreateTokenRequest) -> ChangePreview:
    """Preview the creation of a token: whether it would be accepted, and what it allows. Nothing is changed."""
    services = get_services(request)
    return await preview_new_token(services.authenticator.tokens, await services.directory.teams(), body)


@router.post("/tokens/{token_id}/preview", responses=error_responses(404))
async def preview_token_revocation(request: Request, caller: Admin, token_id: TokenIdPath) -> ChangePreview:
    """Preview the revocation of a token: whom it signs out. Nothing is changed."""
    authenticator = get_services(request).authenticator
    return await preview_revocation(authenticator.tokens, authenticator.sessions, caller, token_id)


@router.delete("/tokens/{token_id}", responses=error_responses(404))
async def revoke_token(
    request: Request,
    caller: Admin,
    token_id: TokenIdPath,
) -> TokenInfo:
    """Revoke a token."""
    try:
        info = await get_services(request).authenticator.tokens.revoke(
            token_id, revoked_by=caller.name, audit=lambda token: [_audit_entry(caller, "token_revoked", token)]
        )
    except UnknownTokenError:
        raise ProblemError(ProblemCode.NOT_FOUND, f"token {token_id} does not exist") from None
    log.info("token revoked", token_id=info.id, name=info.name, by=caller.name)
    return info


@router.get("/sessions")
async def list_sessions(request: Request, caller: Admin, limit: Limit = 100, cursor: Cursor = None) -> SessionList:
    """List open sessions of browsers and command lines, the one that expires last first."""
    page = await get_services(request).authenticator.sessions.page(after=cursor, limit=limit)
    return SessionList(items=tuple(page.items), next_cursor=page.next_cursor)


@router.delete("/sessions/{session_id}", responses=error_responses(404))
async def end_session(
    request: Request,
    caller: Admin,
    session_id: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The id of the session, as listed.")],
) -> SessionInfo:
    """End a session. Its event streams end within 10 s; to keep its owner out, revoke the token as well."""
    return await end_session_by_id(get_services(request).authenticator, caller, session_id)


async def end_session_by_id(authenticator: Authenticator, caller: Caller, session_id: str) -> SessionInfo:
    """End a session of any person, for an admin; the audit says whose."""

    def audit(ended: SessionInfo) -> list[NewJournalEntry]:
        now = clock.now()
        details = {"identity": ended.identity, "address": ended.address}
        entry = AuditEntry(at=now, actor=caller.actor, action="session_ended", subject=ended.name, details=details)
        return [NewJournalEntry(AUDIT, entry.subject, entry.model_dump_json().encode(), now)]

    try:
        ended = await authenticator.sessions.end_by_key(session_id, audit)
    except UnknownSessionError:
        raise ProblemError(ProblemCode.NOT_FOUND, "this session does not exist or has already ended") from None
    log.info("session ended", name=ended.name, identity=ended.identity, by=caller.name)
    return ended


@router.post("/secrets/rotate")
async def rotate_stored_secrets(request: Request, caller: Admin) -> SecretRotationResult:
    """Encrypt all stored secrets with the first key of LCM_SECRET_KEY_FILE. It is safe to repeat this."""
    return await rotate_secrets(get_services(request).context, caller.actor)


@router.post("/secrets/rotate/preview")
async def preview_secret_rotation(request: Request, caller: Admin) -> ChangePreview:
    """Preview the rotation of stored secrets: how many it would re-encrypt. Nothing is changed."""
    return await preview_rotation(get_services(request).context)


def _audit_entry(caller: Admin, action: str, token: TokenInfo, **details: str) -> NewJournalEntry:
    now = clock.now()
    entry = AuditEntry(at=now, actor=caller.actor, action=action, subject=token.id, reason=token.name, details=details)
    return NewJournalEntry(AUDIT, token.id, entry.model_dump_json().encode(), now)


session_router = APIRouter(prefix="/api/session", tags=["access"], responses=error_responses(401, 403, 422, 429))


class SignInRequest(StrictModel):
    """The token to sign in with."""

    token: Annotated[SecretStr, Field(min_length=1, max_length=8192)]


class SignInResponse(LenientModel):
    """The signed-in caller, and the value for the header X-LCM-CSRF of requests that change something."""

    name: str
    role: Role | None = Field(default=None, description=f"The role for the whole fleet. {NO_FLEET_ROLE}")
    csrf: str


@session_router.post("", status_code=201, response_model=SignInResponse)
async def sign_in(request: Request, body: SignInRequest) -> Response:
    """Exchange a token for a session cookie, which scripts cannot read. Changes then require the header X-LCM-CSRF."""
    authenticator = get_services(request).authenticator
    caller = await authenticator.authenticate_token(request, body.token.get_secret_value())
    session = await authenticator.begin_session(request, caller)
    secure = request.url.scheme == "https"
    content = {"name": caller.name, "role": caller.role, "csrf": session.csrf.reveal()}
    return JSONResponse(content, 201, {"Set-Cookie": session_cookie(session, secure=secure)})


@session_router.post("/links", status_code=201)
async def make_link(request: Request, caller: Member) -> SignInLink:
    """Create a link that signs a browser in as the caller, once and within ten minutes."""
    path = await get_services(request).authenticator.links.link_path(caller)
    return SignInLink(path=SecretStr(path.reveal()), expires_at=clock.now() + timedelta(seconds=SIGN_IN_LINK_SECONDS))


@session_router.delete("", status_code=204)
async def sign_out(request: Request, caller: AnyCaller) -> Response:
    """End the session of the cookie or of the session token."""
    secure = request.url.scheme == "https"
    await get_services(request).authenticator.end_session(request)
    return Response(status_code=204, headers={"Set-Cookie": expired_cookie(secure=secure)})
