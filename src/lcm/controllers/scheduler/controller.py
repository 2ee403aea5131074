"""The resource scheduler: leads or stands by. While it leads, it assigns workers to lablets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common.admin_api import AdminInfo
from lcm.controllers.common.base import Controller
from lcm.controllers.common.status_report import CounterCollector, StatusReporter, leadership_and_queue_stats
from lcm.controllers.scheduler.bookings import BookingLoop
from lcm.controllers.scheduler.cycle import SchedulingCycle
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.controller.resources import ReconciliationResult
from lcm.core.coordination import EventKind
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.client.client import Client
    from lcm.controllers.scheduler.config import SchedulerConfig
    from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
    from lcm.core.coordination import Coordination, WatchEvent


METRIC_PREFIX = "lcm_resource_scheduler"


@dataclass(slots=True)
class SchedulerCounters:
    """Counters since the start of the process; those of pending and skipped records are from the last cycle."""

    rounds_count: int = 0
    placed_count: int = 0
    reservation_refused_count: int = 0
    scale_up_accepted_count: int = 0
    scale_up_refused_count: int = 0
    failed_count: int = 0
    expired_count: int = 0
    explained_count: int = 0
    pending_lablet_count: int = 0
    skipped_record_count: int = 0
    booking_under_way_count: int = 0
    skipped_booking_count: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


log = structlog.get_logger(__name__)

PENDING_LABLETS = "pending"
"""The only resource of this controller: all pending lablets. They compete for capacity, so one plan covers them all."""


class SchedulerHostedService(Controller[str]):
    """Watches `/instances/`: every change of a pending lablet triggers a cycle. Cycles never overlap."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        control: Client,
        scheduler_config: SchedulerConfig,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, control, registry)
        self.counters = SchedulerCounters()
        self.cycle = SchedulingCycle(self.internal, self._leader, scheduler_config, self.counters)
        CounterCollector(METRIC_PREFIX, self.counters.as_dict, registry)
        self._bookings = BookingLoop(self.internal, self._leader, self.counters)
        self._reporter = StatusReporter(
            self.internal,
            self._leader,
            self,
            registry,
            lambda: {"resources": self.counters.pending_lablet_count, "counters": self.counters.as_dict()},
        )

    # Resources

    async def list_resources(self) -> Sequence[str]:
        """Always the same resource."""
        return [PENDING_LABLETS]

    async def fetch_single_resource(self, resource_id: str) -> str | None:
        """Nothing to fetch: each cycle reads the pending lablets."""
        return resource_id

    def get_resource_id(self, resource: str) -> str:
        """The name of the resource."""
        return resource

    async def reconcile_resource(self, resource: str) -> ReconciliationResult:
        """Run one cycle."""
        try:
            after = await self.cycle.run()
        except ExceptionGroup as group:
            raise _first_error(group) from group
        if after is None:
            return ReconciliationResult.success()
        return ReconciliationResult.requeue(after=after)

    def trigger(self, resource_id: str | None = None) -> None:
        """Run a cycle as soon as possible, whichever lablet was named."""
        super().trigger(PENDING_LABLETS)

    # Events

    def parse_watch_key(self, key: str) -> str | None:
        """A change of any lablet triggers a cycle."""
        return None if super().parse_watch_key(key) is None else PENDING_LABLETS

    def accept_event(self, event: WatchEvent) -> bool:
        """Accept changes of pending lablets except our own writes, and deletions while any lablet is pending."""
        lablet_id = super().parse_watch_key(event.key)
        if lablet_id is None:
            return False
        if event.kind is EventKind.DELETE:
            return self.cycle.on_lablet_deleted()
        try:
            told_of = json.loads(event.value)
            status, version = told_of["status"], told_of["version"]
        except (ValueError, TypeError, KeyError):
            return True
        if status != LabletStatus.PENDING_SCHEDULING.value:
            return False
        return not isinstance(version, int) or self.cycle.is_external_change(lablet_id, version)

    def event_generation(self, event: WatchEvent) -> int | None:
        """A generation belongs to one lablet, but a change of any lablet triggers a cycle."""
        return None

    # Leadership

    async def announce_leadership(self, term: int) -> None:
        """Announce the term and start with an empty memory."""
        await super().announce_leadership(term)
        self.cycle.start_term()

    def start_leader_loops(self) -> None:
        """Start the status reports and the bookings, which run beside the cycles."""
        self._spawn_loop("report", partial(self._step_down_if_stale, self._reporter.run))
        self._spawn_loop("bookings", partial(self._step_down_if_stale, self._bookings.run))

    # Status

    def admin_info(self) -> AdminInfo:
        """What the admin API needs to know about this controller."""
        return AdminInfo("resource scheduler", "lablet", self.stats, self.internal.lablet)

    def stats(self) -> dict[str, Any]:
        """The content of /admin/stats: counters, leadership, queue, and why placement is blocked."""
        return {
            **self.counters.as_dict(),
            **leadership_and_queue_stats(self),
            "standing_still": self.cycle.blocked_reason or None,
        }

    def health(self) -> dict[str, object]:
        """The base health, and the number of pending lablets (0 on a standby)."""
        waiting = self.counters.pending_lablet_count if self.is_leader else 0
        return {**super().health(), "lablets_pending": waiting, "lablets_placed": self.counters.placed_count}


def _first_error(group: ExceptionGroup[Exception]) -> Exception:
    """One error out of several concurrent writes; a stale term takes precedence."""
    stale, others = group.split(StaleTermError)
    found: Exception = stale if stale is not None else others or group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
