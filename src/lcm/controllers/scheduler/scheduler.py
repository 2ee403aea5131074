"""The resource scheduler: it leads or stands by, and while it leads it gives lablets their workers."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.controllers.common.leading import Controller
from lcm.controllers.common.stats import CounterExport
from lcm.controllers.common.status_report import Reporting
from lcm.controllers.scheduler.controller import PREFIX, Counters
from lcm.controllers.scheduler.cycle import Rounds
from lcm.core.controller.leader_election import StaleTerm
from lcm.core.controller.resources import ReconciliationResult
from lcm.core.coordination import EventKind
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.client.client import Client
    from lcm.controllers.scheduler.plan import Rules
    from lcm.core.controller.leader_election import LeaderElectionConfig
    from lcm.core.controller.resources import ReconciliationConfig
    from lcm.core.controller.watching import WatchConfig
    from lcm.core.coordination import Coordination, WatchEvent

log = structlog.get_logger(__name__)

PENDING = "pending"
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
        rules: Rules,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, control, registry)
        self.counters = Counters()
        self.rounds = Rounds(self.internal, self._leader, rules, self.counters)
        CounterExport(PREFIX, self.counters.as_dict, registry)
        self._reporting = Reporting(
            self.internal,
            self._leader,
            self,
            registry,
            lambda: {"resources": self.counters.pending_lablet_count, "counters": self.counters.as_dict()},
        )

    # What is reconciled

    async def list_resources(self) -> Sequence[str]:
        """Always the same one."""
        return [PENDING]

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
            raise _first(group) from group
        if after is None:
            return ReconciliationResult.success()
        return ReconciliationResult.requeue(after=after)

    def trigger(self, resource_id: str | None = None) -> None:
        """A round as soon as possible, whichever lablet it was asked for."""
        super().trigger(PENDING)

    # Events

    def parse_watch_key(self, key: str) -> str | None:
        """Whichever lablet it is about: a round is due."""
        return None if super().parse_watch_key(key) is None else PENDING

    def accept_event(self, event: WatchEvent) -> bool:
        """Lablets that wait, but not what we ourselves have written of them; and while some wait, each that ends."""
        lablet_id = super().parse_watch_key(event.key)
        if lablet_id is None:
            return False
        if event.kind is EventKind.DELETE:
            return self.rounds.heard_of_an_end()
        try:
            told_of = json.loads(event.value)
            status, version = told_of["status"], told_of["version"]
        except (ValueError, TypeError, KeyError):
            return True
        if status != LabletStatus.PENDING_SCHEDULING.value:
            return False
        return not isinstance(version, int) or self.rounds.is_news(lablet_id, version)

    def event_generation(self, event: WatchEvent) -> int | None:
        """A generation is of one lablet; whatever happens to any of them is a reason to look."""
        return None

    # Leading

    async def announce_leadership(self, term: int) -> None:
        """Announce the term, and begin with a clean memory."""
        await super().announce_leadership(term)
        self.rounds.begin_term()

    def start_leader_loops(self) -> None:
        """Reports, beside the rounds."""
        self._duty("report", partial(self._stepping_down, self._reporting.run))

    # What is told

    def health(self) -> dict[str, object]:
        """What the machinery says, and how many lablets wait: a standby knows of none."""
        waiting = self.counters.pending_lablet_count if self.is_leader else 0
        return {**super().health(), "lablets_pending": waiting, "lablets_placed": self.counters.placed_count}


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """What went wrong, of several writes at once: a newer leader above all."""
    stale, others = group.split(StaleTerm)
    found: Exception = stale if stale is not None else others or group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
