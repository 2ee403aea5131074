"""Leader election: of several processes only the one that holds the election key acts.

What this guarantees: `is_leader` is never true in two processes at once, provided that their clocks run at the same
rate, because each trusts its lease no longer than the server does. What it does not guarantee: that a call sent while
leading has ended before the next leader acts. Therefore calls with external effects start only while the lease outlasts
their deadline and carry an authorization that is checked again when they are sent, and every write to the control plane
carries the term, so that the control plane rejects older ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.core.authorization import NotAuthorizedError
from lcm.core.backoff import Backoff
from lcm.core.controller.lease import LeaseSession
from lcm.core.controller.reconciliation import STOP_GRACE_SECONDS, ReconciliationHostedService, ReconciliationResult, T
from lcm.core.coordination import (
    CompactedError,
    Coordination,
    CoordinationError,
    CoordinationOutcomeUnknownError,
    EventKind,
    KeyValue,
    SwapResult,
    WatchBatch,
    WatchLostError,
)
from lcm.core.hosting import cancel_and_wait, keep_running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig

log = structlog.get_logger(__name__)

_REWATCH_DELAY = 1.0
_MAX_CAMPAIGN_PAUSE = 60.0


class NotLeaderError(NotAuthorizedError):
    """This process cannot prove that it leads for long enough: the action was not started."""


class StaleTermError(Exception):
    """The control plane has seen a newer term than ours; it changed nothing."""


@dataclass(frozen=True, slots=True)
class _Leadership:
    session: LeaseSession
    term: int


class LeaderElectedHostedService(ReconciliationHostedService[T]):
    """Reconciles only while it leads; otherwise it is a standby and campaigns."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        config: ReconciliationConfig | None = None,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(election.service_name, config, registry=registry)
        self.coordination = coordination
        self.election = election
        self.known_leader: str | None = None  # the leader, as far as this process knows
        self._leadership: _Leadership | None = None
        self._unready_reason = "has not reached coordination yet"
        self._unready_logged = False
        self._leave_requested = asyncio.Event()
        self._stopping = False
        self._stale_terms = 0  # terms in a row that the control plane rejected as stale
        self._campaign_task: asyncio.Task[None] | None = None
        for to in ("leader", "standby"):
            self._families.leader_changes.labels(self.name, to)  # from 0 on: a rate misses a series that is born at 1

    # For subclasses and wiring

    async def announce_leadership(self, term: int) -> None:
        """Announce the new term to the control plane, before anything is listed."""

    @property
    def is_leader(self) -> bool:
        """True only while the local clock proves the lease; evaluated on each access."""
        return self._leadership is not None and self._leadership.session.remaining() > 0.0

    @property
    def term(self) -> int:
        """The create revision of our election key, 0 when we do not lead."""
        return self._leadership.term if self._leadership is not None and self.is_leader else 0

    def readiness(self) -> list[str]:
        """A standby is ready; a process that cannot reach coordination is not."""
        return [f"{self.name}: {self._unready_reason}"] if self._unready_reason else []

    def health(self) -> dict[str, object]:
        """The instance, whether it leads, and when it last finished a pass."""
        last = self.last_reconciliation
        return {
            "is_leader": self.is_leader,
            "instance_id": self.election.instance_id,
            "last_reconciliation": None if last is None else last.isoformat().replace("+00:00", "Z"),
        }

    async def start(self) -> None:
        """Start to campaign."""
        self._campaign_task = self._spawn(self._campaign_forever(), "election")

    async def stop(self) -> None:
        """Finish running passes, hand leadership over, and end."""
        self._stopping = True
        self._leave_requested.set()
        if self._campaign_task is not None:
            if self._leadership is None:
                self._campaign_task.cancel()
            await asyncio.wait([self._campaign_task])

    def resign(self) -> bool:
        """Hand leadership over gracefully and become a standby; returns whether this process was leading."""
        if self._leadership is None:
            return False
        self._leave_requested.set()
        return True

    def step_down(self, error: StaleTermError) -> None:
        """Stop acting because a write was rejected as stale, and campaign for a newer term."""
        if self._leadership is not None and not self._leave_requested.is_set():
            log.error("our term is stale; stepping down", controller=self.name, term=self.term, error=str(error))
            self._stale_terms += 1
            self._leave_requested.set()

    def _max_effect_seconds(self) -> float:
        return min(self.election.lease_ttl / 2, self.config.reconcile_timeout)

    def _prove_may_act(self, limit: float) -> Callable[[], float]:
        session = self._leadership.session if self._leadership is not None else None
        left = session.remaining() if session is not None else 0.0
        if session is None or left <= limit:
            raise NotLeaderError(f"the lease is proven for {left:.1f} s and the call may take {limit:.1f} s")
        return session.remaining

    def _failed(self, key: str, error: Exception) -> ReconciliationResult:
        if isinstance(error, StaleTermError):
            self.step_down(error)
            return ReconciliationResult.skip(str(error))
        return super()._failed(key, error)

    # Campaigning

    async def _campaign_forever(self) -> None:
        while not self._stopping:
            session, term = await self._wait_until_elected()
            await self._lead(session, term)
            if self._leave_requested.is_set() and not self._stopping:
                self._leave_requested.clear()
                # After a resignation other candidates go first; after repeated stale terms (etcd was replaced) the
                # pause grows.
                pause = Backoff(self.election.retry_interval, max_delay=_MAX_CAMPAIGN_PAUSE)
                await asyncio.sleep(pause.delay_without_jitter(max(0, self._stale_terms - 1)))

    async def _wait_until_elected(self) -> tuple[LeaseSession, int]:
        """Return once this process holds the election key."""
        key = self.election.election_key
        while True:
            try:
                holder = await self.coordination.get(key)
                self._log_coordination_state("")
                if holder is None:
                    won = await self._try_acquire(key)
                    if won is not None:
                        return won
                else:
                    self._log_standby(holder)
                    await self._wait_for_vacancy(holder)
            except CoordinationError as error:
                self._log_coordination_state(str(error))
                await asyncio.sleep(self.election.retry_interval)

    async def _try_acquire(self, key: str) -> tuple[LeaseSession, int] | None:
        session = await LeaseSession.open(self.coordination, self.election.lease_ttl)
        won: KeyValue | None = None
        try:
            won = await self._acquire_key(key, session)
        finally:
            if won is None:
                await session.close()
        return (session, won.create_revision) if won is not None else None

    async def _acquire_key(self, key: str, session: LeaseSession) -> KeyValue | None:
        try:
            swap = await self.coordination.put_if_absent(key, self.election.instance_id.encode(), lease_id=session.id)
        except CoordinationOutcomeUnknownError:
            # The response was lost, so the key may be ours: only its lease proves that, never the instance name.
            current = await self.coordination.get(key)
            swap = SwapResult(current is not None and current.lease_id == session.id, current)
        return swap.current if swap.succeeded else None

    async def _wait_for_vacancy(self, holder: KeyValue) -> None:
        """Return when the holder's key may be gone. Its deletion is watched; reading it again is the fallback."""
        try:
            async with self.coordination.watch(holder.key, from_revision=holder.mod_revision + 1) as batches:
                await self._wait_for_holder_change(batches, holder)
        except (WatchLostError, CompactedError):
            await asyncio.sleep(min(_REWATCH_DELAY, self.election.retry_interval))

    async def _wait_for_holder_change(self, batches: AsyncIterator[WatchBatch], holder: KeyValue) -> None:
        deletion = asyncio.ensure_future(_wait_for_deletion(batches, holder.key))
        try:
            while True:
                await asyncio.wait([deletion], timeout=self.election.retry_interval)
                if deletion.done():
                    deletion.result()
                    return
                current = await self.coordination.get(holder.key)
                if current is None or current.create_revision != holder.create_revision:
                    return
        finally:
            await cancel_and_wait([deletion])

    # Leading

    async def _lead(self, session: LeaseSession, term: int) -> None:
        self._leadership = _Leadership(session, term)
        self.known_leader = self.election.instance_id
        self._log_leadership_change("leader", "leadership won", term=term)
        keeper = asyncio.create_task(session.keep(), name=f"{self.name}:lease")
        label = f"{self.name}:assume-leadership"
        assuming = asyncio.create_task(
            keep_running(label, lambda: self._assume_leadership(term), self._backoff), name=label
        )
        leave = asyncio.create_task(self._leave_requested.wait())
        try:
            await asyncio.wait([keeper, leave], return_when=asyncio.FIRST_COMPLETED)
            if leave.done() and not keeper.done():
                await cancel_and_wait([assuming])
                await self._hand_over(keeper)
        finally:
            self._leadership = None  # from here on nothing starts; only then are running tasks stopped
            self.known_leader = None
            lost = keeper.result() if keeper.done() and not keeper.cancelled() else ""
            self._log_leadership_change(
                "standby", "leadership lost" if lost else "leadership handed over", term=term, why=lost
            )
            await cancel_and_wait([leave, assuming])
            await self._abort()
            await cancel_and_wait([keeper])
            if not lost:
                await session.close()

    async def _hand_over(self, keeper: asyncio.Task[str]) -> None:
        """Finish running passes while the lease is kept alive; if it is lost meanwhile, stop waiting."""
        finishing = asyncio.ensure_future(self._drain_and_stop(STOP_GRACE_SECONDS))
        await asyncio.wait([finishing, keeper], return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait([finishing])

    async def _assume_leadership(self, term: int) -> None:
        """Announce the term until that succeeds, then start to act."""
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(self.config.reconcile_timeout):
                    await self.announce_leadership(term)
                break
            except StaleTermError as error:
                self.step_down(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever failed, the term must be announced before we act
                if attempt == 0:
                    log.warning("cannot announce the term yet", controller=self.name, term=term, error=str(error))
            await asyncio.sleep(self._backoff.delay(attempt))
            attempt += 1
        self._stale_terms = 0
        self._start_acting()

    # Logs, one line per change

    def _log_coordination_state(self, error: str) -> None:
        if error and not self._unready_logged:
            log.warning("coordination unavailable: no election possible", controller=self.name, error=error)
            self._unready_logged = True
        elif not error and self._unready_logged:
            log.info("coordination is back", controller=self.name, at=self.coordination.description)
            self._unready_logged = False
        self._unready_reason = error

    def _log_standby(self, holder: KeyValue) -> None:
        leader = holder.value.decode(errors="replace")
        if self.known_leader != leader:
            self.known_leader = leader
            log.info("standing by", controller=self.name, instance=self.election.instance_id, leader=leader)

    def _log_leadership_change(self, to: str, event: str, **fields: object) -> None:
        self._families.leader_changes.labels(self.name, to).inc()
        fields = {name: value for name, value in fields.items() if value != ""}
        write = log.warning if "why" in fields else log.info
        write(event, controller=self.name, instance=self.election.instance_id, **fields)


async def _wait_for_deletion(batches: AsyncIterator[WatchBatch], key: str) -> None:
    async for batch in batches:
        if any(event.kind is EventKind.DELETE and event.key == key for event in batch.events):
            return
