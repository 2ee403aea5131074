"""Session tokens: one per account and server, asked for once however many need it, renewed before it ends."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lcm.cml.client.json_values import MalformedResponseError, as_object, optional_number, parse_json
from lcm.cml.errors import CMLAuthenticationError, CMLProtocolError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cml.types import Credentials

EXPIRY_MARGIN = timedelta(minutes=1)
DEFAULT_TOKEN_LIFETIME = timedelta(hours=1)
MAX_TOKEN_LIFETIME = timedelta(days=1)
REJECTION_CACHE_TIME = timedelta(minutes=1)

_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~+/=-]{1,4096}")


@dataclass(frozen=True, slots=True)
class _CachedToken:
    text: str
    until: datetime


@dataclass(frozen=True, slots=True)
class _CachedRejection:
    cause: str
    until: datetime


class TokenCache:
    """Tokens by server and account. The password is part of the account: a changed one is tried at once."""

    def __init__(self, log_in: Callable[[str, Credentials], Awaitable[str]]) -> None:
        self._log_in = log_in
        self._known: dict[tuple[str, Credentials], _CachedToken | _CachedRejection] = {}
        self._asking: dict[tuple[str, Credentials], asyncio.Task[str]] = {}

    async def get(self, address: str, credentials: Credentials) -> str:
        """A token that is good for a while; logs in when there is none. A refusal is not tried again for a minute."""
        key = (address, credentials)
        known = self._known.get(key)
        if known is not None and clock.now() < known.until:
            if isinstance(known, _CachedRejection):
                raise CMLAuthenticationError(address, known.cause)
            return known.text
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key), name=f"cml-login:{address}")
            self._asking[key] = task
            task.add_done_callback(lambda ended: self._asked(key, ended))
        # Whoever gives up waiting must not take the login away from the others.
        return await asyncio.shield(task)

    def refuse(self, address: str, credentials: Credentials, token: str) -> None:
        """The server did not accept this token; one that was fetched meanwhile stays."""
        known = self._known.get((address, credentials))
        if isinstance(known, _CachedToken) and known.text == token:
            del self._known[(address, credentials)]

    def forget(self, address: str) -> None:
        """Drop all that is known of a server, also what is being asked for now."""
        for key in [key for key in self._known if key[0] == address]:
            del self._known[key]
        for key in [key for key in self._asking if key[0] == address]:
            del self._asking[key]

    async def _ask(self, key: tuple[str, Credentials]) -> str:
        address, credentials = key
        me = asyncio.current_task()
        try:
            token = await self._log_in(address, credentials)
        except CMLAuthenticationError as error:
            if self._asking.get(key) is me:
                self._known[key] = _CachedRejection(error.cause, clock.now() + REJECTION_CACHE_TIME)
            raise
        if not _TOKEN_PATTERN.fullmatch(token):
            raise CMLProtocolError(address, "the session token holds characters that no token has")
        if self._asking.get(key) is me:
            self._known[key] = _CachedToken(token, clock.now() + token_lifetime(token))
        return token

    def _asked(self, key: tuple[str, Credentials], task: asyncio.Task[str]) -> None:
        if self._asking.get(key) is task:
            del self._asking[key]
        if not task.cancelled():
            task.exception()  # looked at: everybody who waited may have given up


def token_lifetime(token: str) -> timedelta:
    """How long to use a token: its life as its issuer wrote it, less a margin.

    The life is the span between two times of the server's clock, so that a clock that differs from ours does no harm.
    The signature is not checked: the token is ours to send, not to believe.
    """
    claims = _token_claims(token)
    until, since = optional_number(claims, "exp"), optional_number(claims, "iat")
    if until is None:
        return DEFAULT_TOKEN_LIFETIME
    began = clock.now().timestamp() if since is None else since
    life = timedelta(seconds=min(max(until - began, 0.0), MAX_TOKEN_LIFETIME.total_seconds()))
    return max(life - EXPIRY_MARGIN, life / 2)


def _token_claims(token: str) -> dict[str, object]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return as_object(parse_json(base64.urlsafe_b64decode(padded)), "claims")
    except (binascii.Error, ValueError, MalformedResponseError):
        return {}
