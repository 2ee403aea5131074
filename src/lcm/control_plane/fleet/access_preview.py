"""Previews of changes to access: tokens, and the key of stored secrets. Nothing is changed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.auth.cache import AUTH_CACHE_SECONDS
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.secrets.worker_secrets import count_rotation
from lcm.control_plane.teams.choice import team_not_found
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.change_preview import ChangePreview
from lcm.model.formatting import count_of, count_with_verb, humanize_ago, humanize_until
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.sessions import SessionService
    from lcm.control_plane.auth.teams import TeamList
    from lcm.control_plane.auth.tokens import TokenService
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.model.access import CreateTokenRequest

_ROLE_TEXTS = {
    Role.VIEWER: "may read everything but tokens and secrets, and change nothing",
    Role.OPERATOR: "may change workers and lablets, and hold and release the fleet",
    Role.ADMIN: "may do everything, also create tokens",
    Role.CONTROLLER: "may do what controllers do: write the status of workers and read their secrets",
}


async def preview_new_token(tokens: TokenService, teams: TeamList, request: CreateTokenRequest) -> ChangePreview:
    """What creating a token would do."""
    now = clock.now()
    team = None if request.team is None else teams.find(request.team)
    refusal = ""
    if request.expires_at is not None and request.expires_at <= now:
        refusal = "expires_at: must be in the future"
    elif await tokens.is_name_taken(request.name):
        refusal = f"name: {request.name} is already in use; choose another"
    elif request.team is not None and team is None:
        refusal = team_not_found(request.team).detail
    if refusal:
        return ChangePreview(action="create", refusal=refusal, changes=False)
    ends = "never" if request.expires_at is None else humanize_until(request.expires_at, now)
    allowed = _ROLE_TEXTS.get(request.role, f"has the role {request.role}")
    if team is not None:
        allowed += f" in the team {team.name}"
    return ChangePreview(
        action="create",
        change=f"role {request.role}, expires {ends}",
        effect=f"Requests with the token will be made as {request.name}, who {allowed}.",
    )


async def preview_revocation(
    tokens: TokenService, sessions: SessionService, caller: Caller, token_id: str
) -> ChangePreview:
    """What revoking a token would do: also to the browsers that signed in with it."""
    token = await tokens.find(token_id)
    if token is None:
        raise ProblemError(ProblemCode.NOT_FOUND, f"token {token_id} does not exist")
    now = clock.now()
    if token.revoked_at is not None:
        ago = humanize_ago(token.revoked_at, now)
        return ChangePreview(action="revoke", changes=False, change="revoked", effect=f"It was revoked {ago}.")
    effect = (
        "Requests with it will be rejected immediately, by other control plane processes within"
        f" {AUTH_CACHE_SECONDS:g} seconds. This cannot be undone."
    )
    if caller.token_id == token_id:
        effect += " It is the token of this request: you will have to sign in with another one."
    used = "never used" if token.last_used_at is None else f"last used {humanize_ago(token.last_used_at, now)}"
    signed_in = await sessions.count_of_token(token_id)
    losses = {"Sessions": f"{count_of(signed_in, 'browser')} will be signed out"} if signed_in else {}
    return ChangePreview(action="revoke", change=f"role {token.role}, {used} → revoked", effect=effect, losses=losses)


async def preview_rotation(context: ControlPlaneContext) -> ChangePreview:
    """What encrypting all stored secrets with the first key would do."""
    found = await count_rotation(context)
    parts = [f"{count_with_verb(found.already, 'secret')} already encrypted with it."] if found.already else []
    if found.unreadable:
        unreadable = count_of(len(found.unreadable), "secret")
        parts.append(
            f"{unreadable} cannot be decrypted, because their key is missing or they were altered:"
            f" {', '.join(found.unreadable)}."
        )
    if not found.rotated:
        effect = " ".join(["Nothing is left to re-encrypt.", *parts]) if parts else "No secrets are stored."
        return ChangePreview(action="rotate", changes=False, effect=effect)
    rotated = f"{count_of(found.rotated, 'secret')} will be encrypted with the first key."
    return ChangePreview(
        action="rotate", change=f"first key {context.secret_box.key_id}", effect=" ".join([rotated, *parts])
    )
