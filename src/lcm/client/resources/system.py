"""The caller, tokens, rotation of secrets, and the health of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, Resource, api_path, bearer_header, encode_body
from lcm.client.responses import ApiRequest
from lcm.model.access import (
    CallerIdentity,
    CommandLineSession,
    CommandLineSignIn,
    CreatedToken,
    CreateTokenRequest,
    PollSignInRequest,
    RedeemSignInRequest,
    Role,
    SecretRotationResult,
    SessionInfo,
    SignInLink,
    SignInPoll,
    TokenInfo,
)
from lcm.model.base import LenientModel, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from typing import Any

    from pydantic import SecretStr

    from lcm.model.change_preview import ChangePreview


class Access(Resource):
    """The caller, tokens, sessions and secrets. Only browsers sign in with a cookie."""

    async def whoami(self, token: str | None = None) -> CallerIdentity:
        """The caller and their role, or the owner of `token`. Raises ValueError if it is not a valid token."""
        headers = {} if token is None else bearer_header(token)
        return await self._send(ApiRequest("access.whoami", "GET", api_path("whoami"), headers=headers), CallerIdentity)

    async def sign_in_link(self) -> SignInLink:
        """The path of a link that signs a browser in as the caller."""
        return await self._send(ApiRequest("access.sign-in-link", "POST", api_path("session", "links")), SignInLink)

    async def start_sign_in(self) -> CommandLineSignIn:
        """Start a sign-in of this command line at the identity provider; no token needed."""
        call = ApiRequest("access.start-sign-in", "POST", api_path("session", "command-line"))
        return await self._send(call, CommandLineSignIn)

    async def poll_sign_in(self, handle: SecretStr) -> SignInPoll:
        """Whether the person has entered the code; can be repeated, also after a lost response."""
        path, body = api_path("session", "command-line", "poll"), encode_body(PollSignInRequest(handle=handle))
        return await self._send(ApiRequest("access.poll-sign-in", "POST", path, body=body), SignInPoll)

    async def redeem_sign_in(self, code: SecretStr, code_verifier: SecretStr) -> CommandLineSession:
        """The session of a code that a browser brought; can be repeated, also after a lost response."""
        path = api_path("session", "command-line", "redeem")
        body = encode_body(RedeemSignInRequest(code=code, code_verifier=code_verifier))
        return await self._send(ApiRequest("access.redeem-sign-in", "POST", path, body=body), CommandLineSession)

    async def sign_out(self) -> None:
        """End the session of the session token that this client sends; with another token it changes nothing."""
        await self._transport.send_raw(ApiRequest("access.sign-out", "DELETE", api_path("session")))

    def tokens(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[TokenInfo]:
        """All tokens, without their secrets."""
        return self._pages("access.tokens", api_path("tokens"), Page[TokenInfo], {}, page_size)

    async def make_token(
        self, name: str, role: Role, *, team: str | None = None, expires_at: datetime | None = None
    ) -> CreatedToken:
        """Create a token; its text is only in this response."""
        body = CreateTokenRequest(name=name, role=role, team=team, expires_at=expires_at)
        return await self._send(
            ApiRequest("access.make-token", "POST", api_path("tokens"), body=encode_body(body)), CreatedToken
        )

    async def preview_token(
        self, name: str, role: Role, *, team: str | None = None, expires_at: datetime | None = None
    ) -> ChangePreview:
        """What creating a token would do. Nothing is changed."""
        body = CreateTokenRequest(name=name, role=role, team=team, expires_at=expires_at)
        return await self._preview("access.preview-token", api_path("tokens", "preview"), encode_body(body))

    async def preview_revocation(self, token_id: str) -> ChangePreview:
        """What revoking a token would do. Nothing is changed."""
        return await self._preview("access.preview-revocation", api_path("tokens", token_id, "preview"))

    async def preview_rotation(self) -> ChangePreview:
        """What encrypting all stored secrets with the first key would do. Nothing is changed."""
        return await self._preview("access.preview-rotation", api_path("secrets", "rotate", "preview"))

    async def _preview(self, operation: str, path: str, body: bytes | None = None) -> ChangePreview:
        from lcm.model.change_preview import ChangePreview

        return await self._send(ApiRequest(operation, "POST", path, body=body), ChangePreview)

    async def revoke_token(self, token_id: str) -> TokenInfo:
        """Revoke a token."""
        return await self._send(ApiRequest("access.revoke-token", "DELETE", api_path("tokens", token_id)), TokenInfo)

    def sessions(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[SessionInfo]:
        """All open sessions of browsers and command lines."""
        return self._pages("access.sessions", api_path("sessions"), Page[SessionInfo], {}, page_size)

    async def end_session(self, session_id: str) -> SessionInfo:
        """End a session of anyone."""
        return await self._send(
            ApiRequest("access.end-session", "DELETE", api_path("sessions", session_id)), SessionInfo
        )

    async def rotate_secrets(self) -> SecretRotationResult:
        """Encrypt all stored secrets with the first key; can be repeated at any time."""
        return await self._send(
            ApiRequest("access.rotate-secrets", "POST", api_path("secrets", "rotate")), SecretRotationResult
        )


class Readiness(LenientModel):
    """Whether the control plane is ready, if not, why, and what is degraded although it is ready."""

    ready: bool
    reasons: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()


class ProcessDetails(LenientModel, extra="allow"):
    """The details that a process reports about itself."""


class Probes(Resource):
    """Health, readiness, info and metrics; no token needed."""

    async def health(self) -> dict[str, Any]:
        """The health of the process."""
        return (await self._send(ApiRequest("probes.health", "GET", "/health"), ProcessDetails)).model_dump()

    async def ready(self) -> Readiness:
        """Whether it is ready; a 503 with reasons is a result, not an error."""
        return await self._send(ApiRequest("probes.ready", "GET", "/ready", expected_statuses=(200, 503)), Readiness)

    async def info(self) -> dict[str, Any]:
        """Name, version and configuration of the process."""
        return (await self._send(ApiRequest("probes.info", "GET", "/info"), ProcessDetails)).model_dump()

    async def metrics(self) -> str:
        """Prometheus metrics, as text."""
        return (await self._transport.send_raw(ApiRequest("probes.metrics", "GET", "/metrics"))).decode()
