"""What people do with calendars, teams and maintenance in a trial of the plan, with boundaries that come soon."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from lcm.cloud.simulated.faults import AnnounceMaintenance
from lcm.core import clock
from lcm.model.booking.requests import CreateBookingRequest
from lcm.model.calendar.schedule import OutsideAction, WorkerSelector
from lcm.model.calendar.schedule_requests import CreateScheduleRequest
from lcm.model.lablet.record import CreateLabletRequest
from lcm.model.team import CreateTeamRequest
from lcm.model.worker.requests import UpdateWorkerRequest
from lcm.model.worker.status import DesiredStatus
from tests.support.virtual.fleet import REGIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from lcm.model.booking.record import Booking
    from tests.simulation.plan_fleet import Trial

ZONES = ("UTC", "Europe/Brussels", "Asia/Kathmandu", "America/New_York")
TEMPLATES = ("micro", "small", "nested-medium")
SOON = 6
"""Minutes within which boundaries come."""


class CalendarSteps:
    """Schedules, bookings, overrides, teams and maintenance of one trial."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._rng = trial.rng
        self._names = 0
        self.steps: dict[str, Callable[[], Awaitable[None]]] = {
            "schedule": self._schedule,
            "booking": self._booking,
            "override": self._override,
            "team": self._team,
            "team lablet": self._team_lablet,
            "maintenance": self._maintenance,
            "nobody": self._nobody,
        }

    async def prepare(self) -> None:
        """Policies that act for themselves."""
        people = self._trial.fleet.people
        if self._rng.random() < 0.5:
            await self._trial.fleet.change_settings(maintenance={"maintenance_policy": "plan"})
        await people.teams.create(CreateTeamRequest(name="blue"))

    def _name(self, word: str) -> str:
        self._names += 1
        return f"{word}{self._names}"

    async def _schedule(self) -> None:
        """Windows that open or close within minutes, for a worker or for all of a template."""
        zone = self._rng.choice(ZONES)
        now = clock.now().astimezone(ZoneInfo(zone))
        soon = now + timedelta(minutes=self._rng.randint(1, SOON))
        begin, end = (now - timedelta(hours=1), soon) if self._rng.random() < 0.5 else (soon, now + timedelta(hours=2))
        worker = await self._trial.choose_worker()
        selector = WorkerSelector(templates=(self._rng.choice(TEMPLATES),))
        if worker is not None and self._rng.random() < 0.7:
            selector = WorkerSelector(names=(worker.name,))
        outside = OutsideAction.STOP if self._rng.random() < 0.8 else OutsideAction.NOTHING
        body = CreateScheduleRequest(
            name=self._name("hours"),
            zone=zone,
            windows=(f"daily {begin:%H:%M}-{end:%H:%M}",),
            selector=selector,
            outside=outside,
        )
        await self._trial.fleet.people.schedules.create(body)
        if self._rng.random() < 0.7:
            await self._nobody()

    async def _booking(self) -> None:
        """A class of some minutes. Often people wait until one of its boundaries is near."""
        start = (clock.now() + timedelta(minutes=self._rng.choice((2, 20, 70)))).replace(second=0, microsecond=0)
        body = CreateBookingRequest(
            name=self._name("class"),
            definition="tiny",
            seats=self._rng.randint(1, 3),
            start=start.replace(tzinfo=None),
            zone="UTC",
            duration_minutes=self._rng.randint(5, 15),
            aws_region=self._rng.choice(REGIONS),
        )
        booking = await self._trial.fleet.people.bookings.create(body)
        if self._rng.random() < 0.7:
            await self._sleep_until_near(self._rng.choice(_boundaries(booking)))

    async def _sleep_until_near(self, moment: datetime) -> None:
        left = (moment - clock.now()).total_seconds() + self._rng.uniform(-90, 30)
        await asyncio.sleep(max(0.0, left))

    async def _override(self) -> None:
        worker = await self._trial.choose_worker()
        if worker is not None:
            workers = self._trial.fleet.people.workers
            command = self._rng.choice((workers.start, workers.stop))
            await command(worker.id, until=clock.now() + timedelta(seconds=self._rng.uniform(60, 400)))

    async def _team(self) -> None:
        worker = await self._trial.choose_worker()
        if worker is not None:
            await self._trial.fleet.people.workers.patch(worker.id, UpdateWorkerRequest(team="blue"))

    async def _team_lablet(self) -> None:
        await self._trial.fleet.people.lablets.create(CreateLabletRequest(definition="small", team="blue"))

    async def _maintenance(self) -> None:
        """EC2 announces it, and people wait until that was read."""
        worker = await self._trial.choose_worker()
        if worker is None or worker.instance_id is None or worker.desired_status is not DesiredStatus.RUNNING:
            return
        later = self._rng.choice((3600.0, 86_400.0))
        fault = AnnounceMaintenance("retirement", later, worker.instance_id)
        self._trial.fleet.world.inject_fault(worker.aws_region, fault)
        if self._rng.random() < 0.7:
            await self._nobody()
            await asyncio.sleep(self._rng.uniform(0, 330))

    async def _nobody(self) -> None:
        """Nobody uses any lab at present."""
        for server in self._trial.fleet.cml.by_machine.values():
            server.stats = replace(server.stats, nodes=0, running_nodes=0)


def _boundaries(booking: Booking) -> list[datetime]:
    (only,) = booking.occurrences
    return [only.warm_up_at, only.starts_at, only.ends_at]
