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

from lcm.client.errors import ClientError, NotSignedIn, TooManyAttempts
from lcm.core import clock
from lcm.model.access import Role, WhoAmI
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

REMEMBERED_FOR: Final = 10.0
MOST_REMEMBERED: Final = 128
GUESSES: Final = 3
GUESSES_WITHIN: Final = 60.0
ASK_SECONDS: Final = 5.0
_MOST_WAITING: Final = 32


class KeptOut(Exception):
    """Somebody is not let in; the text says what to do, and holds no secret."""

    def __init__(self, code: ProblemCode, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.retry_after = retry_after


class Doorkeeper:
    """Lets in who has a role. `whoami` asks the control plane whose a token is."""

    def __init__(self, whoami: Callable[[str], Awaitable[WhoAmI]]) -> None:
        self._whoami = whoami
        self._known: dict[str, tuple[float, WhoAmI]] = {}  # by a hash of the token: until when, and who
        self._guesses: deque[float] = deque(maxlen=GUESSES)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def admit(self, authorization: str | None, needed: Role = Role.ADMIN) -> WhoAmI:
        """Who shows this header, if they have the role."""
        caller = await self._identify(_token_in(authorization))
        if caller.role is not needed:
            detail = f"This needs the role {needed}; {caller.name} has the role {caller.role}."
            raise KeptOut(ProblemCode.FORBIDDEN, detail)
        return caller

    async def _identify(self, token: str) -> WhoAmI:
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._remembered(key)
        if known is not None:
            return known
        if self._waiting >= _MOST_WAITING:
            raise KeptOut(ProblemCode.UNAVAILABLE, "Too many wait to be let in. Try again.", retry_after=1)
        self._waiting += 1
        try:
            # One after the other: else any number of guesses would be under way before the first has failed.
            async with self._one_at_a_time:
                known = self._remembered(key)
                if known is None:
                    self._check_guesses()
                    known = await self._ask(token)
                    self._remember(key, known)
                return known
        finally:
            self._waiting -= 1

    async def _ask(self, token: str) -> WhoAmI:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._whoami(token)
        except ValueError:
            detail = "A token is printable ASCII without spaces."
            raise KeptOut(ProblemCode.UNAUTHENTICATED, detail) from None
        except NotSignedIn as refusal:
            self._guesses.append(asyncio.get_running_loop().time())
            raise KeptOut(ProblemCode.UNAUTHENTICATED, refusal.detail) from refusal
        except TooManyAttempts as refusal:
            wait = max(1, math.ceil(refusal.retry_after or 1))
            raise KeptOut(ProblemCode.TOO_MANY_ATTEMPTS, refusal.detail, retry_after=wait) from refusal
        except (ClientError, TimeoutError) as error:
            why = str(error) or f"no answer within {ASK_SECONDS:g} s"
            detail = f"The control plane cannot be asked who you are: {why}"
            raise KeptOut(ProblemCode.UNAVAILABLE, detail, retry_after=5) from error

    def _check_guesses(self) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._guesses) == GUESSES and now - self._guesses[0] < GUESSES_WITHIN:
            wait = math.ceil(self._guesses[0] + GUESSES_WITHIN - now)
            detail = f"Too many failed sign-ins. Try again in {wait} s."
            raise KeptOut(ProblemCode.TOO_MANY_ATTEMPTS, detail, retry_after=wait)

    def _remembered(self, key: str) -> WhoAmI | None:
        until, caller = self._known.get(key, (0.0, None))
        return caller if asyncio.get_running_loop().time() < until else None

    def _remember(self, key: str, caller: WhoAmI) -> None:
        """For a few seconds, and no longer than the token is good: one that is revoked must not go on for long."""
        left = math.inf if caller.expires_at is None else (caller.expires_at - clock.now()).total_seconds()
        self._known.pop(key, None)
        while len(self._known) >= MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = (asyncio.get_running_loop().time() + min(REMEMBERED_FOR, left), caller)


def _token_in(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if not token.strip():
        raise KeptOut(ProblemCode.UNAUTHENTICATED, "Sign in: send Authorization: Bearer <token>.")
    if scheme.lower() != "bearer":
        raise KeptOut(ProblemCode.UNAUTHENTICATED, "Only Authorization: Bearer <token> is understood.")
    return token.strip()
