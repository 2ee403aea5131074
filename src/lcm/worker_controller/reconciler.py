"""The worker reconciler: it leads or stands by, and while it leads it looks, decides and acts for each worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.asking import Leader
from lcm.client.errors import ClientError, NotFound, StaleLeader
from lcm.cloud.errors import CloudError
from lcm.cloud.observer import RegionObserver
from lcm.controllers.accounts import CmlAccounts
from lcm.controllers.counters import CounterExport
from lcm.controllers.reporting import Reporting
from lcm.controllers.writing import told
from lcm.core import clock
from lcm.core.hosting import wait_for
from lcm.core.leadership import StaleTerm
from lcm.core.resources import Outcome, ReconciliationResult
from lcm.core.watching import WatchTriggeredHostedService
from lcm.core.workqueue import Priority
from lcm.model.status import DesiredStatus, WorkerStatus
from lcm.worker_controller.act import Acting
from lcm.worker_controller.cml_watch import CmlWatch
from lcm.worker_controller.counters import PREFIX, Counters
from lcm.worker_controller.decide import decide
from lcm.worker_controller.discovery import Discovery, Surroundings
from lcm.worker_controller.gauges import gauges_of
from lcm.worker_controller.idleness import Idleness
from lcm.worker_controller.launching import Launching
from lcm.worker_controller.licences import Licences
from lcm.worker_controller.metrics import MetricsCollector
from lcm.worker_controller.notes import Notes
from lcm.worker_controller.observe import Observing
from lcm.worker_controller.regions import RegionWatch
from lcm.worker_controller.reporting import CALLED, details, looks
from lcm.worker_controller.telling import Telling
from lcm.worker_controller.writes import Writes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence, Set

    from lcm.cloud.types import Instance
    from lcm.core.leadership import LeaderElectionConfig
    from lcm.core.ports import Coordination
    from lcm.core.resources import ReconciliationConfig
    from lcm.core.watching import WatchConfig
    from lcm.model.fleet import FleetState
    from lcm.model.fleet_settings import FleetSettings
    from lcm.model.metrics import BatchResult
    from lcm.model.requests import MetricsBatch
    from lcm.model.worker import Hold, Worker
    from lcm.worker_controller.decision import Decision
    from lcm.worker_controller.given import Outside, Rules
    from lcm.worker_controller.policy import Policy

R = TypeVar("R")
log = structlog.get_logger(__name__)


class WorkerReconciler(WatchTriggeredHostedService["Worker"]):
    """Watches `/workers/`, lists through the control plane, and keeps every worker as it is wanted."""

    def __init__(
        self,
        coordination: Coordination,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        config: ReconciliationConfig,
        outside: Outside,
        rules: Rules,
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(coordination, election, watch, config, registry=registry)
        self.counters = Counters()
        self.settings: FleetSettings | None = None
        self.fleet: FleetState | None = None
        self.records: dict[str, Worker] = {}
        self.installation = ""  # whose instances are ours; known from the first term on
        self.startup_sweep_done = False  # whether all workers were verified in this term
        self.standstill: Hold | None = None  # until it is lifted here, all is looked at and decided and nothing done
        self.internal = outside.control.internal
        self._outside = outside
        self._rules = rules
        self._gauges = gauges_of(registry)
        self._notes = Notes()
        self._sweep_now = {region: asyncio.Event() for region in outside.sites}
        self._by_instance: dict[str, str] = {}
        self.regions = {
            region: RegionWatch(
                RegionObserver(outside.cloud, region),
                self.internal,
                leader=self._leader,
                settings=lambda: self.settings,
            )
            for region in outside.sites
        }
        accounts = CmlAccounts(self.internal, rules.account)
        self._cml = CmlWatch(outside.cml, accounts, rules.address_of, dedicated=rules.dedicated_account)
        self._licences = Licences(
            outside.cml, accounts, self.internal, rules.address_of, on_end=self._news, notes=self._cml
        )
        self._launching = Launching(self.internal, outside.cloud, outside.sites, rules.images)
        self._telling = Telling(self.internal, self._leader)
        self._reporting = Reporting(
            self.internal,
            self._leader,
            self,
            registry,
            partial(details, self),
            CALLED,
            {"aws": partial(looks, self)},
        )
        self._observing = self._make_eyes()
        self._acting = self._make_hands()
        self.discovery: Discovery | None = None  # from the first term on: it needs to know whose instances are ours
        self.metrics = MetricsCollector(
            outside.metrics,
            self._cml,
            self._write_metrics,
            lambda: list(self.records.values()),
            rules.metrics_interval,
            on_stale=self.step_down,
        )
        CounterExport(PREFIX, self.stats, registry)
        for region in self.regions.values():
            region.observer.on_change(self._instances_changed)

    def _make_eyes(self) -> Observing:
        return Observing(
            regions=self.regions,
            watch=self._cml,
            licences=self._licences,
            launching=self._launching,
            settings=lambda: self.settings,
            on_news=self._news,
        )

    def _make_hands(self) -> Acting:
        writes = Writes(self.internal, self._leader)
        idleness = Idleness(
            internal=self.internal,
            writes=writes,
            watch=self._cml,
            counters=self.counters,
            settings=self._settings_to_act_by,
            running=self._running,
        )
        return Acting(
            internal=self.internal,
            writes=writes,
            cloud=self._outside.cloud,
            effect=self.effect,
            licences=self._licences,
            idleness=idleness,
            telling=self._telling,
            counters=self.counters,
            track=self._track,
            began=lambda: self._notes.began,
            standstill=lambda: self.standstill,
            heard=self._hear,
        )

    # What is reconciled

    async def list_resources(self) -> Sequence[Worker]:
        """All workers that are not at rest; in the start-up sweep all but TERMINATED ones."""
        asked_at = clock.boottime()
        workers = [worker async for worker in self.internal.workers(exclude_statuses=[WorkerStatus.TERMINATED])]
        await self._read_fleet()
        self._forget(self.records.keys() - {worker.id for worker in workers})
        self.records = {worker.id: worker for worker in workers}
        self._by_instance = {worker.instance_id: worker.id for worker in workers if worker.instance_id}
        self._notes.take_in(workers, asked_at)
        self._gauges.keep_only(self.records)
        self.counters.running_worker_count = sum(1 for worker in workers if worker.status is WorkerStatus.RUNNING)
        for event in self._sweep_now.values():
            event.set()
        if self._startup_sweep_active:
            return workers
        return [worker for worker in workers if not worker.at_rest]

    async def fetch_single_resource(self, resource_id: str) -> Worker | None:
        """One worker as it is now."""
        try:
            worker = await self.internal.worker(resource_id)
        except NotFound:
            return None
        self._remember(worker)
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
        if resource.instance_id is not None and seen.sight.state is not None:
            self._gauges.shows(resource.id, seen.sight.state.value)
        if seen.cml.product or seen.cml.license is not None:
            registered = seen.cml.license is not None and seen.cml.license.phase.value == "registered"
            self._gauges.licensed(resource.id, seen.cml.product or "unknown", registered=registered)
        self._note_drift(resource, decision)
        try:
            if decision.outcome is Outcome.SKIP:
                log.warning("skipped", worker=resource.id, status=resource.status.value, reason=decision.reason)
                return ReconciliationResult.skip(decision.reason)
            return await self._acting.carry_out(resource, decision, note)
        finally:
            self._gauges.passed(resource.id, asyncio.get_running_loop().time() - began)

    def _failed(self, key: str, error: Exception) -> ReconciliationResult:
        """What others could not do for us is no riddle: it is told in a line, once, and tried again."""
        if not isinstance(error, ClientError | CloudError):
            return super()._failed(key, error)
        reason = f"{type(error).__name__}: {error}"
        state = self.resource_states.get(key)
        if state is None or state.last_error != reason:
            log.warning("pass not finished; trying again", worker=key, error=reason)
        return ReconciliationResult.retry(reason)

    def _settings_to_act_by(self) -> FleetSettings | None:
        """None during a standstill: as long as nobody has read what is wanted, nobody is paused, imported or marked."""
        return self.settings if self.standstill is None else None

    def _policy(self) -> Policy:
        hold = self.standstill or (None if self.fleet is None else self.fleet.hold)
        return replace(self._rules.policy, settings=self.settings, fleet_hold=hold)

    def _note_drift(self, worker: Worker, decision: Decision) -> None:
        note = self._notes.of(worker)
        drift = decision.drift or ("stopped" if worker.drifted else "")
        if drift and not note.drift:
            self._gauges.drifted(worker.id, drift)
            log.warning("drift", worker=worker.id, name=worker.name, drift=drift, rule=decision.rule)
        note.drift = drift

    # Leading

    async def announce_leadership(self, term: int) -> None:
        """Announce the term, and begin with a clean memory: what was seen before may be outdated."""
        await told(self.internal.announce_leadership(Leader(self.name, term)))
        self.startup_sweep_done = False
        self.installation = await self._launching.installation()
        await self._read_fleet()
        self._notes = Notes()
        self._telling.forget()
        for region in self.regions.values():
            region.begin()

    def _passed(self, key: str, result: ReconciliationResult) -> None:
        """A pass in which the cloud could not be asked verifies nobody: the start-up sweep waits for a later one."""
        if self._notes.verified(key):
            super()._passed(key, result)

    async def on_startup_sweep_done(self) -> None:
        """Others may rely on what the records say now."""
        await told(self.internal.announce_leadership(self._leader(), startup_sweep_done=True))
        self.startup_sweep_done = True

    def start_leader_loops(self) -> None:
        """Metrics, then sweeps and discovery, beside the passes."""
        self._duty("metrics", self.metrics.run)
        self._duty("decisions", lambda: self._stepping_down(self._telling.run))
        self._duty("report", partial(self._stepping_down, self._reporting.run))
        self._duty("licences", self._until_cut_off)
        self._duty("discovery", partial(self._stepping_down, self._discover))
        for region in self.regions:
            self._duty(f"sweeps-{region}", partial(self._stepping_down, partial(self._sweep, region)))

    async def _discover(self) -> None:
        if self.discovery is None:
            around = Surroundings(
                cloud=self._outside.cloud,
                probe=self._outside.cml,
                internal=self.internal,
                leader=self._leader,
                settings=self._settings_to_act_by,
                wake=self._wake_known,
                effect=self._effect_on,
                installation=await self._launching.installation(),
                ami_owners=self._rules.images.owners,
                private_addresses=self._rules.private_addresses,
            )
            self.discovery = Discovery(around, self.regions)
        await self.discovery.run()

    async def _effect_on(self, key: str, call: Callable[[], Awaitable[R]]) -> R:
        """A call that changes the world and belongs to no worker's pass; it starts only while we surely lead."""
        limit = self._longest_effect()
        self._authorise(limit)
        return await self._effects.run(key, call, limit)

    async def _until_cut_off(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await self._licences.stop()
            await self._observing.stop()

    async def _sweep(self, region: str) -> None:
        """Sweep the region whenever the workers were listed, and wake those that are not as their record says."""
        watch, asked = self.regions[region], self._sweep_now[region]
        await watch.observer.start()
        try:
            while True:
                pause = None if self.config.polling_enabled else self.config.interval_seconds
                await wait_for(asked, pause)
                asked.clear()
                if pause is not None:
                    await self._read_fleet()  # nobody lists the workers, which would bring it along
                review = await watch.sweep(self.in_region(region))
                for worker_id in sorted(review.mismatched if review is not None else ()):
                    self._wake_known(worker_id)
        finally:
            await watch.observer.stop()

    async def _stepping_down(self, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            await loop()
        except StaleTerm as refusal:
            self.step_down(refusal)
        except StaleLeader as refusal:
            self.step_down(StaleTerm(str(refusal)))

    def _leader(self) -> Leader:
        return Leader(self.name, self.term)

    # Waking

    def _instances_changed(self, instances: Sequence[Instance]) -> None:
        if not self.is_leader:
            return
        for instance in instances:
            worker_id = self._by_instance.get(instance.id)
            if worker_id is not None:
                self._wake_known(worker_id)

    def _wake_known(self, worker_id: str) -> None:
        """Queue a worker, but do not cut a backoff short: nobody has asked for anything else."""
        known = self.records.get(worker_id)
        if known is not None:
            self._wake(worker_id, known.generation, Priority.HIGH)

    def _news(self, worker_id: str) -> None:
        if self.is_leader:
            self._wake_known(worker_id)

    # What is known

    def in_region(self, region: str) -> list[Worker]:
        """All workers of a region that are not TERMINATED, as far as is known."""
        return [worker for worker in self.records.values() if worker.aws_region == region]

    def _remember(self, worker: Worker) -> None:
        if worker.status is WorkerStatus.TERMINATED:
            self.records.pop(worker.id, None)
            self._forget({worker.id})
            return
        self.records[worker.id] = worker
        if worker.instance_id:
            self._by_instance[worker.instance_id] = worker.id

    def _forget(self, worker_ids: Set[str]) -> None:
        """Workers that are no more leave nothing behind."""
        for worker_id in worker_ids:
            self._cml.forget(worker_id)
            self._licences.forget(worker_id)

    def _running(self) -> int:
        return sum(
            1
            for worker in self.records.values()
            if worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING
        )

    async def _read_fleet(self) -> None:
        """Settings and what holds for the fleet. What cannot be read stays as it was; never read is never assumed."""
        try:
            self.settings = await self.internal.settings()
            self.fleet = await self.internal.fleet()
        except ClientError as error:
            log.warning("settings cannot be read", error=str(error), known=self.settings is not None)

    def _hear(self, state: FleetState) -> None:
        self.fleet = state

    async def _write_metrics(self, batch: MetricsBatch) -> BatchResult:
        return await told(self.internal.write_metrics(self._leader(), batch))

    def _track(self, region: str, instance_id: str) -> None:
        self.regions[region].observer.track(instance_id)

    def health(self) -> dict[str, object]:
        """What the machinery says, and how many workers are looked after: by a standby, none."""
        managed, drifting = (len(self.records), self._notes.drifting()) if self.is_leader else (0, 0)
        return {**super().health(), "workers_managed": managed, "workers_with_drift": drifting}

    def stats(self) -> dict[str, int]:
        """The twelve counters."""
        figures = self.counters.as_dict()
        figures["metrics_collected_count"] = self.metrics.collected
        if self.discovery is not None:
            figures["orphans_terminated_count"] += self.discovery.orphans_terminated_count
        return figures
