"""A random fleet for a trial of the plan: what people and the world do to it, and what controllers then do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from lcm.client.errors import ApiError
from lcm.cloud.errors import CloudError
from lcm.cloud.simulated.faults import ExternalAction, LackCapacity
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.controllers.scheduler.controller import SchedulerHostedService
from lcm.controllers.worker.decision import MaintenanceStep
from lcm.coordination.memory.client import MemoryCoordination
from lcm.core import clock
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.model.access import Role
from lcm.model.audit import ActionType
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, LabletRequirements
from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.simulation.plan_calendar import CalendarSteps
from tests.support.virtual.fleet import REGIONS, Fleet, a_fleet
from tests.support.virtual.full_platform import topology

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.core.controller.resources import ReconciliationResult
    from lcm.model.lablet.record import Lablet
    from lcm.model.lablet.scheduling.planner import SchedulingPlan
    from lcm.model.worker.record import Worker

INTERVAL = 30.0
_SIZES = {"tiny": (0.5, 0.5), "small": (1.0, 1.0), "broad": (2.0, 4.0), "huge": (40.0, 100.0)}
_TEMPLATES = ("micro", "small", "medium", "large")
_ALL_TEMPLATES = (*_TEMPLATES, "nested-medium")
_TIMES = ("began_at", "queried_at")


@dataclass
class Pass:
    """One pass over a worker: the record and observation it began with, and what it did to the world."""

    worker: Worker
    observed: Observation
    rule: str
    began: float
    at: datetime
    ended: float = 0.0
    effects: list[tuple[str, str]] = field(default_factory=list)

    @property
    def basis(self) -> tuple[object, ...]:
        """What the decision was made from, without the times of the observation."""
        return (self.worker.version, self.worker.generation, *observation_key(self.observed))


@dataclass
class Cycle:
    """One cycle of the scheduler that was allowed to place: what it decided from what."""

    began: float
    basis: tuple[object, ...]
    pending: tuple[tuple[str, int], ...]
    placed: set[tuple[str, str]]
    needs: list[tuple[str, str | None, str | None]]


class WithListing:
    """The internal API, with a list of lablets of its own."""

    def __init__(self, internal: Any, lablets: Any) -> None:
        self._internal = internal
        self.lablets = lablets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._internal, name)


def observation_key(observed: Observation) -> tuple[object, ...]:
    """An observation without its times: two with the same key say the same."""
    instance = tuple(
        getattr(observed.instance, each.name) for each in fields(observed.instance) if each.name not in _TIMES
    )
    cml = tuple(getattr(observed.cml, each.name) for each in fields(observed.cml) if each.name not in _TIMES)
    launched = observed.launched_instances
    found = None if launched is None else (launched.complete, tuple(each.id for each in launched.instances))
    return (
        instance,
        cml,
        observed.lablets,
        observed.has_started,
        observed.loss_verdict,
        observed.license_task,
        observed.license_error,
        found,
        repr(observed.resolution),
        observed.calls.uncertain,
        observed.no_capacity_at,
    )


def worker_key(worker: Worker) -> tuple[object, ...]:
    """What the scheduler plans from."""
    waits = tuple((each.type, each.status, each.reason) for each in worker.conditions)
    return (
        worker.id,
        worker.status,
        worker.desired_status,
        worker.ready,
        worker.hold,
        worker.allocation,
        worker.license_status,
        worker.paused_by_policy,
        worker.override,
        worker.booking_id,
        worker.maintenance,
        worker.cml_version,
        worker.node_definitions,
        waits,
    )


class Trial:
    """The platform of one trial, its people, and what its controllers do."""

    def __init__(
        self, fleet: Fleet, scheduler: SchedulerHostedService, rng: random.Random, *, calendar: bool = False
    ) -> None:
        self.fleet = fleet
        self.rng = rng
        self.calendar = CalendarSteps(self) if calendar else None
        self.scheduler = scheduler
        self.passes: list[Pass] = []
        self.cycles: list[Cycle] = []
        self.steps: list[str] = []
        self._current: dict[str, Pass] = {}
        self._names = 0
        self.controller = fleet.controllers["one"]
        self._record_passes()
        self._record_cycles()

    # Recording

    def _record_passes(self) -> None:
        executor: Any = self.controller._executor
        execute, writer, tasks = executor.execute, executor._writer, self.controller._license_tasks

        async def recording(
            worker: Worker, decision: Decision, memory: Any, began: float, observed: Observation
        ) -> ReconciliationResult:
            current = Pass(worker, observed, decision.rule, self.time, clock.now())
            self.passes.append(current)
            self._current[worker.id] = current
            try:
                result: ReconciliationResult = await execute(worker, decision, memory, began, observed)
                return result
            finally:
                current.ended = self.time
                del self._current[worker.id]

        executor.execute = recording
        cloud: Any = executor._calls.cloud
        for name, kind in (
            ("start_instance", ActionType.START_INSTANCE),
            ("stop_instance", ActionType.STOP_INSTANCE),
            ("terminate_instance", ActionType.TERMINATE_INSTANCE),
        ):
            self._wrap(cloud, name, partial(self._call_effect, kind))
        self._wrap(
            cloud,
            "launch_instance",
            lambda args: (args[0].tags["lcm:worker_id"], (ActionType.LAUNCH_INSTANCE.value, "")),
        )
        status = writer.status

        async def written(worker: Worker, write: Any, **more: Any) -> Worker:
            after: Worker = await status(worker, write, **more)
            if after.status is not worker.status:
                self._effect(worker.id, (ActionType.RECORD_STATUS.value, after.status.value))
            return after

        writer.status = written
        for name, kind in (("register", ActionType.REGISTER_LICENSE), ("deregister", ActionType.DEREGISTER_LICENSE)):
            begin = getattr(tasks, name)

            def begun(worker: Worker, begin: Any = begin, kind: ActionType = kind) -> None:
                self._effect(worker.id, (kind.value, ""))
                begin(worker)

            setattr(tasks, name, begun)
        follow, change = writer.follow_schedule, writer.change_host

        async def followed(worker: Worker, action: Any) -> Worker:
            detail = "started" if action.desired is DesiredStatus.RUNNING else "stopped"
            after: Worker = await follow(worker, action)
            self._effect(worker.id, (ActionType.FOLLOW_SCHEDULE.value, detail))
            return after

        async def changed(worker: Worker, action: Any) -> Worker:
            detail = "stopped and started again" if action.step is MaintenanceStep.STOP else "started again"
            after: Worker = await change(worker, action)
            self._effect(worker.id, (ActionType.CHANGE_HOST.value, detail))
            return after

        writer.follow_schedule, writer.change_host = followed, changed

    def _wrap(self, owner: Any, name: str, effect: Callable[[tuple[Any, ...]], tuple[str, tuple[str, str]]]) -> None:
        call = getattr(owner, name)

        async def recorded(*args: Any) -> Any:
            self._effect(*effect(args))
            return await call(*args)

        setattr(owner, name, recorded)

    def _call_effect(self, kind: ActionType, args: tuple[Any, ...]) -> tuple[str, tuple[str, str]]:
        return self.controller.cache.worker_id_on_instance(args[1]) or "", (kind.value, "")

    def _effect(self, worker_id: str, effect: tuple[str, str]) -> None:
        if worker_id in self._current:
            self._current[worker_id].effects.append(effect)

    def _record_cycles(self) -> None:
        cycle: Any = self.scheduler.cycle
        execute, workers, lablets = cycle._execute, cycle._workers.workers, cycle._internal.lablets
        read: list[Worker] = []
        pending: list[tuple[str, int]] = []

        async def listing(**filters: Any) -> AsyncIterator[Lablet]:
            pending.clear()
            async for lablet in lablets(**filters):
                pending.append((lablet.id, lablet.version))
                yield lablet

        async def reading() -> list[Worker]:
            read[:] = await workers()
            return list(read)

        async def executing(plan: SchedulingPlan) -> float | None:
            placed = {(each.lablet.id, each.worker_id) for each in plan.placed}
            needs = [(need.template, need.aws_region, need.resumes) for need in plan.needs]
            self.cycles.append(
                Cycle(
                    self.time,
                    tuple(map(worker_key, sorted(read, key=lambda each: each.id))),
                    tuple(sorted(pending)),
                    placed,
                    needs,
                )
            )
            after: float | None = await execute(plan)
            return after

        cycle._workers.workers, cycle._execute = reading, executing
        cycle._internal = WithListing(cycle._internal, listing)

    @property
    def time(self) -> float:
        """The time of the loop."""
        return asyncio.get_running_loop().time()

    @property
    def settled(self) -> bool:
        """Whether no pass is under way and no decision is on its way to the control plane."""
        reporter: Any = self.controller._decision_reporter
        return not self._current and not reporter._waiting and not reporter._has_waiting.is_set()

    # What people and the world do

    async def prepare(self) -> None:
        """Settings and definitions."""
        rng = self.rng
        if self.calendar is not None:
            await self.calendar.prepare()
        await self.fleet.change_settings(
            idle={
                "worker_auto_pause_enabled": rng.random() < 0.5,
                "worker_idle_timeout_minutes": rng.choice((3, 10, 60)),
                "worker_auto_pause_snooze_minutes": rng.choice((0, 5)),
                "idle_detection_interval": rng.choice((60, 120)),
            },
            scaling={"min_workers": rng.choice((0, 1)), "max_workers_per_region": rng.choice((3, 10))},
        )
        for name, (cpu, memory) in _SIZES.items():
            needs = LabletRequirements(cpu_cores=cpu, memory_gb=memory, nodes=1, license=False)
            await self.fleet.people.definitions.create(
                CreateDefinitionRequest(name=name, version="1", topology=topology(1), requirements=needs)
            )

    async def act(self) -> None:
        """One random step. What is not possible now is refused, which is a step too."""
        if self.calendar is not None and self.rng.random() < 0.4:
            name = self.rng.choice(tuple(self.calendar.steps))
            self.steps.append(f"{self.time:.1f} {name}")
            with suppress(ApiError, CloudError):
                await self.calendar.steps[name]()
            return
        name = self.rng.choices(
            ("create", "stop", "start", "terminate", "drain", "hold", "lablet", "end", "outside", "capacity", "wait"),
            weights=(4, 3, 3, 2, 2, 1, 4, 1, 2, 1, 2),
        )[0]
        self.steps.append(f"{self.time:.1f} {name}")
        with suppress(ApiError, CloudError):
            await getattr(self, f"_{name}")()

    async def _create(self) -> None:
        self._names += 1
        desired = DesiredStatus.STOPPED if self.rng.random() < 0.15 else DesiredStatus.RUNNING
        body = {
            "name": f"n{self._names}",
            "template_name": self.rng.choice(_TEMPLATES if self.calendar is None else _ALL_TEMPLATES),
            "aws_region": self.rng.choice(REGIONS),
            "desired_status": desired,
        }
        if self.rng.random() < 0.3:
            body["license_token"] = "token-" + "x" * 20
        await self.fleet.people.workers.create(CreateWorkerRequest.model_validate(body))

    async def choose_worker(self) -> Worker | None:
        """Any worker that is not terminated."""
        workers = [each async for each in self.fleet.people.workers.list()]
        present = sorted(
            (each for each in workers if each.status is not WorkerStatus.TERMINATED), key=lambda each: each.name
        )
        return self.rng.choice(present) if present else None

    async def _command(self, name: str) -> None:
        worker = await self.choose_worker()
        if worker is not None:
            await getattr(self.fleet.people.workers, name)(worker.id)

    async def _stop(self) -> None:
        await self._command("stop")

    async def _start(self) -> None:
        await self._command("start")

    async def _terminate(self) -> None:
        await self._command("terminate")

    async def _drain(self) -> None:
        await self._command("drain")

    async def _hold(self) -> None:
        worker = await self.choose_worker()
        if worker is not None:
            await self.fleet.people.workers.hold(worker.id, HoldRequest(reason="kept"))

    async def _lablet(self) -> None:
        definition = self.rng.choice(tuple(_SIZES))
        region = self.rng.choice((None, *REGIONS))
        await self.fleet.people.lablets.create(CreateLabletRequest(definition=definition, aws_region=region))

    async def _end(self) -> None:
        lablets = sorted([each async for each in self.fleet.people.lablets.list()], key=lambda each: each.id)
        if lablets:
            await self.fleet.people.lablets.terminate(self.rng.choice(lablets).id)

    async def _outside(self) -> None:
        worker = await self.choose_worker()
        if worker is not None and worker.instance_id is not None:
            self.fleet.disturb(self.rng.choice((ExternalAction.STOP, ExternalAction.START)), worker)

    async def _capacity(self) -> None:
        self.fleet.world.inject_fault(self.rng.choice(REGIONS), LackCapacity(self.rng.choice((30.0, 200.0, 900.0))))

    async def _wait(self) -> None:
        await asyncio.sleep(self.rng.uniform(1, 200))


@asynccontextmanager
async def a_trial(rng: random.Random, seed: int, *, calendar: bool = False) -> AsyncIterator[Trial]:
    """An empty fleet with a worker controller and a scheduler that are watched."""
    async with a_fleet(seed=seed, config=ReconciliationConfig(interval_seconds=INTERVAL)) as fleet:
        await fleet.start()
        scheduler = SchedulerHostedService(
            MemoryCoordination(fleet.server),
            LeaderElectionConfig(election_key_prefix="/lcm", service_name="resource-scheduler", instance_id="one"),
            WatchConfig(prefix="/instances/"),
            ReconciliationConfig(interval_seconds=INTERVAL),
            fleet.connect(Role.CONTROLLER),
            SchedulerConfig(scale_up_cooldown=5.0),
            registry=CollectorRegistry(),
        )
        await scheduler.start()
        try:
            yield Trial(fleet, scheduler, rng, calendar=calendar)
        finally:
            await scheduler.stop()
