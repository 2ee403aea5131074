"""A rate limit on failed sign-ins, by client address and by token id.

`check` is called before a secret that a person may have chosen is compared, so that a right guess among too many is
rejected like a wrong one. A token of 256 random bits may be compared first: it cannot be guessed, and so a client with
a wrong configuration cannot block others behind the same address.

Memory is bounded: above `max_tracked` addresses or ids, the one that failed longest ago is dropped.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
from collections import OrderedDict, deque
from functools import lru_cache

from lcm.control_plane.auth.roles import TooManyAttemptsError

MAX_FAILURES = 10
MAX_FAILED_CALLBACKS = 200
"""Sign-ins at the identity provider that began here and failed: more than a school behind one address has in a minute.

They are counted apart from guesses. Each may cost a request to the provider, so there is a bound.
"""

WINDOW_SECONDS = 60.0
MAX_TRACKED = 10_000
_IPV6_CUSTOMER_PREFIX = 64  # prefix length of the IPv6 network that one customer gets from a provider


ACCEPTED_SECONDS = 3600.0
"""How long a credential that was accepted from an address passes there, whatever else fails at that address."""


class AcceptedCredentials:
    """Credentials that worked a while ago, by address: guesses at the same address must not block their owners.

    It holds for the same address only. Elsewhere a guess that is right stays blocked like a wrong one.
    """

    def __init__(self, *, seconds: float = ACCEPTED_SECONDS, max_tracked: int = MAX_TRACKED) -> None:
        self._seconds = seconds
        self._max_tracked = max_tracked
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def add(self, address: str, credential: str) -> None:
        """Remember that a credential was accepted from an address."""
        key = _credential_key(address, credential)
        self._until[key] = asyncio.get_running_loop().time() + self._seconds
        self._until.move_to_end(key)
        if len(self._until) > self._max_tracked:
            self._until.popitem(last=False)

    def discard(self, address: str, credential: str) -> None:
        """Forget a credential that is no longer accepted."""
        self._until.pop(_credential_key(address, credential), None)

    def contains(self, address: str, credential: str) -> bool:
        """Whether the credential was accepted from this address a while ago."""
        return self._until.get(_credential_key(address, credential), 0.0) > asyncio.get_running_loop().time()


def _credential_key(address: str, credential: str) -> bytes:
    text = f"{client_key(address)}\n{credential}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class SignInRateLimiter:
    """Counts failures within the last `window` seconds of the loop's clock."""

    def __init__(
        self, *, limit: int = MAX_FAILURES, window: float = WINDOW_SECONDS, max_tracked: int = MAX_TRACKED
    ) -> None:
        self._addresses = _Failures(limit, window, max_tracked)
        self._tokens = _Failures(limit, window, max_tracked)

    def check(self, address: str, token_id: str | None = None) -> None:
        """Raises `TooManyAttemptsError` unless a sign-in may be tried now."""
        now = asyncio.get_running_loop().time()
        client = client_key(address)
        until = self._addresses.blocked_until(client, now)
        # A token under attack is blocked only for addresses that failed themselves: otherwise anyone who knows a token
        # id could lock its owner out.
        if token_id is not None and self._addresses.failed_recently(client, now):
            until = max(until, self._tokens.blocked_until(token_id, now))
        if until > now:
            raise TooManyAttemptsError(max(1, math.ceil(until - now)))

    def record_failure(self, address: str, token_id: str | None = None) -> None:
        """Record a failed sign-in. A later success does not reset it: a valid token must not allow more guesses."""
        now = asyncio.get_running_loop().time()
        self._addresses.add(client_key(address), now)
        if token_id is not None:
            self._tokens.add(token_id, now)


class _Failures:
    def __init__(self, limit: int, window: float, max_tracked: int) -> None:
        self._limit = limit
        self._window = window
        self._max_tracked = max_tracked
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, key: str, now: float) -> None:
        self._times.setdefault(key, deque(maxlen=self._limit)).append(now)
        self._times.move_to_end(key)
        while len(self._times) > self._max_tracked or now - next(iter(self._times.values()))[-1] >= self._window:
            self._times.popitem(last=False)

    def failed_recently(self, key: str, now: float) -> bool:
        times = self._times.get(key)
        return times is not None and now - times[-1] < self._window

    def blocked_until(self, key: str, now: float) -> float:
        """When the oldest of the last `limit` failures leaves the window; `now` if it is not blocked."""
        times = self._times.get(key)
        if times is None or len(times) < self._limit:
            return now
        return max(now, times[0] + self._window)


@lru_cache(maxsize=1_024)
def client_key(address: str) -> str:
    """What stands for the client at an address: for IPv6 its network. Other text is cut.

    Every request asks for it, mostly from a few addresses.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), _IPV6_CUSTOMER_PREFIX), strict=False))
    return str(parsed)
