"""Random sets of bookings, admitted one after the other: no instant is overcommitted, checked by brute force."""

from __future__ import annotations

import random

from lcm.model.calendar.admission import BookedCapacity, BookingLimits, LiveWorker, admit
from tests.unit.model.calendar.test_admission import (
    REGIONS,
    TEAMS,
    TEMPLATES,
    at,
    booking,
    hours_of,
    is_overcommitted,
)


def a_booking(chance: random.Random) -> BookedCapacity:
    return booking(
        chance.randrange(60),
        chance.randint(1, 8),
        chance.randint(1, 4),
        region=chance.choice(REGIONS),
        template=chance.choice(TEMPLATES),
        licensed=chance.random() < 0.5,
        team=chance.choice(TEAMS),
    )


def a_worker(chance: random.Random) -> LiveWorker:
    free_from = None if chance.random() < 0.3 else at(chance.randrange(-1, 60))
    region, template, registered = chance.choice(REGIONS), chance.choice(TEMPLATES), chance.random() < 0.5
    registers = not registered and chance.random() < 0.5
    return LiveWorker(region, template, free_from, registered, chance.choice(("", "", *TEAMS)), registers)


def test_no_instant_is_overcommitted_by_what_was_admitted(booking_sets: int) -> None:
    for seed in range(booking_sets):
        chance = random.Random(seed)
        limits = BookingLimits(
            chance.randint(2, 9),
            chance.choice((None, chance.randint(1, 9))),
            {team: chance.randint(1, 9) for team in TEAMS if chance.random() < 0.5},
        )
        live = [a_worker(chance) for _ in range(chance.randrange(4))]
        admitted: list[BookedCapacity] = []
        for _ in range(12):
            asked = a_booking(chance)
            if admit([asked], admitted, live, limits).confirmed:
                admitted.append(asked)
        for each in admitted:
            others = [other for other in admitted if other is not each]
            for moment in hours_of(each):
                assert not is_overcommitted([*others, each], live, limits, moment, each), (seed, moment)
