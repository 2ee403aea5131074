"""Admission with 1,000 bookings on the calendar: the answer to a preview and to a create, on SQLite."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.output import percentile, report
from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.teams import TeamDirectory, TeamList
from lcm.control_plane.bookings.proposals import assess_request
from lcm.control_plane.bookings.service import BookingService
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.settings import patch_fleet_settings
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.lablets.definitions import add_definition
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.booking.requests import CreateBookingRequest
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.lablet.record import CreateDefinitionRequest, LabletRequirements

if TYPE_CHECKING:
    from collections.abc import Awaitable

BOOKINGS, MEASURED = 1_000, 200
LIMIT = 100
ANNA = Caller("anna", CallerKind.TOKEN, Role.OPERATOR)
AIM = "50"


def a_request(number: int, chance: random.Random) -> CreateBookingRequest:
    """A class within the next three weeks."""
    start = clock.now().replace(minute=0, second=0, microsecond=0, tzinfo=None)
    return CreateBookingRequest(
        name=f"class-{number}",
        definition="bgp",
        seats=chance.randint(1, 12),
        start=start + timedelta(hours=3, minutes=15 * chance.randrange(4 * 24 * 21)),
        zone="UTC",
        duration_minutes=60,
    )


async def _took(call: Awaitable[object]) -> float:
    begun = time.perf_counter()
    with suppress(ProblemError):  # a refusal is an answer too
        await call
    return (time.perf_counter() - begun) * 1000


async def measure(path: Path) -> None:
    store = SqliteStore(path)
    await store.open(ALL_KINDS)
    unit_of_work = UnitOfWork(store)
    context = ControlPlaneContext(store, unit_of_work, SecretBox([parse_key(generate_key(), "x")]), ("eu-west-1",))
    definition = CreateDefinitionRequest(
        name="bgp",
        version="1",
        topology="lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n",
        requirements=LabletRequirements(cpu_cores=10.0, memory_gb=40.0, license=False),
    )
    limit = FleetSettingsPatch.model_validate({"scaling": {"max_workers_per_region": LIMIT}})
    await unit_of_work.run(ANNA.actor, lambda tx: seed_templates(tx, None))
    await unit_of_work.run(ANNA.actor, lambda tx: add_definition(tx, definition, "anna"))
    await unit_of_work.run(ANNA.actor, lambda tx: patch_fleet_settings(tx, FleetSettings(), limit))
    service, chance = BookingService(context, TeamDirectory(store)), random.Random(1)
    booked = number = 0
    while booked < BOOKINGS:
        number += 1
        request = a_request(number, chance)
        if (await assess_request(context, ANNA, TeamList(), request, clock.now())).preview.confirmed:
            await service.create(ANNA, request)
            booked += 1
    asked = [a_request(number + each, chance) for each in range(1, MEASURED + 1)]
    previews = [await _took(service.preview(ANNA, each)) for each in asked]
    creates = [await _took(service.create(ANNA, each)) for each in asked]
    for name, took in (("preview", previews), ("create", creates)):
        title = f"booking, {BOOKINGS:,} on the calendar, SQLite: {name}"
        report(f"{title}, p50", percentile(took, 50), "ms")
        report(f"{title}, p99", percentile(took, 99), "ms", aim=AIM)
    await store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder) / "lcm.db"))
