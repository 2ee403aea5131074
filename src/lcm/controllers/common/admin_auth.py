"""Who may ask a controller for more than its health: the control plane says so, of the token that the caller shows.

The control plane counts failed sign-ins by address, and all of ours come from one: somebody who guesses tokens here
must not have the controller itself turned away there. So only a few guesses a minute are passed on.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import deque
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
FAILED_ATTEMPTS_WINDOW: Final = 60.0
WHOAMI_TIMEOUT: Final = 5.0
_MAX_WAITING: Final = 32


class AdminAuthError(Exception):
    """Somebody is not let in; the text says what to do, and holds no secret."""

    def __init__(self, code: ProblemCode, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.retry_after = retry_after


class AdminAuthenticator:
    """Lets in who has a role. `whoami` asks the control plane whose a token is."""

    def __init__(self, whoami: Callable[[str], Awaitable[CallerIdentity]]) -> None:
        self._whoami = whoami
        self._known: dict[str, tuple[float, CallerIdentity]] = {}  # by a hash of the token: until when, and who
        self._failed_attempts: deque[float] = deque(maxlen=MAX_FAILED_ATTEMPTS)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def admit(self, authorization: str | None, needed: Role = Role.ADMIN) -> CallerIdentity:
        """Who shows this header, if they have the role."""
        caller = await self._identify(_bearer_token(authorization))
        if caller.role is not needed:
            detail = f"This needs the role {needed}; {caller.name} has the role {caller.role}."
            raise AdminAuthError(ProblemCode.FORBIDDEN, detail)
        return caller

    async def _identify(self, token: str) -> CallerIdentity:
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._cached(key)
        if known is not None:
            return known
        if self._waiting >= _MAX_WAITING:
            raise AdminAuthError(ProblemCode.UNAVAILABLE, "Too many wait to be let in. Try again.", retry_after=1)
        self._waiting += 1
        try:
            # One after the other: else any number of guesses would be under way before the first has failed.
            async with self._one_at_a_time:
                known = self._cached(key)
                if known is None:
                    self._check_failed_attempts()
                    known = await self._ask(token)
                    self._remember(key, known)
                return known
        finally:
            self._waiting -= 1

    async def _ask(self, token: str) -> CallerIdentity:
        try:
            async with asyncio.timeout(WHOAMI_TIMEOUT):
                return await self._whoami(token)
        except ValueError:
            detail = "A token is printable ASCII without spaces."
            raise AdminAuthError(ProblemCode.UNAUTHENTICATED, detail) from None
        except UnauthenticatedError as refusal:
            self._failed_attempts.append(asyncio.get_running_loop().time())
            raise AdminAuthError(ProblemCode.UNAUTHENTICATED, refusal.detail) from refusal
        except TooManyAttemptsError as refusal:
            wait = max(1, math.ceil(refusal.retry_after or 1))
            raise AdminAuthError(ProblemCode.TOO_MANY_ATTEMPTS, refusal.detail, retry_after=wait) from refusal
        except (ClientError, TimeoutError) as error:
            why = str(error) or f"no answer within {WHOAMI_TIMEOUT:g} s"
            detail = f"The control plane cannot be asked who you are: {why}"
            raise AdminAuthError(ProblemCode.UNAVAILABLE, detail, retry_after=5) from error

    def _check_failed_attempts(self) -> None:
        now = asyncio.get_running_loop().time()
        if (
            len(self._failed_attempts) == MAX_FAILED_ATTEMPTS
            and now - self._failed_attempts[0] < FAILED_ATTEMPTS_WINDOW
        ):
            wait = math.ceil(self._failed_attempts[0] + FAILED_ATTEMPTS_WINDOW - now)
            detail = f"Too many failed sign-ins. Try again in {wait} s."
            raise AdminAuthError(ProblemCode.TOO_MANY_ATTEMPTS, detail, retry_after=wait)

    def _cached(self, key: str) -> CallerIdentity | None:
        until, caller = self._known.get(key, (0.0, None))
        return caller if asyncio.get_running_loop().time() < until else None

    def _remember(self, key: str, caller: CallerIdentity) -> None:
        """For a few seconds, and no longer than the token is good: one that is revoked must not go on for long."""
        left = math.inf if caller.expires_at is None else (caller.expires_at - clock.now()).total_seconds()
        self._known.pop(key, None)
        while len(self._known) >= MAX_CACHED_IDENTITIES:
            del self._known[next(iter(self._known))]
        self._known[key] = (asyncio.get_running_loop().time() + min(IDENTITY_CACHE_SECONDS, left), caller)


def _bearer_token(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if not token.strip():
        raise AdminAuthError(ProblemCode.UNAUTHENTICATED, "Sign in: send Authorization: Bearer <token>.")
    if scheme.lower() != "bearer":
        raise AdminAuthError(ProblemCode.UNAUTHENTICATED, "Only Authorization: Bearer <token> is understood.")
    return token.strip()
