"""Who am I, tokens, and the key of stored secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, Page, Resource, api_path, bearer_header, encode_body
from lcm.client.responses import ApiRequest
from lcm.model.access import (
    CallerIdentity,
    CreatedToken,
    CreateTokenRequest,
    Role,
    SecretRotationResult,
    SignInLink,
    TokenInfo,
)
from lcm.model.base import LenientModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from typing import Any


class Access(Resource):
    """Sessions are for browsers and have no methods here."""

    async def whoami(self, token: str | None = None) -> CallerIdentity:
        """Who is calling and which role; with a token, whose that is. ValueError: no token can look like this."""
        headers = {} if token is None else bearer_header(token)
        return await self._ask(ApiRequest("access.whoami", "GET", api_path("whoami"), headers=headers), CallerIdentity)

    async def sign_in_link(self) -> SignInLink:
        """The path of a link by which a browser signs in as whoever asks."""
        return await self._ask(ApiRequest("access.sign-in-link", "POST", api_path("session", "links")), SignInLink)

    def tokens(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[TokenInfo]:
        """All tokens, without their secrets."""
        return self._pages("access.tokens", api_path("tokens"), Page[TokenInfo], {}, page_size)

    async def make_token(self, name: str, role: Role, *, expires_at: datetime | None = None) -> CreatedToken:
        """A new token; its text is in this answer and nowhere else."""
        body = CreateTokenRequest(name=name, role=role, expires_at=expires_at)
        return await self._ask(
            ApiRequest("access.make-token", "POST", api_path("tokens"), body=encode_body(body)), CreatedToken
        )

    async def revoke_token(self, token_id: str) -> TokenInfo:
        """Let a token open nothing any more."""
        return await self._ask(ApiRequest("access.revoke-token", "DELETE", api_path("tokens", token_id)), TokenInfo)

    async def rotate_secrets(self) -> SecretRotationResult:
        """Have all stored secrets encrypted with the first key; it can be asked again at any time."""
        return await self._ask(
            ApiRequest("access.rotate-secrets", "POST", api_path("secrets", "rotate")), SecretRotationResult
        )


class Readiness(LenientModel):
    """Whether the control plane can do its work now, and if not, why."""

    ready: bool
    reasons: tuple[str, ...] = ()


class ProcessDetails(LenientModel, extra="allow"):
    """What a process says of itself."""


class Probes(Resource):
    """These need no token."""

    async def health(self) -> dict[str, Any]:
        """What the process says of its health."""
        return (await self._ask(ApiRequest("probes.health", "GET", "/health"), ProcessDetails)).model_dump()

    async def ready(self) -> Readiness:
        """Whether it can do its work now; a 503 with reasons is an answer, not an error."""
        return await self._ask(ApiRequest("probes.ready", "GET", "/ready", answers=(200, 503)), Readiness)

    async def info(self) -> dict[str, Any]:
        """What this process is."""
        return (await self._ask(ApiRequest("probes.info", "GET", "/info"), ProcessDetails)).model_dump()

    async def metrics(self) -> str:
        """Prometheus metrics, as text."""
        return (await self._transport.read(ApiRequest("probes.metrics", "GET", "/metrics"))).decode()
