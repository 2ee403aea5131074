"""The worker reconciler: while it leads, it observes, decides and acts for each worker; otherwise it stands by."""

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
from lcm.controllers.common.base import Controller
from lcm.controllers.common.status_report import CounterCollector, StatusReporter
from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter, DecisionReporter
from lcm.controllers.worker.act.executor import ActionExecutor
from lcm.controllers.worker.act.idle_check import IdleChecker
from lcm.controllers.worker.act.license_tasks import LicenseTasks
from lcm.controllers.worker.act.reconcile_pass import CloudCalls
from lcm.controllers.worker.admin_api import CALLED_SERVICES, simulated_cloud_calls, status_details
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.discovery.region_monitor import RegionMonitor, RegionSweeper
from lcm.controllers.worker.discovery.scan import Discovery, DiscoveryDependencies
from lcm.controllers.worker.fleet_cache import FleetCache
from lcm.controllers.worker.memory import WorkerMemories
from lcm.controllers.worker.metrics.collector import MetricsCollector
from lcm.controllers.worker.metrics.prometheus import METRIC_PREFIX, Counters, per_worker_metrics
from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
from lcm.controllers.worker.observe.health_monitor import HealthMonitor
from lcm.controllers.worker.observe.launch_resolver import LaunchResolver
from lcm.controllers.worker.observe.observer import WorkerObserver
from lcm.controllers.worker.schedule_watch import ScheduleWatch
from lcm.controllers.worker.steady import find_steady
from lcm.core import clock
from lcm.core.controller.resources import Outcome, ReconciliationResult
from lcm.core.workqueue import Priority
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from lcm.cloud.types import Instance
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import ControllerConfig, Dependencies, Policy
    from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
    from lcm.core.coordination import Coordination
    from lcm.model.worker.metrics import BatchResult
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import MetricsBatch

R = TypeVar("R")
_STEADY = replace(ReconciliationResult.success("nothing has changed, and nothing is to be done"), read_only=True)
log = structlog.get_logger(__name__)


class WorkerReconciler(Controller["Worker"]):
    """Watches `/workers/`, lists through the control plane, and brings every worker to its desired status."""

    expected_errors = (ClientError, CloudError)

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        deps: Dependencies,
        settings: ControllerConfig,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, deps.control, registry)
        self.counters = Counters()
        self.cache = FleetCache(self.internal)
        self.installation = ""  # whose instances are ours; set from the first term on
        self.startup_sweep_done = False  # whether all workers were verified in this term
        self._deps = deps
        self._settings = settings
        self._worker_metrics = per_worker_metrics(registry)
        self._memories = WorkerMemories()
        self.regions = {region: self._create_region_monitor(region) for region in deps.sites}
        self._health = {region: self._create_health_monitor(region) for region in deps.sites}
        pause = None if config.polling_enabled else config.interval_seconds
        self._sweeper = RegionSweeper(self.regions, self.cache, self._wake_known, pause)
        accounts = CmlAccounts(self.internal, settings.account, listed=self.cache.ids)
        self._cml = self._create_cml_monitor(accounts)
        self._license_tasks = self._create_license_tasks(accounts)
        self._launch_resolver = LaunchResolver(self.internal, deps.cloud, deps.sites, settings.images)
        self._decision_reporter = DecisionReporter(self.internal, self._leader)
        self._status_reporter = self._create_status_reporter(registry)
        self._last_policy = replace(settings.policy, check_interval=self.config.interval_seconds)
        self._observer = self._create_observer()
        writer = ControlPlaneWriter(self.internal, self._leader)
        self._schedule_watch = ScheduleWatch(self.cache, self._wake_known, self.config.interval_seconds)
        self._idle_checker = IdleChecker(writer, self._cml, self.cache, self.counters, self._cml_changed)
        self._executor = self._create_executor(writer)
        self.discovery: Discovery | None = None  # from the first term on: it needs the installation id
        self.metrics = MetricsCollector(
            deps.metrics,
            self._cml,
            self._write_metrics,
            lambda: self.cache.records,
            settings.metrics_interval,
            on_stale=self.step_down,
        )
        CounterCollector(METRIC_PREFIX, self.stats, registry)

    def _create_region_monitor(self, region: str) -> RegionMonitor:
        region_cache = RegionCache(self._deps.cloud, region)
        region_cache.subscribe(self._instances_changed)
        return RegionMonitor(region_cache, self.internal, leader=self._leader, settings=lambda: self.cache.settings)

    def _create_cml_monitor(self, accounts: CmlAccounts) -> CmlMonitor:
        return CmlMonitor(
            self._deps.cml,
            accounts,
            self._settings.address_of,
            dedicated=self._settings.dedicated_account,
            on_ready_changed=self._cml_changed,
        )

    def _create_license_tasks(self, accounts: CmlAccounts) -> LicenseTasks:
        return LicenseTasks(
            self._deps.cml,
            accounts,
            self.internal,
            self._settings.address_of,
            on_end=self._cml_changed,
            listener=self._cml,
        )

    def _create_status_reporter(self, registry: CollectorRegistry) -> StatusReporter:
        return StatusReporter(
            self.internal,
            self._leader,
            self,
            registry,
            partial(status_details, self),
            CALLED_SERVICES,
            {"aws": partial(simulated_cloud_calls, self)},
        )

    def _create_health_monitor(self, region: str) -> HealthMonitor:
        return HealthMonitor(self._deps.cloud, region, partial(self.cache.in_region, region), self._cml_changed)

    def _create_observer(self) -> WorkerObserver:
        return WorkerObserver(
            regions=self.regions,
            cml_monitor=self._cml,
            license_tasks=self._license_tasks,
            launch_resolver=self._launch_resolver,
            settings=lambda: self.cache.settings,
            on_cml_changed=self._cml_changed,
            license_releases=self.cache.license_releases,
            health=self._health,
            fleet=self.cache,
        )

    def _create_executor(self, writer: ControlPlaneWriter) -> ActionExecutor:
        return ActionExecutor(
            CloudCalls(self._deps.cloud, self.authorize, self.effect, self._track),
            writer,
            self.cache,
            license_tasks=self._license_tasks,
            idle_checker=self._idle_checker,
            decision_reporter=self._decision_reporter,
            counters=self.counters,
            policy=self._policy,
        )

    # Resources

    async def list_resources(self) -> Sequence[Worker]:
        """All workers that are not at rest; in the startup sweep all that are not TERMINATED."""
        requested_at = clock.boottime()
        workers = []
        async for worker in self.internal.workers(exclude_statuses=[WorkerStatus.TERMINATED]):
            self.cache.update(worker)  # one by one, or the fleet would be in memory twice
            workers.append(worker)
        await self.cache.read_fleet()
        self._forget(self.cache.replace_all(workers))
        await asyncio.sleep(0)  # each of these goes through the whole fleet
        self._memories.refresh(workers, requested_at)
        await asyncio.sleep(0)
        self._worker_metrics.keep_only(self.cache.records)
        self.counters.running_worker_count = sum(1 for worker in workers if worker.status is WorkerStatus.RUNNING)
        self._sweeper.request_sweep()
        if self._startup_sweep_active:
            return workers
        return [worker for worker in workers if not worker.at_rest]

    async def fetch_single_resource(self, resource_id: str) -> Worker | None:
        """The current record of one worker. What else a pass needs comes with it."""
        try:
            context = await self.internal.worker_context(resource_id)
        except NotFoundError:
            return None
        worker = context.worker
        await self.cache.update_fleet(context)
        self._launch_resolver.offer_template(worker, context.template)
        if not self.cache.update(worker):
            self._forget({worker.id})
        return worker

    def get_resource_id(self, resource: Worker) -> str:
        """The worker's id."""
        return resource.id

    @property
    def lanes(self) -> Sequence[str]:
        """One per region: a region whose calls hang occupies only its own slots."""
        return tuple(self.regions)

    def lane_of(self, resource_id: str) -> str:
        """The region of the worker."""
        worker = self.cache.records.get(resource_id)
        return worker.aws_region if worker is not None and worker.aws_region in self.regions else ""

    def get_generation(self, resource: Worker) -> int:
        """Grows with every request that changes the desired state."""
        return resource.generation

    def get_version(self, resource: Worker) -> int:
        """Grows with every write."""
        return resource.version

    async def reconcile_resource(self, resource: Worker) -> ReconciliationResult:
        """Observe, decide, act."""
        began = asyncio.get_running_loop().time()
        memory = self._memories.get(resource)
        observation = await self._observer.observe(resource, memory, self._memories)
        policy, now = self._policy(), clock.earliest_now()
        self._worker_metrics.observed(resource, observation)
        if memory.steady is not None and memory.steady.covers(resource, observation, policy, now):
            self._worker_metrics.passed(resource.id, asyncio.get_running_loop().time() - began)
            return _STEADY
        memory.steady = None
        decision = decide(resource, observation, policy, now)
        self._record_drift(resource, decision)
        try:
            if decision.outcome is Outcome.SKIP:
                log.warning("skipped", worker=resource.id, status=resource.status.value, reason=decision.reason)
                if resource.unknown_words:
                    self._decision_reporter.report(resource, memory, decision)
                return ReconciliationResult.skip(decision.reason)
            result = await self._executor.execute(resource, decision, memory, self._memories.began, observation)
            if result.read_only:
                memory.steady = find_steady(resource, observation, policy, now, decision, decide)
            return result
        finally:
            self._worker_metrics.passed(resource.id, asyncio.get_running_loop().time() - began)

    def _policy(self) -> Policy:
        policy, settings, hold = self._last_policy, self.cache.settings, self.cache.hold
        schedules = self.cache.schedules
        # Not in every pass: copies take time.
        if policy.settings is not settings or policy.fleet_hold is not hold or policy.schedules is not schedules:
            policy = self._last_policy = replace(policy, settings=settings, fleet_hold=hold, schedules=schedules)
        return policy

    def _record_drift(self, worker: Worker, decision: Decision) -> None:
        memory = self._memories.get(worker)
        drift = decision.drift or ("stopped" if worker.drifted else "")
        if drift and not memory.drift:
            self._worker_metrics.drifted(worker.id, drift)
            log.warning("drift detected", worker=worker.id, name=worker.name, drift=drift, rule=decision.rule)
        memory.drift = drift

    # Leading

    async def announce_leadership(self, term: int) -> None:
        """Announce the term and start with empty memories: earlier observations may be outdated."""
        await super().announce_leadership(term)
        self.startup_sweep_done = False
        self.installation = await self._launch_resolver.installation()
        await self.cache.read_fleet()
        self._memories = WorkerMemories()
        self._decision_reporter.forget()
        for region in self.regions.values():
            region.begin_term()
        if self.discovery is not None:
            self.discovery.leaks.begin_term()  # before the first report of the term

    def _on_pass_done(self, key: str, result: ReconciliationResult) -> None:
        """A pass without a response of the cloud verifies nothing: the startup sweep waits for a later one."""
        if self._memories.is_verified(key):
            super()._on_pass_done(key, result)

    def may_end_sweep_without(self, unverified: Sequence[str]) -> bool:
        """A region that cannot be read for a minute keeps the others waiting no longer."""
        blind = self._blind_regions()
        regions = {worker.aws_region for each in unverified if (worker := self.cache.records.get(each)) is not None}
        return len(unverified) < len(self.cache.records) and bool(regions) and regions <= blind.keys()

    async def on_startup_sweep_done(self) -> None:
        """The records are verified now."""
        await super().on_startup_sweep_done()
        self.startup_sweep_done = True

    def start_leader_loops(self) -> None:
        """Start the loops that run beside the passes: metrics, reports, discovery and sweeps."""
        self._spawn_loop("metrics", self.metrics.run)
        self._spawn_loop("decisions", partial(self._step_down_if_stale, self._decision_reporter.run))
        self._spawn_loop("report", partial(self._step_down_if_stale, self._status_reporter.run))
        self._spawn_loop("licenses", self._stop_tasks_at_end)
        self._spawn_loop("schedules", partial(self._schedule_watch.run, self.config.polling_enabled))
        self._spawn_loop("discovery", partial(self._step_down_if_stale, self._discover))
        for region in self.regions:
            self._spawn_loop(f"sweeps-{region}", partial(self._step_down_if_stale, partial(self._sweeper.run, region)))
            self._spawn_loop(f"health-{region}", self._health[region].run)

    async def _discover(self) -> None:
        if self.discovery is None:
            discovery_deps = DiscoveryDependencies(
                cloud=self._deps.cloud,
                probe=self._deps.cml,
                internal=self.internal,
                leader=self._leader,
                settings=self.cache.settings_unless_held,
                wake=self._wake_known,
                known_workers=self.cache.in_region,
                effect=self._effect_outside_pass,
                installation=await self._launch_resolver.installation(),
                ami_owners=self._settings.images.owners,
                private_addresses=self._settings.private_addresses,
            )
            self.discovery = Discovery(discovery_deps, self.regions)
        await self.discovery.run()

    async def _stop_tasks_at_end(self) -> None:
        self._idle_checker.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._license_tasks.stop()
            await self._observer.stop()
            await self._idle_checker.stop()

    # Wake-ups

    def _instances_changed(self, instances: Sequence[Instance]) -> None:
        if not self.is_leader:
            return
        for instance in instances:
            worker_id = self.cache.worker_id_on_instance(instance.id)
            if worker_id is not None:
                self._wake_known(worker_id)

    def _wake_known(self, worker_id: str, priority: Priority = Priority.HIGH) -> None:
        """Queue a worker without shortening its backoff: its desired state has not changed."""
        worker = self.cache.records.get(worker_id)
        if worker is not None:
            self._schedule.enqueue(worker_id, worker.generation, priority)

    def _cml_changed(self, worker_id: str) -> None:
        """Queue a worker whose CML or health changed, at low priority: a new leader sees all of them change at once."""
        if self.is_leader:
            self._wake_known(worker_id, Priority.LOW)

    # Helpers

    def _forget(self, worker_ids: Set[str]) -> None:
        """Drop what is kept of workers that no longer exist."""
        for worker_id in worker_ids:
            self._cml.forget(worker_id)
            self._license_tasks.forget(worker_id)
            self._idle_checker.forget(worker_id)

    async def _write_metrics(self, batch: MetricsBatch) -> BatchResult:
        return await self.internal.write_metrics(self._leader(), batch)

    def _track(self, region: str, instance_id: str) -> None:
        self.regions[region].region_cache.track(instance_id)

    def readiness(self) -> list[str]:
        """A leader that can read none of its regions is not ready: it sees nothing, and can do nothing."""
        blind = self._blind_regions()
        if not blind or len(blind) < len(self.regions):
            return super().readiness()
        reasons = [f"{self.name}: EC2 cannot be read in {region}: {error}" for region, error in blind.items()]
        return [*super().readiness(), *reasons]

    def health(self) -> dict[str, object]:
        """The health of the controller, and how many workers it manages: none while it stands by."""
        managed, drifting = (len(self.cache.records), self._memories.drift_count()) if self.is_leader else (0, 0)
        blind = self._blind_regions()
        counts = {"workers_managed": managed, "workers_with_drift": drifting}
        return {**super().health(), **counts, **({"blind_regions": blind} if blind else {})}

    def _blind_regions(self) -> dict[str, str]:
        """The regions that this leader cannot read, and why."""
        if not self.is_leader:
            return {}
        return {name: monitor.sweep_error for name, monitor in sorted(self.regions.items()) if monitor.is_blind}

    def stats(self) -> dict[str, int]:
        """The counters."""
        counters = self.counters.as_dict()
        counters["metrics_collected_count"] = self.metrics.collected
        if self.discovery is not None:
            counters["orphans_terminated_count"] += self.discovery.orphans_terminated_count
        return counters
