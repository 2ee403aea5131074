"""A limit on failed sign-ins, by client address and by token id.

`check` comes before a secret that a person may have chosen is compared, so that a right guess among too many is refused
like a wrong one. A token of 256 random bits may be compared first: nobody guesses it, and so one misconfigured
client cannot close an address to others behind it.

Memory is bounded: past `most` addresses or ids the one that failed longest ago is forgotten.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import OrderedDict, deque

from lcm.control_plane.auth.roles import TooManyAttemptsError

MAX_FAILURES = 10
WINDOW_SECONDS = 60.0
MAX_TRACKED = 10_000
_IPV6_CUSTOMER_PREFIX = (
    64  # bits of an IPv6 address that a provider gives to one customer, who owns all addresses below
)


class SignInRateLimiter:
    """Failures within the last `window` seconds of the loop's clock."""

    def __init__(self, *, limit: int = MAX_FAILURES, window: float = WINDOW_SECONDS, most: int = MAX_TRACKED) -> None:
        self._addresses = _Failures(limit, window, most)
        self._tokens = _Failures(limit, window, most)

    def check(self, address: str, token_id: str | None = None) -> None:
        """Returns if a sign-in may be tried now, else raises `TooManyAttemptsError`."""
        now = asyncio.get_running_loop().time()
        client = _client_key(address)
        until = self._addresses.blocked_until(client, now)
        # A token that is being guessed at is closed only to addresses that failed themselves: else anybody who knows
        # an id could keep its owner out.
        if token_id is not None and self._addresses.failed_recently(client, now):
            until = max(until, self._tokens.blocked_until(token_id, now))
        if until > now:
            raise TooManyAttemptsError(max(1, math.ceil(until - now)))

    def failed(self, address: str, token_id: str | None = None) -> None:
        """A sign-in failed. A later success does not take it back: else one's own token would buy more guesses."""
        now = asyncio.get_running_loop().time()
        self._addresses.add(_client_key(address), now)
        if token_id is not None:
            self._tokens.add(token_id, now)


class _Failures:
    def __init__(self, limit: int, window: float, most: int) -> None:
        self._limit = limit
        self._window = window
        self._most = most
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, key: str, now: float) -> None:
        self._times.setdefault(key, deque(maxlen=self._limit)).append(now)
        self._times.move_to_end(key)
        while len(self._times) > self._most or now - next(iter(self._times.values()))[-1] >= self._window:
            self._times.popitem(last=False)

    def failed_recently(self, key: str, now: float) -> bool:
        times = self._times.get(key)
        return times is not None and now - times[-1] < self._window

    def blocked_until(self, key: str, now: float) -> float:
        """When the oldest of the last `limit` failures leaves the window; `now` if it is open."""
        times = self._times.get(key)
        if times is None or len(times) < self._limit:
            return now
        return max(now, times[0] + self._window)


def _client_key(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), _IPV6_CUSTOMER_PREFIX), strict=False))
    return str(parsed)
