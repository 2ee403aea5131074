"""The lablet reconciler: it leads or stands by, and while it leads it looks, decides and acts for each lablet."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.errors import NotFoundError
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.common.base import Controller
from lcm.controllers.common.stats import CounterCollector
from lcm.controllers.common.status_report import StatusReporter
from lcm.controllers.lablet.act import LabletActionExecutor, LabletReconcilePass
from lcm.controllers.lablet.decide import decide
from lcm.controllers.lablet.decide.predicates import worker_lost_reason
from lcm.controllers.lablet.fleet_cache import FleetCache
from lcm.controllers.lablet.lab_client import WorkerLabClient
from lcm.controllers.lablet.memory import LabletMemories
from lcm.controllers.lablet.metrics import METRIC_PREFIX, LabletCounters
from lcm.controllers.lablet.observe import LabObserver, TopologyCache
from lcm.controllers.lablet.stray_labs import StrayLabSweeper
from lcm.core import clock
from lcm.core.controller.resources import Outcome, ReconciliationResult
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import STUCK_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies, LabletPolicy
    from lcm.core.controller.leader_election import LeaderElectionConfig
    from lcm.core.controller.resources import ReconciliationConfig
    from lcm.core.controller.watch import WatchConfig
    from lcm.core.coordination import Coordination
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

R = TypeVar("R")
log = structlog.get_logger(__name__)

MAX_STEPS_PER_PASS: Final = 8
"""Steps in one pass: from SCHEDULED to a started lab, or from STOPPING to the end, there are fewer."""
_UNMANAGED_STATUSES: Final = (*sorted(FINAL_LABLET_STATUSES), LabletStatus.PENDING_SCHEDULING)


class LabletReconciler(Controller["Lablet"]):
    """Watches `/instances/`, lists through the control plane, and keeps the lab of every lablet as it is wanted."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        outside: LabletDependencies,
        rules: LabletControllerConfig,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, outside.control, registry)
        self.counters = LabletCounters()
        self.records: dict[str, Lablet] = {}
        self._rules = rules
        self._notes = LabletMemories()
        self._workers = FleetCache(self.internal)
        servers = WorkerLabClient(
            outside.session, CmlAccounts(self.internal, rules.account), rules.address_of, outside.forget
        )
        self._observing = LabObserver(servers, TopologyCache(self.internal))
        self._acting = LabletActionExecutor(
            internal=self.internal,
            leader=self._leader,
            servers=servers,
            effect=self.effect,
            counters=self.counters,
            heard=self._workers.heard,
        )
        self.strays = StrayLabSweeper(
            servers=servers,
            internal=self.internal,
            leader=self._leader,
            workers=self._workers.all,
            policy=self._policy,
            effect=self._effect_outside_pass,
            counters=self.counters,
            every=rules.sweep_interval,
        )
        CounterCollector(METRIC_PREFIX, self.stats, registry)
        self._reporting = StatusReporter(
            self.internal,
            self._leader,
            self,
            registry,
            lambda: {"resources": len(self.records), "counters": self.stats()},
            ("cml", "control-plane"),
        )

    # What is reconciled

    async def list_resources(self) -> Sequence[Lablet]:
        """All lablets that have a worker."""
        lablets = [lablet async for lablet in self.internal.lablets(exclude_statuses=_UNMANAGED_STATUSES)]
        await self._workers.read()
        self.records = {lablet.id: lablet for lablet in lablets}
        self._notes.keep_only(self.records)
        return lablets

    async def fetch_single_resource(self, resource_id: str) -> Lablet | None:
        """One lablet as it is now."""
        try:
            lablet = await self.internal.lablet(resource_id)
        except NotFoundError:
            self.records.pop(resource_id, None)
            return None
        self._remember(lablet)
        return lablet

    def get_resource_id(self, resource: Lablet) -> str:
        """Its id."""
        return resource.id

    def get_generation(self, resource: Lablet) -> int:
        """Moves when somebody asks for something else."""
        return resource.generation

    async def reconcile_resource(self, resource: Lablet) -> ReconciliationResult:
        """Observe, decide, act, and once more as long as one step follows from the other."""
        if resource.status not in ASSIGNED_LABLET_STATUSES:
            return ReconciliationResult.success(f"nothing is done for a lablet that is {resource.status}")
        work = LabletReconcilePass(resource, None, self._notes.of(resource))
        for _ in range(MAX_STEPS_PER_PASS):
            result = await self._step(work)
            self._remember(work.lablet)
            if result is not None:
                return result
        return ReconciliationResult.requeue("there is more to do", after=0.0)

    async def _step(self, work: LabletReconcilePass) -> ReconciliationResult | None:
        lablet = work.lablet
        policy = await self._policy()
        work.worker = await self._worker_of(lablet)
        seen = await self._observing.observe(lablet, work.worker, work.note, policy)
        decision = decide(lablet, seen, policy, clock.now())
        log.debug("decided", lablet=lablet.id, rule=decision.rule, reason=decision.reason)
        if decision.outcome is Outcome.SKIP:
            return ReconciliationResult.skip(decision.reason)
        return await self._acting.carry_out(work, decision)

    async def _worker_of(self, lablet: Lablet) -> Worker | None:
        """Its worker. One that seems lost is looked up anew: nothing is given up by a record that may be outdated."""
        if lablet.worker_id is None:
            return None
        worker = await self._workers.get(lablet.worker_id)
        return await self._workers.get(lablet.worker_id, max_age=0.0) if worker_lost_reason(lablet, worker) else worker

    async def _policy(self) -> LabletPolicy:
        verified = await self._workers.verified()
        return replace(self._rules.policy, fleet_hold=await self._workers.hold(), workers_verified=verified)

    # Leading

    async def announce_leadership(self, term: int) -> None:
        """Announce the term, and begin with a clean memory: what was seen before may be outdated."""
        await super().announce_leadership(term)
        await self._workers.read()
        self._notes = LabletMemories()
        self.strays.forget()

    def start_leader_loops(self) -> None:
        """The look for labs that no lablet has, and reports, beside the passes."""
        self._spawn_loop("strays", partial(self._step_down_if_stale, self.strays.run))
        self._spawn_loop("report", partial(self._step_down_if_stale, self._reporting.run))

    # What is known

    def _remember(self, lablet: Lablet) -> None:
        if lablet.assigned:
            self.records[lablet.id] = lablet
        else:
            self.records.pop(lablet.id, None)

    def by_status(self) -> Mapping[LabletStatus, int]:
        """How many lablets are in each status in which they have a worker."""
        return Counter(
            dict.fromkeys(sorted(ASSIGNED_LABLET_STATUSES), 0) | Counter(r.status for r in self.records.values())
        )

    def stuck(self) -> int:
        """How many lablets have a lab that is not removed in time."""
        return sum(1 for lablet in self.records.values() if lablet.message.startswith(STUCK_PREFIX))

    def health(self) -> dict[str, object]:
        """What the machinery says, and how many lablets are looked after: by a standby, none."""
        return {**super().health(), "lablets_managed": len(self.records) if self.is_leader else 0}

    def stats(self) -> dict[str, int]:
        """The counters."""
        return self.counters.as_dict()
