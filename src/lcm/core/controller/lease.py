"""A lease that is kept alive, and how long it can be proven.

The server counts from the receipt of a renewal, we count from its sending: so our end is never later than the server's,
whatever the network did, and no silence extends it.
"""

from __future__ import annotations

import asyncio

from lcm.core import clock
from lcm.core.coordination import Coordination, CoordinationError, LeaseNotFoundError

RENEWALS_PER_TTL = 3
_RETRIES_PER_TTL = 15
_REVOKE_TIMEOUT = 2.0


class LeaseSession:
    """One lease of ours. `remaining` is the proof; `keep` renews until it can no longer be proven."""

    def __init__(self, coordination: Coordination, lease_id: int, ttl: float, sent_at: float) -> None:
        self._coordination = coordination
        self.id = lease_id
        self.ttl = ttl
        self._renewed_at = sent_at
        self._over = False

    @classmethod
    async def open(cls, coordination: Coordination, ttl: int) -> LeaseSession:
        """Ask for a new lease. If the server grants more than asked, only what was asked counts."""
        sent_at = clock.boottime()
        grant = await coordination.grant_lease(ttl)
        return cls(coordination, grant.id, min(float(ttl), grant.ttl), sent_at)

    def remaining(self) -> float:
        """Seconds for which the lease is certainly ours; once seen to be 0 it stays 0, whatever answer comes late."""
        left = 0.0 if self._over else self._renewed_at + self.ttl - clock.boottime()
        if left <= 0.0:
            self._over = True
            return 0.0
        return left

    async def keep(self) -> str:
        """Renew every third of the TTL; returns, in words, why the lease is lost."""
        trouble = "no renewal was acknowledged in time"
        retry_after = self.ttl / _RETRIES_PER_TTL
        next_look = self._renewed_at + self.ttl / RENEWALS_PER_TTL
        while True:
            # The loop's timers stand still while a machine is suspended; what counts is asked again after each wait.
            await asyncio.sleep(max(0.0, min(next_look - clock.boottime(), self.remaining())))
            if self.remaining() <= 0.0:
                return trouble
            if clock.boottime() < next_look:
                continue
            sent_at = clock.boottime()
            try:
                async with asyncio.timeout(min(self.ttl / RENEWALS_PER_TTL, self.remaining())):
                    ttl = await self._coordination.keep_alive(self.id)
            except LeaseNotFoundError:
                self._over = True
                return "the server no longer knows the lease"
            except (CoordinationError, TimeoutError) as error:
                trouble = str(error) or f"no answer within {clock.boottime() - sent_at:.1f} s"
                next_look = clock.boottime() + retry_after
            else:
                self._renewed_at = max(self._renewed_at, sent_at)
                self.ttl = min(self.ttl, ttl)
                next_look = sent_at + self.ttl / RENEWALS_PER_TTL

    async def close(self) -> None:
        """Give the lease back, so that others need not wait for its end. Best effort: it ends by itself anyway."""
        self._over = True
        try:
            async with asyncio.timeout(_REVOKE_TIMEOUT):
                await self._coordination.revoke_lease(self.id)
        except (CoordinationError, TimeoutError):
            return
