"""What a resource scheduler counts: for people at /admin/stats, for Prometheus under the same names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common.base import Controller
from lcm.controllers.common.stats import CounterCollector
from lcm.controllers.common.status_report import StatusReporter
from lcm.controllers.scheduler.cycle import SchedulingCycle
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.controller.resources import ReconciliationResult
from lcm.core.coordination import EventKind
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.client.client import Client
    from lcm.controllers.scheduler.plan import SchedulerConfig
    from lcm.core.controller.leader_election import LeaderElectionConfig
    from lcm.core.controller.resources import ReconciliationConfig
    from lcm.core.controller.watch import WatchConfig
    from lcm.core.coordination import Coordination, WatchEvent


METRIC_PREFIX = "lcm_resource_scheduler"


@dataclass(slots=True)
class SchedulerCounters:
    """Since the process began; `pending_lablet_count` is of the last round."""

    rounds_count: int = 0
    placed_count: int = 0
    reservation_refused_count: int = 0
    scale_up_accepted_count: int = 0
    scale_up_refused_count: int = 0
    failed_count: int = 0
    expired_count: int = 0
    explained_count: int = 0
    pending_lablet_count: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)


log = structlog.get_logger(__name__)

PENDING_LABLETS = "pending"
"""The one resource of this controller: all lablets that wait. They compete for room, so one plan serves them all."""


class SchedulerHostedService(Controller[str]):
    """Watches `/instances/`; whatever happens there to a lablet that waits begins a round, and rounds never overlap."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        control: Client,
        rules: SchedulerConfig,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, control, registry)
        self.counters = SchedulerCounters()
        self.rounds = SchedulingCycle(self.internal, self._leader, rules, self.counters)
        CounterCollector(METRIC_PREFIX, self.counters.as_dict, registry)
        self._reporting = StatusReporter(
            self.internal,
            self._leader,
            self,
            registry,
            lambda: {"resources": self.counters.pending_lablet_count, "counters": self.counters.as_dict()},
        )

    # What is reconciled

    async def list_resources(self) -> Sequence[str]:
        """Always the same one."""
        return [PENDING_LABLETS]

    async def fetch_single_resource(self, resource_id: str) -> str | None:
        """A round reads for itself what waits."""
        return resource_id

    def get_resource_id(self, resource: str) -> str:
        """Its name."""
        return resource

    async def reconcile_resource(self, resource: str) -> ReconciliationResult:
        """One round."""
        try:
            after = await self.rounds.run()
        except ExceptionGroup as group:
            raise _first_error(group) from group
        if after is None:
            return ReconciliationResult.success()
        return ReconciliationResult.requeue(after=after)

    def trigger(self, resource_id: str | None = None) -> None:
        """A round as soon as possible, whichever lablet it was asked for."""
        super().trigger(PENDING_LABLETS)

    # Events

    def parse_watch_key(self, key: str) -> str | None:
        """Whichever lablet it is about: a round is due."""
        return None if super().parse_watch_key(key) is None else PENDING_LABLETS

    def accept_event(self, event: WatchEvent) -> bool:
        """Lablets that wait, but not what we ourselves have written of them; and while some wait, each that ends."""
        lablet_id = super().parse_watch_key(event.key)
        if lablet_id is None:
            return False
        if event.kind is EventKind.DELETE:
            return self.rounds.on_lablet_deleted()
        try:
            told_of = json.loads(event.value)
            status, version = told_of["status"], told_of["version"]
        except (ValueError, TypeError, KeyError):
            return True
        if status != LabletStatus.PENDING_SCHEDULING.value:
            return False
        return not isinstance(version, int) or self.rounds.is_external_change(lablet_id, version)

    def event_generation(self, event: WatchEvent) -> int | None:
        """A generation is of one lablet; whatever happens to any of them is a reason to look."""
        return None

    # Leading

    async def announce_leadership(self, term: int) -> None:
        """Announce the term, and begin with a clean memory."""
        await super().announce_leadership(term)
        self.rounds.start_term()

    def start_leader_loops(self) -> None:
        """Reports, beside the rounds."""
        self._spawn_loop("report", partial(self._step_down_if_stale, self._reporting.run))

    # What is told

    def health(self) -> dict[str, object]:
        """What the machinery says, and how many lablets wait: a standby knows of none."""
        waiting = self.counters.pending_lablet_count if self.is_leader else 0
        return {**super().health(), "lablets_pending": waiting, "lablets_placed": self.counters.placed_count}


def _first_error(group: ExceptionGroup[Exception]) -> Exception:
    """What went wrong, of several writes at once: a newer leader above all."""
    stale, others = group.split(StaleTermError)
    found: Exception = stale if stale is not None else others or group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
