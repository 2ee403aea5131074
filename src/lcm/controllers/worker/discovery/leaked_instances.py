"""Leaked instances: they cost money and no worker needs them. They are reported, and terminated only if enabled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from lcm.client.errors import NotFoundError
from lcm.cloud.errors import CloudError
from lcm.controllers.worker.discovery.importer import is_own_instance
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import Instance, Sweep
    from lcm.model.fleet.state import FleetState
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

MIN_SEEN_SECONDS: Final = 600.0
AUDIT_LEAKED: Final = "leaked_instance"
AUDIT_TERMINATED: Final = "leaked_instance_terminated"
_MAX_REASON: Final = 500


class KeyedEffect(Protocol):
    """Runs a call with an external effect, once, while this process leads for its whole duration."""

    def __call__(self, key: str, call: Callable[[], Awaitable[Any]], /) -> Awaitable[Any]:
        """Run the call on behalf of the key."""


@dataclass(frozen=True, slots=True)
class LeakFinding:
    """Why an instance counts as leaked, and whether it may be terminated."""

    reason: str
    terminable: bool


@dataclass(frozen=True, slots=True)
class LeakedInstance:
    """An instance that no worker needs. `seen_since` is the start of the first of the consecutive scans that saw it."""

    instance_id: str
    region: str
    worker_id: str | None
    reason: str
    terminable: bool
    since: datetime
    seen_since: float


@dataclass(frozen=True, slots=True)
class TerminationPermission:
    """Whether leaked instances may be terminated now. Without the fleet state a hold must be assumed."""

    enabled_by_setting: bool = False
    breaker_open: bool = True
    fleet: FleetState | None = None

    def granted(self, now: datetime) -> bool:
        """Whether termination is permitted."""
        if not self.enabled_by_setting or self.breaker_open or self.fleet is None:
            return False
        return self.fleet.hold is None or not self.fleet.hold.active(now)


def classify_instance(instance: Instance, worker: Worker | None) -> LeakFinding | None:
    """Classify an instance of ours that no worker has recorded, by the worker that it was launched for.

    Returns None if it belongs to that worker after all, or is about to.
    """
    if worker is None:
        reason = f"its worker {instance.worker_id} does not exist" if instance.worker_id else "it has no worker tag"
        return LeakFinding(reason, terminable=False)
    if worker.instance_id == instance.id and worker.status is not WorkerStatus.TERMINATED:
        return None
    if worker.status is WorkerStatus.PENDING and worker.launch_intent is not None:
        return None
    if worker.instance_id is not None and worker.instance_id != instance.id:
        return LeakFinding(f"its worker {worker.id} has another instance, {worker.instance_id}", terminable=True)
    if worker.status is not WorkerStatus.TERMINATED:
        return LeakFinding(f"its worker {worker.id} is {worker.status} and has no instance recorded", terminable=False)
    if worker.desired_status is DesiredStatus.TERMINATED:
        return LeakFinding(f"its worker {worker.id} was terminated on request", terminable=True)
    return LeakFinding(f"its worker {worker.id} is TERMINATED without a request", terminable=False)


class LeakedInstances:
    """The leaked instances of all regions."""

    def __init__(
        self,
        cloud: CloudProviderSPI,
        internal: InternalApi,
        *,
        leader: Callable[[], Leader],
        installation: str,
        effect: KeyedEffect,
    ) -> None:
        self._cloud = cloud
        self._internal = internal
        self._leader = leader
        self._installation = installation
        self._effect = effect
        self._by_region: dict[str, dict[str, LeakedInstance]] = {}
        self._reported: dict[str, str] = {}  # instances with an audit entry, and their regions
        self._unaudited: list[tuple[str, str]] = []  # terminations without an audit entry yet: instance and reason

    @property
    def current(self) -> tuple[LeakedInstance, ...]:
        """What the last complete scan of each region found, in order."""
        return tuple(leak for _, leaks in sorted(self._by_region.items()) for _, leak in sorted(leaks.items()))

    @property
    def scanned_regions(self) -> tuple[str, ...]:
        """The regions that were scanned completely in this term."""
        return tuple(sorted(self._by_region))

    def begin_term(self) -> None:
        """Drop the findings of an earlier leader: they do not count for this one."""
        self._by_region.clear()

    async def process_scan(
        self,
        sweep: Sweep,
        workers: Sequence[Worker],
        permission: TerminationPermission,
        *,
        excluded: Iterable[str] = (),
        of_terminated_workers: Mapping[str, Worker] | None = None,
    ) -> None:
        """Process a complete scan of a region. Instances in `excluded` are ignored.

        `of_terminated_workers` are instances whose worker was terminated on request. Those that this installation did
        not launch are reported, but never terminated.
        """
        await self._write_owed_audits()
        before = self._by_region.get(sweep.region, {})
        leaks = {
            leak.instance_id: leak
            for leak in await self._find(sweep, workers, set(excluded), of_terminated_workers or {})
        }
        after = {i: _with_history(leak, before.get(i)) for i, leak in leaks.items()}
        self._by_region[sweep.region] = after
        self._reported = {i: region for i, region in self._reported.items() if region != sweep.region or i in after}
        for leak in sorted(after.values(), key=lambda leak: leak.instance_id):
            await self._report(leak)
        for leak in sorted(after.values(), key=lambda leak: leak.instance_id):
            if (
                leak.terminable
                and sweep.began_at - leak.seen_since >= MIN_SEEN_SECONDS
                and permission.granted(clock.earliest_now())
            ):
                await self._terminate(sweep.instances[leak.instance_id], leak)

    async def _find(
        self, sweep: Sweep, workers: Sequence[Worker], excluded: set[str], of_terminated_workers: Mapping[str, Worker]
    ) -> list[LeakedInstance]:
        taken = {worker.instance_id for worker in workers}
        leaks = []
        for instance in sweep.instances.values():
            if not instance.state.live or instance.id in taken or instance.id in excluded:
                continue
            if is_own_instance(instance, self._installation):
                worker_id = instance.worker_id
                finding = classify_instance(instance, await self._read(worker_id))
            elif instance.id in of_terminated_workers:
                worker_id = of_terminated_workers[instance.id].id
                finding = LeakFinding(f"its worker {worker_id} was terminated on request", terminable=False)
            else:
                continue
            if finding is not None:
                reason = f"{instance.id} in {sweep.region} is {instance.state.value}: {finding.reason}"[:_MAX_REASON]
                moment = sweep.began_at
                leaks.append(
                    LeakedInstance(
                        instance.id, sweep.region, worker_id, reason, finding.terminable, clock.now(), moment
                    )
                )
        return leaks

    async def _read(self, worker_id: str | None) -> Worker | None:
        """The current worker: the list may be older than the launch of an instance in the sweep."""
        if not worker_id:
            return None
        try:
            return await self._internal.worker(worker_id)
        except NotFoundError:
            return None

    async def _report(self, leak: LeakedInstance) -> None:
        if leak.instance_id not in self._reported:
            await self._internal.audit(self._leader(), AUDIT_LEAKED, leak.instance_id, leak.reason)
            self._reported[leak.instance_id] = leak.region
            log.warning("instance leaked", instance_id=leak.instance_id, region=leak.region, reason=leak.reason)

    async def _terminate(self, instance: Instance, leak: LeakedInstance) -> None:
        """Terminate the instance, if its worker still does not need it and is not on hold."""
        worker = await self._read(leak.worker_id)
        finding = classify_instance(instance, worker)
        if worker is None or finding is None or not finding.terminable:
            return
        if worker.hold is not None and worker.hold.active(clock.earliest_now()):
            return
        try:
            await self._effect(instance.id, lambda: self._cloud.terminate_instance(leak.region, instance.id))
        except (CloudError, NotAuthorizedError, TimeoutError) as error:
            log.warning(
                "leaked instance was not terminated", instance_id=instance.id, region=leak.region, error=str(error)
            )
            return
        self._unaudited.append((instance.id, leak.reason))
        await self._write_owed_audits()

    async def _write_owed_audits(self) -> None:
        """Write the audit entries of terminations; after a failure they stay owed."""
        while self._unaudited:
            instance_id, reason = self._unaudited[0]
            await self._internal.audit(self._leader(), AUDIT_TERMINATED, instance_id, reason)
            del self._unaudited[0]


def _with_history(leak: LeakedInstance, before: LeakedInstance | None) -> LeakedInstance:
    """The leak with its history. If it has just become terminable, the waiting time starts again."""
    if before is None:
        return leak
    seen_since = before.seen_since if before.terminable == leak.terminable else leak.seen_since
    return replace(leak, since=before.since, seen_since=seen_since)
