"""Instances that cost money and that no worker needs: told of, and ended only where a person has switched that on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from lcm.client.errors import NotFoundError
from lcm.cloud.errors import CloudError
from lcm.controllers.worker.discovery.importer import is_own_instance
from lcm.core import clock
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
    """Makes a call that changes the world outside, once, as long as this process leads for the whole of it."""

    def __call__(self, key: str, call: Callable[[], Awaitable[Any]], /) -> Awaitable[Any]:
        """Make the call on behalf of the key."""


@dataclass(frozen=True, slots=True)
class LeakFinding:
    """Why an instance counts as leaked, and whether it may be ended."""

    reason: str
    endable: bool


@dataclass(frozen=True, slots=True)
class LeakedInstance:
    """An instance that no worker needs. `seen_since` is when the first of the scans in a row that showed it began."""

    instance_id: str
    region: str
    worker_id: str | None
    reason: str
    endable: bool
    since: datetime
    seen_since: float


@dataclass(frozen=True, slots=True)
class TerminationPermission:
    """What may be ended now. No fleet: it could not be read whether a hold is on."""

    enabled_by_setting: bool = False
    breaker_open: bool = True
    fleet: FleetState | None = None

    def given(self, now: datetime) -> bool:
        """Whether anything may."""
        if not self.enabled_by_setting or self.breaker_open or self.fleet is None:
            return False
        return self.fleet.hold is None or not self.fleet.hold.active(now)


def classify_instance(instance: Instance, worker: Worker | None) -> LeakFinding | None:
    """What an instance of ours is that no worker has recorded, by the worker that it was launched for.

    None: it is that worker's after all, or about to become it.
    """
    if worker is None:
        told = f"its worker {instance.worker_id} is unknown" if instance.worker_id else "it names no worker"
        return LeakFinding(told, endable=False)
    if worker.instance_id == instance.id and worker.status is not WorkerStatus.TERMINATED:
        return None
    if worker.status is WorkerStatus.PENDING and worker.launch_intent is not None:
        return None
    if worker.instance_id is not None and worker.instance_id != instance.id:
        return LeakFinding(f"its worker {worker.id} has another instance, {worker.instance_id}", endable=True)
    if worker.status is not WorkerStatus.TERMINATED:
        return LeakFinding(f"its worker {worker.id} is {worker.status} and names no instance", endable=False)
    if worker.desired_status is DesiredStatus.TERMINATED:
        return LeakFinding(f"its worker {worker.id} was to be terminated, and is", endable=True)
    return LeakFinding(f"its worker {worker.id} is TERMINATED, which nobody had asked for", endable=False)


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
        self._known: dict[str, dict[str, LeakedInstance]] = {}
        self._reported: dict[str, str] = {}  # instances that the audit has heard of, with their regions
        self._unaudited: list[tuple[str, str]] = []  # endings that the audit has not heard of yet: instance and reason

    @property
    def current(self) -> tuple[LeakedInstance, ...]:
        """All that the last complete scan of each region showed, in order."""
        return tuple(leak for _, known in sorted(self._known.items()) for _, leak in sorted(known.items()))

    def begin(self) -> None:
        """A new term: scans of an earlier leader do not count as seen by this one."""
        self._known.clear()

    async def take_in(
        self,
        sweep: Sweep,
        workers: Sequence[Worker],
        permission: TerminationPermission,
        *,
        spared: Iterable[str] = (),
        disowned: Mapping[str, Worker] | None = None,
    ) -> None:
        """A complete scan of a region. `spared` are not judged yet; `disowned` are those of workers that were to end.

        Of the latter, instances that this installation did not launch are told, and never ended.
        """
        await self._write_owed_audits()
        before = self._known.get(sweep.region, {})
        found = {leak.instance_id: leak for leak in await self._find(sweep, workers, set(spared), disowned or {})}
        after = {i: _with_history(leak, before.get(i)) for i, leak in found.items()}
        self._known[sweep.region] = after
        self._reported = {i: region for i, region in self._reported.items() if region != sweep.region or i in after}
        for leak in sorted(after.values(), key=lambda leak: leak.instance_id):
            await self._report(leak)
        for leak in sorted(after.values(), key=lambda leak: leak.instance_id):
            if leak.endable and sweep.began_at - leak.seen_since >= MIN_SEEN_SECONDS and permission.given(clock.now()):
                await self._end(sweep.instances[leak.instance_id], leak)

    async def _find(
        self, sweep: Sweep, workers: Sequence[Worker], spared: set[str], disowned: Mapping[str, Worker]
    ) -> list[LeakedInstance]:
        taken = {worker.instance_id for worker in workers}
        leaks = []
        for instance in sweep.instances.values():
            if not instance.state.live or instance.id in taken or instance.id in spared:
                continue
            if is_own_instance(instance, self._installation):
                worker_id = instance.worker_id
                finding = classify_instance(instance, await self._read(worker_id))
            elif instance.id in disowned:
                worker_id = disowned[instance.id].id
                finding = LeakFinding(f"its worker {worker_id} was to be terminated, and is", endable=False)
            else:
                continue
            if finding is not None:
                reason = f"{instance.id} in {sweep.region} is {instance.state.value}: {finding.reason}"[:_MAX_REASON]
                moment = sweep.began_at
                leaks.append(
                    LeakedInstance(instance.id, sweep.region, worker_id, reason, finding.endable, clock.now(), moment)
                )
        return leaks

    async def _read(self, worker_id: str | None) -> Worker | None:
        """The worker as it is now: the list may be older than the launch of what the sweep shows."""
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

    async def _end(self, instance: Instance, leak: LeakedInstance) -> None:
        """Terminate it, if its worker still does not need it and nobody holds that worker."""
        worker = await self._read(leak.worker_id)
        finding = classify_instance(instance, worker)
        if worker is None or finding is None or not finding.endable:
            return
        if worker.hold is not None and worker.hold.active(clock.now()):
            return
        try:
            await self._effect(instance.id, lambda: self._cloud.terminate_instance(leak.region, instance.id))
        except (CloudError, TimeoutError) as error:
            log.warning("leaked instance was not ended", instance_id=instance.id, region=leak.region, error=str(error))
            return
        self._unaudited.append((instance.id, leak.reason))
        await self._write_owed_audits()

    async def _write_owed_audits(self) -> None:
        """Tell the audit what was ended; what it could not be told stays owed."""
        while self._unaudited:
            instance_id, reason = self._unaudited[0]
            await self._internal.audit(self._leader(), AUDIT_TERMINATED, instance_id, reason)
            del self._unaudited[0]


def _with_history(leak: LeakedInstance, before: LeakedInstance | None) -> LeakedInstance:
    """The leak with its past. What may be ended only since now has not been seen as such for long."""
    if before is None:
        return leak
    seen_since = before.seen_since if before.endable == leak.endable else leak.seen_since
    return replace(leak, since=before.since, seen_since=seen_since)
