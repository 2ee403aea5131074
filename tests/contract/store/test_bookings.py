"""Bookings that are created at once on every store: no two are confirmed that do not fit together."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.bookings.service import BookingService
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.lablets.definitions import add_definition
from lcm.control_plane.records.kinds import ALL_KINDS, BOOKINGS, find_all
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from lcm.model.booking.record import Booking
from lcm.model.booking.requests import CreateBookingRequest
from lcm.model.lablet.record import CreateDefinitionRequest, LabletRequirements
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store
    from tests.contract.store.conftest import Bed

ANNA = Caller("anna", CallerKind.TOKEN, Role.OPERATOR)
MAX_WORKERS = 10
CREATES, PLANES = 100, 3


async def control_planes(store: Store, count: int) -> list[BookingService]:
    """Several control planes on one store: nothing but the store keeps them apart."""
    contexts = [
        ControlPlaneContext(
            store, UnitOfWork(store), SecretBox([parse_key(generate_key(), "test")]), ("eu-west-1", "us-east-1")
        )
        for _ in range(count)
    ]
    needs = LabletRequirements(cpu_cores=10.0, memory_gb=40.0, license=False)
    definition = CreateDefinitionRequest(
        name="bgp", version="1", topology="lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n", requirements=needs
    )
    run = contexts[0].unit_of_work.run
    await run(ANNA.actor, lambda tx: seed_templates(tx, None))
    await run(ANNA.actor, lambda tx: add_definition(tx, definition, "anna"))
    return [BookingService(context, TeamDirectory(store)) for context in contexts]


def request(number: int, chance: random.Random, begin: datetime) -> CreateBookingRequest:
    """Each three in a row want the same half day, which is enough for one of them; each is sent to another plane."""
    start = begin + timedelta(hours=12 * (number // PLANES), minutes=15 * chance.randrange(8))
    return CreateBookingRequest(
        name=f"class-{number}",
        definition="bgp",
        seats=chance.randint(16, 30),
        start=start.replace(tzinfo=None),
        zone="UTC",
        duration_minutes=chance.choice((60, 180, 480)),
    )


def overcommitted(bookings: list[Booking]) -> list[datetime]:
    """The instants at which more workers of a region are booked than there may be; every minute counts."""
    used: Counter[tuple[str, datetime]] = Counter()
    for booking in bookings:
        for each in booking.occurrences:
            moment = each.warm_up_at
            while moment < each.ends_at:
                used[booking.aws_region, moment] += booking.workers
                moment += timedelta(minutes=15)
    return [moment for (_, moment), count in used.items() if count > MAX_WORKERS]


async def test_of_100_concurrent_creates_none_is_confirmed_that_does_not_fit(bed: Bed) -> None:
    store, chance = await bed.open(ALL_KINDS), random.Random(7)
    planes = await control_planes(store, PLANES)
    begin = (clock.now() + timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    requests = [request(number, chance, begin) for number in range(CREATES)]
    answers = await asyncio.gather(
        *(planes[number % PLANES].create(ANNA, each) for number, each in enumerate(requests)),
        return_exceptions=True,
    )
    refused = [each for each in answers if isinstance(each, ProblemError)]
    assert {each.code for each in refused} == {ProblemCode.BOOKING_REFUSED}
    bookings = [Booking.model_validate_json(stored.body) async for stored in find_all(store, BOOKINGS)]
    assert len(bookings) == CREATES - len(refused) == sum(isinstance(each, bytes) for each in answers)
    assert len(bookings) == 34
    assert overcommitted(bookings) == []
    # All times are on the grid of a quarter of an hour, so that the check above has seen every instant.
    assert all(each.warm_up_at.minute % 15 == 0 for booking in bookings for each in booking.occurrences)
    # Nothing that was refused would fit now.
    for each, answer in zip(requests, answers, strict=True):
        if isinstance(answer, ProblemError):
            assert not (await planes[0].preview(ANNA, each)).confirmed
