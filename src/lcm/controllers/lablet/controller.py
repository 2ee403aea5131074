"""The lablet reconciler: leads or stands by. While it leads, it observes, decides and acts for each lablet."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.errors import NotFoundError
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.common.admin_api import AdminInfo
from lcm.controllers.common.base import Controller
from lcm.controllers.common.status_report import CounterCollector, StatusReporter
from lcm.controllers.lablet.act import LabletActionExecutor, LabletReconcilePass
from lcm.controllers.lablet.decide import decide
from lcm.controllers.lablet.decide.predicates import NEWER_VERSION_RECHECK_SECONDS, worker_lost_reason
from lcm.controllers.lablet.fleet_cache import FleetCache
from lcm.controllers.lablet.lab_client import WorkerLabClient
from lcm.controllers.lablet.memory import LabletMemories
from lcm.controllers.lablet.metrics import METRIC_PREFIX, LabletCounters, lablet_stats
from lcm.controllers.lablet.observe import LabObserver, TopologyCache
from lcm.controllers.lablet.stray_labs import StrayLabSweeper
from lcm.core import clock
from lcm.core.controller.resources import Outcome, ReconciliationResult
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import STUCK_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.controllers.lablet.deps import LabletControllerConfig, LabletDependencies, LabletPolicy
    from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
    from lcm.core.coordination import Coordination
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

R = TypeVar("R")
log = structlog.get_logger(__name__)

MAX_STEPS_PER_PASS: Final = 8
"""An upper bound: the way from SCHEDULED to a started lab, or from STOPPING to the end, takes fewer steps."""
_UNMANAGED_STATUSES: Final = (*sorted(FINAL_LABLET_STATUSES), LabletStatus.PENDING_SCHEDULING)


class LabletReconciler(Controller["Lablet"]):
    """Watches `/instances/`, lists through the control plane, and keeps every lablet's lab in its desired state."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        deps: LabletDependencies,
        lablet_config: LabletControllerConfig,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, deps.control, registry)
        self.counters = LabletCounters()
        self.records: dict[str, Lablet] = {}
        self._lablet_config = lablet_config
        self._memories = LabletMemories()
        self._fleet = FleetCache(self.internal)
        accounts = CmlAccounts(self.internal, lablet_config.account, listed=self._fleet.ids)
        lab_client = WorkerLabClient(deps.session, accounts, lablet_config.address_of, deps.forget)
        self._observer = LabObserver(lab_client, TopologyCache(self.internal))
        self._executor = LabletActionExecutor(
            internal=self.internal,
            leader=self._leader,
            lab_client=lab_client,
            authorize=self.authorize,
            effect=self.effect,
            counters=self.counters,
            on_refreshed=self._fleet.put,
        )
        self.strays = StrayLabSweeper(
            lab_client=lab_client,
            internal=self.internal,
            leader=self._leader,
            workers=self._fleet.all,
            policy=self._policy,
            effect=self._effect_outside_pass,
            counters=self.counters,
            interval=lablet_config.sweep_interval,
        )
        CounterCollector(METRIC_PREFIX, self.stats, registry)
        self._reporter = StatusReporter(
            self.internal,
            self._leader,
            self,
            registry,
            lambda: {"resources": len(self.records), "counters": self.stats()},
            ("cml", "control-plane"),
        )

    # Resources

    async def list_resources(self) -> Sequence[Lablet]:
        """All lablets that have a worker."""
        lablets = [lablet async for lablet in self.internal.lablets(exclude_statuses=_UNMANAGED_STATUSES)]
        await self._fleet.read()
        self.records = {lablet.id: lablet for lablet in lablets}
        self._memories.keep_only(self.records)
        return lablets

    async def fetch_single_resource(self, resource_id: str) -> Lablet | None:
        """The current record of one lablet."""
        try:
            lablet = await self.internal.lablet(resource_id)
        except NotFoundError:
            self.records.pop(resource_id, None)
            return None
        self._remember(lablet)
        return lablet

    def get_resource_id(self, resource: Lablet) -> str:
        """The id of the lablet."""
        return resource.id

    def group_of(self, resource_id: str) -> str:
        """Its worker: a CML that takes long to respond occupies only a part of the slots."""
        lablet = self.records.get(resource_id)
        return "" if lablet is None else lablet.worker_id or ""

    def get_version(self, resource: Lablet) -> int:
        """Grows with every write."""
        return resource.version

    def get_generation(self, resource: Lablet) -> int:
        """Changes whenever the desired state changes."""
        return resource.generation

    async def reconcile_resource(self, resource: Lablet) -> ReconciliationResult:
        """Observe, decide and act, and repeat while the next step can follow at once."""
        if resource.unknown_words:
            return _leave_to_newer_version(resource)
        if resource.status not in ASSIGNED_LABLET_STATUSES:
            return ReconciliationResult.success(f"no action for a lablet that is {resource.status}")
        current = LabletReconcilePass(resource, None, self._memories.get(resource))
        for _ in range(MAX_STEPS_PER_PASS):
            result = await self._step(current)
            self._remember(current.lablet)
            if result is not None:
                return result
        return ReconciliationResult.requeue("more steps to do", after=0.0)

    async def _step(self, current: LabletReconcilePass) -> ReconciliationResult | None:
        lablet = current.lablet
        policy = await self._policy()
        current.worker = await self._worker_of(lablet)
        observed = await self._observer.observe(lablet, current.worker, current.memory, policy)
        decision = decide(lablet, observed, policy, clock.earliest_now())
        log.debug("decided", lablet=lablet.id, rule=decision.rule, reason=decision.reason)
        if decision.outcome is Outcome.SKIP:
            return ReconciliationResult.skip(decision.reason)
        return await self._executor.execute(current, decision)

    async def _worker_of(self, lablet: Lablet) -> Worker | None:
        """The worker of the lablet. One that seems lost is read again: a stale record must not release a lablet."""
        if lablet.worker_id is None:
            return None
        worker = await self._fleet.get(lablet.worker_id)
        return await self._fleet.get(lablet.worker_id, max_age=0.0) if worker_lost_reason(lablet, worker) else worker

    async def _policy(self) -> LabletPolicy:
        verified = await self._fleet.verified()
        return replace(self._lablet_config.policy, fleet_hold=await self._fleet.hold(), workers_verified=verified)

    # Leadership

    async def announce_leadership(self, term: int) -> None:
        """Announce the term and start with an empty memory: older observations may be stale."""
        await super().announce_leadership(term)
        await self._fleet.read()
        self._memories = LabletMemories()
        self.strays.forget()

    def start_leader_loops(self) -> None:
        """Start the sweep for stray labs and the status reports, which run beside the passes."""
        self._spawn_loop("strays", partial(self._step_down_if_stale, self.strays.run))
        self._spawn_loop("report", partial(self._step_down_if_stale, self._reporter.run))

    # State

    def _remember(self, lablet: Lablet) -> None:
        if lablet.assigned:
            self.records[lablet.id] = lablet
        else:
            self.records.pop(lablet.id, None)

    def by_status(self) -> Mapping[LabletStatus, int]:
        """The number of lablets that have a worker, by status."""
        return Counter(
            dict.fromkeys(sorted(ASSIGNED_LABLET_STATUSES), 0) | Counter(r.status for r in self.records.values())
        )

    def stuck(self) -> int:
        """The number of lablets whose lab was not removed in time."""
        return sum(1 for lablet in self.records.values() if lablet.message.startswith(STUCK_PREFIX))

    def health(self) -> dict[str, object]:
        """The base health, and the number of managed lablets (0 on a standby)."""
        return {**super().health(), "lablets_managed": len(self.records) if self.is_leader else 0}

    def admin_info(self) -> AdminInfo:
        """What the admin API needs to know about this controller."""
        return AdminInfo("lablet controller", "lablet", lambda: lablet_stats(self), self.internal.lablet)

    def stats(self) -> dict[str, int]:
        """The counters."""
        return self.counters.as_dict()


def _leave_to_newer_version(lablet: Lablet) -> ReconciliationResult:
    reason = f"this version of LCM does not know {', '.join(lablet.unknown_words)}: a newer one has to decide"
    log.warning("skipped", lablet=lablet.id, reason=reason)
    return ReconciliationResult.requeue(reason, after=NEWER_VERSION_RECHECK_SECONDS)
