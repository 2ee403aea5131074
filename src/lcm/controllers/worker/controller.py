"""The worker reconciler: it leads or stands by, and while it leads it looks, decides and acts for each worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.errors import ClientError, NotFoundError
from lcm.cloud.errors import CloudError
from lcm.cloud.region_cache import RegionCache
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.common.base import Controller, as_stale_term
from lcm.controllers.common.stats import CounterCollector
from lcm.controllers.common.status_report import StatusReporter
from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
from lcm.controllers.worker.act.decision_reporter import DecisionReporter
from lcm.controllers.worker.act.executor import ActionExecutor
from lcm.controllers.worker.act.idle_check import IdleChecker
from lcm.controllers.worker.act.license_tasks import LicenseTasks
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.discovery.region_monitor import RegionMonitor, RegionSweeper
from lcm.controllers.worker.discovery.scan import Discovery, DiscoveryDependencies
from lcm.controllers.worker.fleet_cache import FleetCache
from lcm.controllers.worker.memory import LeaderMemory
from lcm.controllers.worker.metrics.collector import MetricsCollector
from lcm.controllers.worker.metrics.prometheus import METRIC_PREFIX, Counters, per_worker_metrics
from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
from lcm.controllers.worker.observe.launch_resolver import LaunchResolver
from lcm.controllers.worker.observe.observer import WorkerObserver
from lcm.controllers.worker.status_report import CALLED_SERVICES, simulated_cloud_calls, status_details
from lcm.core import clock
from lcm.core.controller.resources import Outcome, ReconciliationResult
from lcm.core.workqueue import Priority
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from lcm.cloud.types import Instance
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import ControllerConfig, Dependencies
    from lcm.controllers.worker.policy import Policy
    from lcm.core.controller.leader_election import LeaderElectionConfig
    from lcm.core.controller.resources import ReconciliationConfig
    from lcm.core.controller.watch import WatchConfig
    from lcm.core.coordination import Coordination
    from lcm.model.worker.metrics import BatchResult
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import MetricsBatch

R = TypeVar("R")
log = structlog.get_logger(__name__)


class WorkerReconciler(Controller["Worker"]):
    """Watches `/workers/`, lists through the control plane, and keeps every worker as it is wanted."""

    foreseen = (ClientError, CloudError)

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        outside: Dependencies,
        rules: ControllerConfig,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, outside.control, registry)
        self.counters = Counters()
        self.known = FleetCache(self.internal)
        self.installation = ""  # whose instances are ours; known from the first term on
        self.startup_sweep_done = False  # whether all workers were verified in this term
        self._outside = outside
        self._rules = rules
        self._gauges = per_worker_metrics(registry)
        self._notes = LeaderMemory()
        self.regions = {region: self._watch_region(region) for region in outside.sites}
        pause = None if config.polling_enabled else config.interval_seconds
        self._sweeping = RegionSweeper(self.regions, self.known, self._wake_known, pause)
        accounts = CmlAccounts(self.internal, rules.account)
        self._cml = CmlMonitor(outside.cml, accounts, rules.address_of, dedicated=rules.dedicated_account)
        self._licences = LicenseTasks(
            outside.cml, accounts, self.internal, rules.address_of, on_end=self._news, notes=self._cml
        )
        self._launch_resolver = LaunchResolver(self.internal, outside.cloud, outside.sites, rules.images)
        self._decision_reporter = DecisionReporter(self.internal, self._leader)
        called = partial(status_details, self), CALLED_SERVICES, {"aws": partial(simulated_cloud_calls, self)}
        self._reporting = StatusReporter(self.internal, self._leader, self, registry, *called)
        self._observing = self._create_observer()
        self._acting = self._create_executor()
        self.discovery: Discovery | None = None  # from the first term on: it needs to know whose instances are ours
        self.metrics = MetricsCollector(
            outside.metrics,
            self._cml,
            self._write_metrics,
            lambda: self.known.records,
            rules.metrics_interval,
            on_stale=self.step_down,
        )
        CounterCollector(METRIC_PREFIX, self.stats, registry)

    def _watch_region(self, region: str) -> RegionMonitor:
        observer = RegionCache(self._outside.cloud, region)
        observer.on_change(self._instances_changed)
        return RegionMonitor(observer, self.internal, leader=self._leader, settings=lambda: self.known.settings)

    def _create_observer(self) -> WorkerObserver:
        return WorkerObserver(
            regions=self.regions,
            watch=self._cml,
            licences=self._licences,
            launching=self._launch_resolver,
            settings=lambda: self.known.settings,
            on_news=self._news,
        )

    def _create_executor(self) -> ActionExecutor:
        writes = ControlPlaneWriter(self.internal, self._leader)
        idleness = IdleChecker(
            internal=self.internal,
            writes=writes,
            watch=self._cml,
            counters=self.counters,
            settings=self.known.settings_unless_held,
            running=self.known.count_in_service,
        )
        return ActionExecutor(
            internal=self.internal,
            writes=writes,
            cloud=self._outside.cloud,
            effect=self.effect,
            licences=self._licences,
            idleness=idleness,
            telling=self._decision_reporter,
            counters=self.counters,
            track=self._track,
            began=lambda: self._notes.began,
            local_hold=lambda: self.known.local_hold,
            heard=self.known.hear,
        )

    # What is reconciled

    async def list_resources(self) -> Sequence[Worker]:
        """All workers that are not at rest; in the start-up sweep all but TERMINATED ones."""
        asked_at = clock.boottime()
        workers = []
        async for worker in self.internal.workers(exclude_statuses=[WorkerStatus.TERMINATED]):
            self.known.remember(worker)  # at once, in place of what was known, or the fleet would be in memory twice
            workers.append(worker)
        await self.known.read_fleet()
        self._forget(self.known.take_in(workers))
        self._notes.take_in(workers, asked_at)
        self._gauges.keep_only(self.known.records)
        self.counters.running_worker_count = sum(1 for worker in workers if worker.status is WorkerStatus.RUNNING)
        self._sweeping.ask()
        if self._startup_sweep_active:
            return workers
        return [worker for worker in workers if not worker.at_rest]

    async def fetch_single_resource(self, resource_id: str) -> Worker | None:
        """One worker as it is now."""
        try:
            worker = await self.internal.worker(resource_id)
        except NotFoundError:
            return None
        if not self.known.remember(worker):
            self._forget({worker.id})
        return worker

    def get_resource_id(self, resource: Worker) -> str:
        """Its id."""
        return resource.id

    def get_generation(self, resource: Worker) -> int:
        """Moves when somebody asks for something else."""
        return resource.generation

    async def reconcile_resource(self, resource: Worker) -> ReconciliationResult:
        """Observe, decide, act."""
        began = asyncio.get_running_loop().time()
        note = self._notes.of(resource)
        seen = await self._observing.observe(resource, note, self._notes)
        decision = decide(resource, seen, self._policy(), clock.now())
        self._gauges.seen(resource, seen)
        self._record_drift(resource, decision)
        try:
            if decision.outcome is Outcome.SKIP:
                log.warning("skipped", worker=resource.id, status=resource.status.value, reason=decision.reason)
                return ReconciliationResult.skip(decision.reason)
            return await self._acting.carry_out(resource, decision, note)
        finally:
            self._gauges.passed(resource.id, asyncio.get_running_loop().time() - began)

    def _policy(self) -> Policy:
        return replace(self._rules.policy, settings=self.known.settings, fleet_hold=self.known.hold)

    def _record_drift(self, worker: Worker, decision: Decision) -> None:
        note = self._notes.of(worker)
        drift = decision.drift or ("stopped" if worker.drifted else "")
        if drift and not note.drift:
            self._gauges.drifted(worker.id, drift)
            log.warning("drift", worker=worker.id, name=worker.name, drift=drift, rule=decision.rule)
        note.drift = drift

    # Leading

    async def announce_leadership(self, term: int) -> None:
        """Announce the term, and begin with a clean memory: what was seen before may be outdated."""
        await super().announce_leadership(term)
        self.startup_sweep_done = False
        self.installation = await self._launch_resolver.installation()
        await self.known.read_fleet()
        self._notes = LeaderMemory()
        self._decision_reporter.forget()
        for region in self.regions.values():
            region.begin()

    def _passed(self, key: str, result: ReconciliationResult) -> None:
        """A pass in which the cloud could not be asked verifies nobody: the start-up sweep waits for a later one."""
        if self._notes.verified(key):
            super()._passed(key, result)

    async def on_startup_sweep_done(self) -> None:
        """Others may rely on what the records say now."""
        await super().on_startup_sweep_done()
        self.startup_sweep_done = True

    def start_leader_loops(self) -> None:
        """Metrics, then sweeps and discovery, beside the passes."""
        self._spawn_loop("metrics", self.metrics.run)
        self._spawn_loop("decisions", partial(self._step_down_if_stale, self._decision_reporter.run))
        self._spawn_loop("report", partial(self._step_down_if_stale, self._reporting.run))
        self._spawn_loop("licences", self._stop_tasks_at_end)
        self._spawn_loop("discovery", partial(self._step_down_if_stale, self._discover))
        for region in self.regions:
            self._spawn_loop(f"sweeps-{region}", partial(self._step_down_if_stale, partial(self._sweeping.run, region)))

    async def _discover(self) -> None:
        if self.discovery is None:
            around = DiscoveryDependencies(
                cloud=self._outside.cloud,
                probe=self._outside.cml,
                internal=self.internal,
                leader=self._leader,
                settings=self.known.settings_unless_held,
                wake=self._wake_known,
                effect=self._effect_outside_pass,
                installation=await self._launch_resolver.installation(),
                ami_owners=self._rules.images.owners,
                private_addresses=self._rules.private_addresses,
            )
            self.discovery = Discovery(around, self.regions)
        await self.discovery.run()

    async def _stop_tasks_at_end(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await self._licences.stop()
            await self._observing.stop()

    # Waking

    def _instances_changed(self, instances: Sequence[Instance]) -> None:
        if not self.is_leader:
            return
        for instance in instances:
            worker_id = self.known.worker_id_on_instance(instance.id)
            if worker_id is not None:
                self._wake_known(worker_id)

    def _wake_known(self, worker_id: str, priority: Priority = Priority.HIGH) -> None:
        """Queue a worker, but do not cut a backoff short: nobody has asked for anything else."""
        known = self.known.records.get(worker_id)
        if known is not None:
            self._wake(worker_id, known.generation, priority)

    def _news(self, worker_id: str) -> None:
        """Its CML said something else. A new leader hears that of all of them at once: people must not wait behind."""
        if self.is_leader:
            self._wake_known(worker_id, Priority.LOW)

    # What is known

    def _forget(self, worker_ids: Set[str]) -> None:
        """Workers that are no more leave nothing behind."""
        for worker_id in worker_ids:
            self._cml.forget(worker_id)
            self._licences.forget(worker_id)

    async def _write_metrics(self, batch: MetricsBatch) -> BatchResult:
        return await as_stale_term(self.internal.write_metrics(self._leader(), batch))

    def _track(self, region: str, instance_id: str) -> None:
        self.regions[region].observer.track(instance_id)

    def health(self) -> dict[str, object]:
        """What the machinery says, and how many workers are looked after: by a standby, none."""
        managed, drifting = (len(self.known.records), self._notes.drifting()) if self.is_leader else (0, 0)
        return {**super().health(), "workers_managed": managed, "workers_with_drift": drifting}

    def stats(self) -> dict[str, int]:
        """The twelve counters."""
        figures = self.counters.as_dict()
        figures["metrics_collected_count"] = self.metrics.collected
        if self.discovery is not None:
            figures["orphans_terminated_count"] += self.discovery.orphans_terminated_count
        return figures
