"""Who am I, tokens, and the key of stored secrets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import SecretStr

from lcm.control_plane.auth.tokens import UnknownToken
from lcm.control_plane.errors import Refusal
from lcm.control_plane.http.api.workers import Cursor, Limit
from lcm.control_plane.http.deps import Admin, Anybody
from lcm.control_plane.http.pagination import documented
from lcm.control_plane.records.kinds import AUDIT
from lcm.control_plane.secrets.rotation import rotate_secrets
from lcm.control_plane.services import parts
from lcm.control_plane.store.port import Entry
from lcm.core import clock
from lcm.model.access import MadeToken, NewToken, TokenInfo, WhoAmI
from lcm.model.answers import SecretsRotated
from lcm.model.audit import AuditEntry
from lcm.model.base import Answer
from lcm.model.problems import ProblemCode

router = APIRouter(prefix="/api", tags=["access"], responses=documented(401, 403, 422, 429))


class TokenList(Answer):
    """Tokens, without their secrets."""

    items: list[TokenInfo]
    next_cursor: str | None = None


@router.get("/whoami")
async def whoami(caller: Anybody) -> WhoAmI:
    """Who is calling and which role."""
    return WhoAmI(name=caller.name, role=caller.role, kind=caller.kind, expires_at=caller.expires_at)


@router.get("/tokens")
async def list_tokens(request: Request, caller: Admin, limit: Limit = 100, cursor: Cursor = None) -> TokenList:
    """All tokens, without their secrets."""
    page = await parts(request).gate.tokens.page(after=cursor, limit=limit)
    return TokenList(items=list(page.items), next_cursor=page.next_after)


@router.post("/tokens", status_code=201, responses=documented(409))
async def make_token(request: Request, caller: Admin, body: NewToken) -> MadeToken:
    """A new token; its text is in this answer and nowhere else."""
    if body.expires_at is not None and body.expires_at <= clock.now():
        raise Refusal(ProblemCode.INVALID, "expires_at: must be in the future")
    info, secret = await parts(request).gate.tokens.create(
        body.name,
        body.role,
        created_by=caller.name,
        expires_at=body.expires_at,
        audit=lambda made: [_line(caller, "token_created", made, role=made.role.value)],
    )
    return MadeToken(token=SecretStr(secret.reveal()), info=info)


@router.delete("/tokens/{token_id}", responses=documented(404))
async def revoke_token(
    request: Request,
    caller: Admin,
    token_id: Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The id of the token, as the list has it")],
) -> TokenInfo:
    """Let a token open nothing any more."""
    try:
        return await parts(request).gate.tokens.revoke(
            token_id, revoked_by=caller.name, audit=lambda gone: [_line(caller, "token_revoked", gone)]
        )
    except UnknownToken:
        raise Refusal(ProblemCode.NOT_FOUND, f"there is no token {token_id}") from None


@router.post("/secrets/rotate")
async def rotate_stored_secrets(request: Request, caller: Admin) -> SecretsRotated:
    """Encrypt all stored secrets with the first key of LCM_SECRET_KEY_FILE; asked again it finds nothing to do."""
    return await rotate_secrets(parts(request).plane, caller.actor)


def _line(caller: Admin, action: str, token: TokenInfo, **details: str) -> Entry:
    now = clock.now()
    entry = AuditEntry(at=now, actor=caller.actor, action=action, subject=token.id, reason=token.name, details=details)
    return Entry(AUDIT, token.id, entry.model_dump_json().encode(), now)
