"""Users of the platform: they send requests and remember the responses."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pydantic import SecretStr

from lcm.client.errors import ApiError, ClientError, ConflictError, OutcomeUnknownError, UnreachableError
from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.calendar.schedule import WorkerSelector
from lcm.model.calendar.schedule_requests import CreateScheduleRequest, EditScheduleRequest
from lcm.model.fleet.settings import FleetSettingsPatch
from lcm.model.lablet.record import CreateDefinitionRequest, CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus, LostWorkerPolicy
from lcm.model.worker.conditions import ConditionType, find_condition, is_condition_true
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest, LicenseRequest
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.simulation.invariants.control_plane import is_refusal, refusal
from tests.simulation.world.instructors import Instructors
from tests.support.virtual.full_platform import topology

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from lcm.model.calendar.schedule import Schedule
    from tests.simulation.invariants.during import Ledger
    from tests.simulation.script import ClassRules, Event
    from tests.simulation.world.platform import Platform


_ENOUGH_WORKERS = 20
_WAIT_SLACK = 400.0  # the pause after the last try before the limit, and a pass
_SAID_WITHIN, _LOOK_AGAIN = 300.0, 30.0
_HOUR = 3600.0
_MOST_TRIES = 14  # within an hour: one in ten minutes, twice as many when another template or subnet is tried
DEFINITIONS = {
    "tiny": LabletRequirements(cpu_cores=1, memory_gb=1, storage_gb=5, nodes=1, license=False),
    "wide": LabletRequirements(cpu_cores=2, memory_gb=4, storage_gb=10, nodes=3, license=False, ports=("CONSOLE",)),
    "slow": LabletRequirements(
        cpu_cores=1, memory_gb=1, storage_gb=5, nodes=1, license=False, node_definitions=("cat8000v",)
    ),
}
"""The definitions of lablets. The slow one boots longer than the start timeout."""
LICENSED = LabletRequirements(cpu_cores=1, memory_gb=1, storage_gb=5, nodes=1, license=True)
LECTURE = LabletRequirements(cpu_cores=8, memory_gb=33, storage_gb=20, nodes=5, license=False)
"""Three fit on the cheapest template, so thirty seats take ten workers."""


def _waits_since(worker: Worker) -> datetime | None:
    """Since when it waits: for its instance, or with that for its license; None if it does not."""
    if worker.desired_status is not DesiredStatus.RUNNING or worker.hold is not None:
        return None
    if worker.status in (WorkerStatus.PENDING, WorkerStatus.STOPPED):
        return max(worker.status_since, worker.last_resumed_at or worker.created_at)
    licensed = find_condition(worker.conditions, ConditionType.LICENSED)
    return licensed.since if worker.license_status is LicenseStatus.REGISTERING and licensed is not None else None


class People:
    """The user of an event sends its request; rejections are expected."""

    def __init__(self, platform: Platform, ledger: Ledger) -> None:
        self._platform = platform
        self._ledger = ledger
        self._client = platform.client("people", Role.ADMIN)
        self.instructors = Instructors(self._client, ledger)

    async def do(self, event: Event) -> str:
        """Send a request and return its result."""
        name = event.kind.replace("-", "_")
        method: Callable[..., Awaitable[Any]] = getattr(self, "_" + name, None) or getattr(self.instructors, name)
        if (why := refusal(self._platform)) is not None:
            self._ledger.violated(why)
        try:
            result = await method(**event.facts)
        except (OutcomeUnknownError, UnreachableError) as error:
            return f"no response: {error}"
        except ClientError as error:
            if is_refusal(error):
                self._ledger.violated(f"{event.kind} was refused although the store works: {error}")
            if isinstance(error, ApiError) and error.code == "booked":
                self._ledger.covered["a user must not stop a booked worker"] += 1
            return f"refused: {error}"
        if isinstance(result, Worker):
            self._ledger.acknowledged(result)
            return f"{result.name} {result.status} desired {result.desired_status} version {result.version}"
        return str(result or "done")

    async def prepare(self, settings: dict[str, dict[str, Any]], rules: ClassRules | None = None) -> None:
        """The fleet settings of this run, and whom classes are for."""
        while True:
            try:
                await self._settings(**settings)
                for name, requirements in DEFINITIONS.items():
                    await self._define(name, requirements)
                if rules is not None:
                    await self._define("exam", LICENSED)
                    await self._define("lecture", LECTURE)
                    await self.instructors.prepare(rules.team_seats)
                return
            except ClientError:
                await asyncio.sleep(1)

    async def _define(self, name: str, requirements: LabletRequirements) -> None:
        text = topology(requirements.nodes)
        for node_definition in requirements.node_definitions:
            text = text.replace("alpine", node_definition)
        with suppress(ConflictError):
            await self._client.definitions.create(
                CreateDefinitionRequest(name=name, version="1", topology=text, requirements=requirements)
            )

    async def _create(self, **facts: Any) -> Worker:
        token = facts["token"]
        return await self._client.workers.create(
            CreateWorkerRequest(
                name=facts["name"],
                template_name=facts["template"],
                aws_region=facts["region"],
                desired_status=facts["desired"],
                lost_instance_policy=facts["lost"],
                idle_detection_enabled=facts["idle"],
                license_token=SecretStr(token) if token else None,
            )
        )

    async def _pick(self, which: float | str) -> Worker | None:
        """A worker by its place in the list, or by its name."""
        workers = [worker async for worker in self._client.workers.list(exclude_statuses=[WorkerStatus.TERMINATED])]
        if isinstance(which, str):
            return next((worker for worker in workers if worker.name == which), None)
        return workers[int(which * len(workers))] if workers else None

    async def _with(self, which: float, ask: Callable[[str], Awaitable[Worker]]) -> Worker | str:
        worker = await self._pick(which)
        return "no such worker" if worker is None else await ask(worker.id)

    async def _stop(self, which: float) -> Any:
        return await self._with(which, self._client.workers.stop)

    async def _start(self, which: float) -> Any:
        return await self._with(which, self._client.workers.start)

    async def _drain(self, which: float) -> Any:
        return await self._with(which, self._client.workers.drain)

    async def _cancel_drain(self, which: float) -> Any:
        return await self._with(which, self._client.workers.cancel_drain)

    async def _terminate(self, which: float) -> Any:
        return await self._with(which, self._client.workers.terminate)

    async def _retry(self, which: float) -> Any:
        failed = [worker async for worker in self._client.workers.list(status=[WorkerStatus.FAILED])]
        return await self._client.workers.retry(failed[int(which * len(failed))].id) if failed else "no failed worker"

    async def _hold(self, which: float, minutes: int | None) -> Any:
        until = None if minutes is None else clock.now() + timedelta(minutes=minutes)
        return await self._with(
            which, lambda worker_id: self._client.workers.hold(worker_id, HoldRequest(reason="inspection", until=until))
        )

    async def _release(self, which: float) -> Any:
        return await self._with(which, self._client.workers.release)

    async def _hold_fleet(self, seconds: float) -> str:
        await self._client.fleet.hold(HoldRequest(reason="storm"))
        self._ledger.fleet_held()
        await asyncio.sleep(seconds)
        return await self.release_fleet()

    async def release_fleet(self) -> str:
        """Retry until it succeeds: a fleet that stays on hold would make the rest of a run pointless."""
        while True:
            try:
                self._ledger.fleet_released()
                await self._client.fleet.release()
                return "held and released"
            except ClientError:
                await asyncio.sleep(1)

    async def release_all(self) -> None:
        """Release all holds."""
        await self.release_fleet()
        async for worker in self._client.workers.list(exclude_statuses=[WorkerStatus.TERMINATED]):
            if worker.hold is not None:
                await self._client.workers.release(worker.id)

    async def raise_limits(self) -> None:
        """Let whoever waits get a worker: those that classes have left behind may be too small for it."""
        while True:
            try:
                await self._settings(scaling={"max_workers_per_region": _ENOUGH_WORKERS, "license_pool_size": 0})
                return
            except ClientError:
                await asyncio.sleep(1)

    async def confirm_losses(self) -> None:
        """Reset breakers that are open: by now EC2 shows what is there."""
        with suppress(ClientError):
            if (await self._client.fleet.summary()).breakers:
                await self._client.fleet.reset_breakers()

    async def leaks_end(self) -> bool:
        """Whether leaked instances are to be terminated, by the final settings."""
        while True:
            try:
                return (await self._client.fleet.settings()).discovery.terminate_leaked_instances
            except ClientError:
                await asyncio.sleep(1)

    async def _license(self, which: float, token: str) -> Any:
        request = LicenseRequest(operation=LicenseOperation.REGISTER, token=SecretStr(token))
        return await self._with(which, lambda worker_id: self._client.workers.license(worker_id, request))

    async def _deregister(self, which: float) -> Any:
        request = LicenseRequest(operation=LicenseOperation.DEREGISTER)
        return await self._with(which, lambda worker_id: self._client.workers.license(worker_id, request))

    async def _use(self, which: float) -> str:
        """A user works with labs."""
        servers = sorted(self._platform.cml.by_machine)
        if not servers:
            return "no server"
        machine = servers[int(which * len(servers))]
        server = self._platform.cml.by_machine[machine]
        event = CMLActivityEvent("start_lab", clock.now(), user_id="student")
        server.events = (*server.events, event)
        self._ledger.idle.used(machine)
        running = int(which * 10) % 3
        server.stats = replace(server.stats, running_nodes=running)
        return f"{running} nodes run"

    async def _lab(self, definition: str, region: str | None, lives: float | None, lost: str) -> str:
        lablet = await self._client.lablets.create(
            CreateLabletRequest(
                definition=definition,
                aws_region=region,
                time_to_live_minutes=lives,
                lost_worker_policy=LostWorkerPolicy(lost),
            )
        )
        self._ledger.lablets.confirmed.add(lablet.id)
        return f"lablet {lablet.name}"

    async def _end_lab(self, which: float) -> str:
        lablets = [each async for each in self._client.lablets.list(exclude_statuses=sorted(FINAL_LABLET_STATUSES))]
        if not lablets:
            return "no such lablet"
        ended = await self._client.lablets.terminate(lablets[int(which * len(lablets))].id)
        return f"lablet {ended.name} is to end"

    async def _reset_lab(self, which: float) -> str:
        running = [each async for each in self._client.lablets.list(status=[LabletStatus.RUNNING])]
        if not running:
            return "no lablet runs"
        reset = await self._client.lablets.reset(running[int(which * len(running))].id)
        return f"lablet {reset.name} is made anew"

    async def _check_waits(self) -> str:
        """Whoever waits for longer than the limit must be reported as stuck, and no lablet waits for such a worker.

        A fault may keep the controllers from saying so for a while: only what stays so for minutes is a violation.
        """
        overdue, unreported = await self._overdue()
        most = overdue
        for _ in range(round(_SAID_WITHIN / _LOOK_AGAIN)):
            if not unreported:
                break
            await asyncio.sleep(_LOOK_AGAIN)
            overdue, still = await self._overdue()
            unreported = {name: still[name] for name in unreported if name in still}
            most = max(most, overdue)
        if not self._ledger.classes.trouble.coordination(self._platform.loop.now):
            for what in unreported.values():
                self._ledger.violated(what)
        self._ledger.covered["waited for longer than the limit"] += most
        return f"{most} have waited for too long"

    async def _overdue(self) -> tuple[int, dict[str, str]]:
        """How many wait for too long, and what is not as it must be then, by the name of who waits."""
        from tests.simulation.world.platform import WAIT_LIMIT

        limit, overdue, found = WAIT_LIMIT + _WAIT_SLACK, 0, {}
        earliest = clock.now() - timedelta(seconds=limit)
        async for worker in self._client.workers.list(exclude_statuses=[WorkerStatus.TERMINATED]):
            since = _waits_since(worker)
            wanted = self._platform.loop.now - self._ledger.wanted_since.get(worker.id, 0.0)
            if since is None or since >= earliest or wanted < limit:
                continue
            overdue += 1
            if not is_condition_true(worker.conditions, ConditionType.STUCK):
                found[worker.name] = f"{worker.name} waits since {since:%H:%M:%S} and is not reported as stuck"
            tries = [at for at in self._ledger.tries[worker.id] if self._platform.loop.now - at < _HOUR]
            if clock.now() - since > timedelta(seconds=_HOUR + WAIT_LIMIT) and len(tries) > _MOST_TRIES:
                found[worker.name] = f"{worker.name} was tried {len(tries)} times within the last hour"
        async for lablet in self._client.lablets.list(status=[LabletStatus.PENDING_SCHEDULING]):
            if lablet.created_at < earliest and self._has_capacity(lablet.aws_region):
                reason = lablet.placement.reason if lablet.placement is not None else ""
                found[lablet.name] = f"lablet {lablet.name} waits, although another type has capacity: {reason}"
        return overdue, found

    def _has_capacity(self, region: str | None) -> bool:
        """Whether EC2 has capacity of any type in any zone there; without a region, where new workers are launched."""
        ec2 = self._platform.ec2
        place = ec2.regions[region] if region is not None else next(iter(ec2.regions.values()))
        types = {template.instance_type for template in DEFAULT_TEMPLATES}
        return any(not place.faults.lacks_capacity(*each, ec2.time()) for each in product(types, place.subnets))

    async def _check_sight(self) -> str:
        """A leader that has not been able to read EC2 for minutes is not ready, and says why."""
        leaders = [name for name in ("one", "two") if self._platform.leads(name)]
        for name in leaders:
            reasons = self._platform.nodes[name].call(self._platform.controllers[name].readiness)
            if not any("EC2 cannot be read" in reason for reason in reasons):
                self._ledger.violated(f"{name} leads, cannot read EC2, and does not say so: {reasons}")
        return f"checked {', '.join(leaders) or 'nobody'}"

    async def _schedule(
        self, number: int, names: tuple[str, ...], opens: int, lasts: int, outside: str, zone: str = "UTC"
    ) -> str:
        """A window that opens so many minutes from now, as clocks in the zone show it; negative: that has opened."""
        begins = (clock.now() + timedelta(minutes=opens)).astimezone(ZoneInfo(zone))
        ends = (clock.now() + timedelta(minutes=opens + lasts)).astimezone(ZoneInfo(zone))
        window = f"daily {begins:%H:%M}-{ends:%H:%M}"
        fields: dict[str, Any] = {"windows": (window,), "selector": WorkerSelector(names=names), "outside": outside}
        found = next((each for each in await self.schedules() if each.name == f"s{number}"), None)
        if found is None:
            await self._client.schedules.create(CreateScheduleRequest(name=f"s{number}", zone=zone, **fields))
        else:
            await self._client.schedules.edit(found.id, EditScheduleRequest(enabled=True, **fields))
        return window

    async def _unschedule(self, number: int) -> str:
        found = next((each for each in await self.schedules() if each.name == f"s{number}"), None)
        if found is None:
            return "no such schedule"
        if number:
            await self._client.schedules.edit(found.id, EditScheduleRequest(enabled=False))
        else:
            await self._client.schedules.delete(found.id)
        return "ended"

    async def schedules(self) -> list[Schedule]:
        """All schedules."""
        return [each.schedule for each in await self._client.schedules.list()]

    async def settle_schedules(self) -> list[Schedule]:
        """No more boundaries: the first schedule stays open from now on, the others closed."""
        while True:
            try:
                for each in await self.schedules():
                    exceptions = () if each.name == "s0" else ("1970-01-01..2999-12-31 closed",)
                    edit = EditScheduleRequest(windows=("daily 00:00-24:00",), exceptions=exceptions)
                    await self._client.schedules.edit(each.id, edit)
                return await self.schedules()
            except ClientError:
                await asyncio.sleep(1)

    async def _trust(self, which: float) -> str:
        return await self.trust_all()

    async def trust_all(self) -> str:
        """Trust the new certificate of every server that was reinstalled."""
        trusted = 0
        async for worker in self._client.workers.list(exclude_statuses=[WorkerStatus.TERMINATED]):
            if worker.cml_certificate_presented is not None:
                await self._client.workers.trust(worker.id, version=worker.version)
                trusted += 1
        return f"{trusted} trusted"

    async def _breaker(self, which: float) -> str:
        now = self._platform.ec2.time()
        if any(
            now < until
            for region in self._platform.ec2.regions.values()
            for until in region.faults.hidden_until.values()
        ):
            return "the instances run, as the EC2 console shows: not reset"
        await self._client.fleet.reset_breakers()
        return "breakers reset"

    async def _settings(self, **groups: dict[str, Any]) -> str:
        await self._client.fleet.change_settings(FleetSettingsPatch.model_validate(groups))
        return "settings changed"
