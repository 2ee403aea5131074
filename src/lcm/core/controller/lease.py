"""A lease that is kept alive, and how long it is provably ours.

The server counts from the receipt of a renewal, we count from its sending: so our lease never ends later than the
server's, whatever the network did, and a missing response never extends it.
"""

from __future__ import annotations

import asyncio

from lcm.core import clock
from lcm.core.coordination import Coordination, CoordinationError, LeaseNotFoundError

RENEWALS_PER_TTL = 3
_RETRIES_PER_TTL = 15
_REVOKE_TIMEOUT = 2.0


class LeaseSession:
    """One lease of this process. `remaining` is the proof; `keep` renews it until it can no longer be proven."""

    def __init__(self, coordination: Coordination, lease_id: int, ttl: float, sent_at: float) -> None:
        self._coordination = coordination
        self.id = lease_id
        self.ttl = ttl
        self._renewed_at = sent_at
        self._over = False

    @classmethod
    async def open(cls, coordination: Coordination, ttl: int) -> LeaseSession:
        """Request a new lease. If the server grants a longer TTL than requested, the requested one counts."""
        sent_at = clock.boottime()
        grant = await coordination.grant_lease(ttl)
        return cls(coordination, grant.id, min(float(ttl), grant.ttl), sent_at)

    def remaining(self) -> float:
        """Seconds for which the lease is certainly ours; once 0 it stays 0, whatever response comes late."""
        left = 0.0 if self._over else self._renewed_at + self.ttl - clock.boottime()
        if left <= 0.0:
            self._over = True
            return 0.0
        return left

    async def keep(self) -> str:
        """Renew every third of the TTL; returns why the lease was lost."""
        error_text = "no renewal was acknowledged in time"
        retry_after = self.ttl / _RETRIES_PER_TTL
        next_renewal = self._renewed_at + self.ttl / RENEWALS_PER_TTL
        while True:
            # The loop's timers stop during suspend, so the remaining time is read again after each wait.
            await asyncio.sleep(max(0.0, min(next_renewal - clock.boottime(), self.remaining())))
            if self.remaining() <= 0.0:
                return error_text
            if clock.boottime() < next_renewal:
                continue
            sent_at = clock.boottime()
            try:
                async with asyncio.timeout(min(self.ttl / RENEWALS_PER_TTL, self.remaining())):
                    ttl = await self._coordination.keep_alive(self.id)
            except LeaseNotFoundError:
                self._over = True
                return "the server no longer knows the lease"
            except (CoordinationError, TimeoutError) as error:
                error_text = str(error) or f"no response within {clock.boottime() - sent_at:.1f} s"
                next_renewal = clock.boottime() + retry_after
            else:
                self._renewed_at = max(self._renewed_at, sent_at)
                self.ttl = min(self.ttl, ttl)
                next_renewal = sent_at + self.ttl / RENEWALS_PER_TTL

    async def close(self) -> None:
        """Revoke the lease, so that other candidates need not wait for its end. Best effort: it expires anyway."""
        self._over = True
        try:
            async with asyncio.timeout(_REVOKE_TIMEOUT):
                await self._coordination.revoke_lease(self.id)
        except (CoordinationError, TimeoutError):
            return
