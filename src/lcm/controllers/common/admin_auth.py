"""Authentication for a controller's admin API: the control plane identifies the caller by the token.

The control plane counts failed sign-ins per address, and all requests of this controller come from one address: guessed
tokens must not block the controller itself. So only a few failed attempts per minute are passed on: a few of each
client, and a few more in all. A token that was accepted before is always passed on, and one of the generated form,
which nobody can guess, unless its own client failed: guesses of others lock no admin out.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from lcm.client.errors import ClientError, TooManyAttemptsError, UnauthenticatedError
from lcm.core import clock
from lcm.model.access import CallerIdentity, Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

IDENTITY_CACHE_SECONDS: Final = 10.0
MAX_CACHED_IDENTITIES: Final = 128
MAX_FAILED_ATTEMPTS: Final = 3
MAX_FAILED_ATTEMPTS_IN_ALL: Final = 8
MAX_CLIENTS: Final = 1_000
ACCEPTED_SECONDS: Final = 3600.0
FAILED_ATTEMPTS_WINDOW: Final = 60.0
WHOAMI_TIMEOUT: Final = 5.0
_MAX_WAITING: Final = 32
_GENERATED_TOKEN = re.compile(r"lcm_[a-z0-9-]{1,40}_[0-9a-f]{64}")


class AdminAuthError(Exception):
    """The caller is rejected; the text says what to do and contains no secret."""

    def __init__(self, code: ProblemCode, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.retry_after = retry_after


class AdminAuthenticator:
    """Accepts callers with a role. `whoami` returns the owner of a token, from the control plane."""

    def __init__(self, whoami: Callable[[str], Awaitable[CallerIdentity]]) -> None:
        self._whoami = whoami
        self._cache: dict[str, tuple[float, CallerIdentity]] = {}  # by a hash of the token: until when, and who
        self._accepted: OrderedDict[str, float] = OrderedDict()  # tokens by their hash, and until when they pass
        self._failed_in_all: deque[float] = deque(maxlen=MAX_FAILED_ATTEMPTS_IN_ALL)
        self._failed_by_client: OrderedDict[str, deque[float]] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def authenticate(
        self, authorization: str | None, needed: Role = Role.ADMIN, *, client: str = ""
    ) -> CallerIdentity:
        """The caller with this header, if they have the role. `client` is the address that they call from."""
        caller = await self._identify(_bearer_token(authorization), client)
        if caller.role is not needed:
            detail = f"This needs the role {needed}; {caller.name} has the role {caller.role_text}."
            raise AdminAuthError(ProblemCode.FORBIDDEN, detail)
        return caller

    async def _identify(self, token: str, client: str) -> CallerIdentity:
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        caller = self._cached(key)
        if caller is not None:
            return caller
        if self._waiting >= _MAX_WAITING:
            raise AdminAuthError(ProblemCode.UNAVAILABLE, "Too many pending sign-ins. Try again.", retry_after=1)
        self._waiting += 1
        try:
            # One at a time: otherwise any number of guesses could be sent before the first has failed.
            async with self._one_at_a_time:
                caller = self._cached(key)
                if caller is None:
                    self._check_failed_attempts(token, key, client)
                    caller = await self._fetch(token, key, client)
                    self._remember(key, caller)
                return caller
        finally:
            self._waiting -= 1

    async def _fetch(self, token: str, key: str, client: str) -> CallerIdentity:
        try:
            async with asyncio.timeout(WHOAMI_TIMEOUT):
                return await self._whoami(token)
        except ValueError:
            detail = "A token is printable ASCII without spaces."
            raise AdminAuthError(ProblemCode.UNAUTHENTICATED, detail) from None
        except UnauthenticatedError as error:
            self._accepted.pop(key, None)
            self._record_failure(client)
            raise AdminAuthError(ProblemCode.UNAUTHENTICATED, error.detail) from error
        except TooManyAttemptsError as error:
            wait = max(1, math.ceil(error.retry_after or 1))
            raise AdminAuthError(ProblemCode.TOO_MANY_ATTEMPTS, error.detail, retry_after=wait) from error
        except (ClientError, TimeoutError) as error:
            why = str(error) or f"no response within {WHOAMI_TIMEOUT:g} s"
            detail = f"The control plane cannot verify the token: {why}"
            raise AdminAuthError(ProblemCode.UNAVAILABLE, detail, retry_after=5) from error

    def _record_failure(self, client: str) -> None:
        now = asyncio.get_running_loop().time()
        self._failed_in_all.append(now)
        self._failed_by_client.setdefault(client, deque(maxlen=MAX_FAILED_ATTEMPTS)).append(now)
        self._failed_by_client.move_to_end(client)
        if len(self._failed_by_client) > MAX_CLIENTS:
            self._failed_by_client.popitem(last=False)

    def _check_failed_attempts(self, token: str, key: str, client: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._accepted.get(key, 0.0) > now:
            return
        limits = [self._failed_by_client.get(client, deque(maxlen=MAX_FAILED_ATTEMPTS))]
        if not _GENERATED_TOKEN.fullmatch(token):
            limits.append(self._failed_in_all)
        blocked = [
            failed[0] + FAILED_ATTEMPTS_WINDOW
            for failed in limits
            if len(failed) == failed.maxlen and now - failed[0] < FAILED_ATTEMPTS_WINDOW
        ]
        if blocked:
            wait = math.ceil(max(blocked) - now)
            detail = f"Too many failed sign-ins. Try again in {wait} s."
            raise AdminAuthError(ProblemCode.TOO_MANY_ATTEMPTS, detail, retry_after=wait)

    def _cached(self, key: str) -> CallerIdentity | None:
        until, caller = self._cache.get(key, (0.0, None))
        return caller if asyncio.get_running_loop().time() < until else None

    def _remember(self, key: str, caller: CallerIdentity) -> None:
        """Cache for a few seconds, and not beyond the token's expiry: a revoked token must not stay valid for long."""
        left = math.inf if caller.expires_at is None else (caller.expires_at - clock.now()).total_seconds()
        self._accepted[key] = asyncio.get_running_loop().time() + ACCEPTED_SECONDS
        self._accepted.move_to_end(key)
        if len(self._accepted) > MAX_CLIENTS:
            self._accepted.popitem(last=False)
        self._cache.pop(key, None)
        while len(self._cache) >= MAX_CACHED_IDENTITIES:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = (asyncio.get_running_loop().time() + min(IDENTITY_CACHE_SECONDS, left), caller)


def _bearer_token(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if not token.strip():
        raise AdminAuthError(ProblemCode.UNAUTHENTICATED, "Sign in: send Authorization: Bearer <token>.")
    if scheme.lower() != "bearer":
        raise AdminAuthError(ProblemCode.UNAUTHENTICATED, "Only Authorization: Bearer <token> is supported.")
    return token.strip()
