"""Who am I, tokens, and the key of stored secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, Group, Page, bearer, encoded, path_to
from lcm.client.responses import Call
from lcm.model.access import MadeToken, NewToken, Role, SignInLink, TokenInfo, WhoAmI
from lcm.model.answers import SecretsRotated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime


class Access(Group):
    """Sessions are for browsers and have no methods here."""

    async def whoami(self, token: str | None = None) -> WhoAmI:
        """Who is calling and which role; with a token, whose that is. ValueError: no token can look like this."""
        headers = {} if token is None else bearer(token)
        return await self._ask(Call("access.whoami", "GET", path_to("whoami"), headers=headers), WhoAmI)

    async def sign_in_link(self) -> SignInLink:
        """The path of a link by which a browser signs in as whoever asks."""
        return await self._ask(Call("access.sign-in-link", "POST", path_to("session", "links")), SignInLink)

    def tokens(self, *, page_size: int = PAGE) -> AsyncIterator[TokenInfo]:
        """All tokens, without their secrets."""
        return self._pages("access.tokens", path_to("tokens"), Page[TokenInfo], {}, page_size)

    async def make_token(self, name: str, role: Role, *, expires_at: datetime | None = None) -> MadeToken:
        """A new token; its text is in this answer and nowhere else."""
        body = NewToken(name=name, role=role, expires_at=expires_at)
        return await self._ask(Call("access.make-token", "POST", path_to("tokens"), body=encoded(body)), MadeToken)

    async def revoke_token(self, token_id: str) -> TokenInfo:
        """Let a token open nothing any more."""
        return await self._ask(Call("access.revoke-token", "DELETE", path_to("tokens", token_id)), TokenInfo)

    async def rotate_secrets(self) -> SecretsRotated:
        """Have all stored secrets encrypted with the first key; it can be asked again at any time."""
        return await self._ask(Call("access.rotate-secrets", "POST", path_to("secrets", "rotate")), SecretsRotated)
