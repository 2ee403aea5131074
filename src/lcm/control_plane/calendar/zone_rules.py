"""Notices that the rules of a time zone have changed: its schedules and bookings move, which is audited.

A class that does not fit at its new time is AtRisk: nobody can be asked, and nothing is overcommitted silently.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from lcm.control_plane.bookings.progress import assess_future
from lcm.control_plane.calendar.schedule_reads import read_schedule, read_schedules
from lcm.control_plane.calendar.schedules import schedule_put
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.records.kinds import BOOKINGS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.core import clock
from lcm.model.audit import Actor, ActorKind
from lcm.model.booking.progress import due_status
from lcm.model.booking.record import OPEN_STATUSES, Booking, BookingStatus
from lcm.model.booking.times import at_wall_time
from lcm.model.calendar.zones import describe_changed_rules, read_zone_rules
from lcm.model.formatting import format_instant

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.model.booking.record import BookingOccurrence
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.calendar.zones import ZoneRules

ZONE_RULES: Final = Actor(kind=ActorKind.POLICY, name="time-zones")
_MAX_CHANGE: Final = 1000
_REFRESH_AFTER: Final = timedelta(days=30)
log = structlog.get_logger(__name__)


async def check_zone_rules(context: ControlPlaneContext, now: datetime) -> int:
    """Compare the records with what this host knows of their zones; returns how many schedules and bookings moved."""
    return await _check_schedules(context.unit_of_work, now) + await _check_bookings(context)


async def _check_schedules(unit_of_work: UnitOfWork, now: datetime) -> int:
    store, changed = unit_of_work.store, 0
    rules: dict[str, ZoneRules] = {}  # reading them takes milliseconds: once for each zone
    for schedule in await read_schedules(store, await read_fleet_state(store)):
        if schedule.timetable is None:
            continue  # this host does not know the zone
        if schedule.zone not in rules:
            rules[schedule.zone] = read_zone_rules(schedule.zone, now)
            await asyncio.sleep(0)
        if _needs_refresh(schedule, rules[schedule.zone]):
            changed += await unit_of_work.run(ZONE_RULES, partial(_refresh, schedule_id=schedule.id))
    return changed


async def _check_bookings(context: ControlPlaneContext) -> int:
    """Move all classes first: whether one fits depends on where the others are."""
    where = Where(any_of={"status": [status.value for status in OPEN_STATUSES]})
    moved, assessed = 0, list[str]()
    async for stored in find_all(context.store, BOOKINGS, where):
        booking = read_or_skip(stored, Booking, "booking")
        if booking is None or booking.unknown_words:
            continue
        if _with_moved_classes(booking, clock.now()) is not booking:
            moved += await context.unit_of_work.run(ZONE_RULES, partial(_move, booking_id=booking.id))
            assessed.append(booking.id)
        elif any(each.at_risk is not None for each in booking.open_occurrences):
            assessed.append(booking.id)  # what was missing may be there by now
    for booking_id in assessed:
        await context.unit_of_work.run(ZONE_RULES, partial(_assess, context=context, booking_id=booking_id))
    return moved


def _with_moved_classes(booking: Booking, now: datetime) -> Booking:
    """The booking with its classes where clocks show their times now. One that warms up already stays."""
    classes = tuple(at_wall_time(each) if _is_ahead(each, now) else each for each in booking.occurrences)
    return booking.with_occurrences(classes, now)


def _is_ahead(occurrence: BookingOccurrence, now: datetime) -> bool:
    confirmed = BookingStatus.CONFIRMED
    return occurrence.status is confirmed and due_status(occurrence, now) is confirmed


async def _move(tx: Transaction, booking_id: str) -> bool:
    await tx.take_calendar()
    before = await tx.booking(booking_id)
    after = _with_moved_classes(before, tx.now)
    changes = [
        f"class {new.number} begins at {format_instant(new.starts_at)} instead of {format_instant(old.starts_at)}"
        for old, new in zip(before.occurrences, after.occurrences, strict=True)
        if new != old
    ]
    if not changes:
        return False
    change = "; ".join(changes)[:_MAX_CHANGE]
    log.warning("the rules of a time zone have changed", booking=before.name, zone=before.zone, change=change)
    tx.save_booking(after, "zone_rules_changed", change, name=before.name, zone=before.zone)
    return True


async def _assess(tx: Transaction, context: ControlPlaneContext, booking_id: str) -> Booking:
    """Say of each class ahead whether it fits where it is now."""
    await tx.take_calendar()
    booking = await tx.booking(booking_id)
    for each in booking.occurrences:
        if _is_ahead(each, tx.now):
            booking = booking.with_occurrence(await assess_future(context, booking, each, tx.now), tx.now)
    return tx.save_booking(booking, "booking_assessed")


def _needs_refresh(schedule: Schedule, rules: ZoneRules) -> bool:
    before = schedule.zone_rules
    if before is None or before.zone != schedule.zone:
        return True
    return describe_changed_rules(before, rules) is not None or rules.until - before.until > _REFRESH_AFTER


async def _refresh(tx: Transaction, schedule_id: str) -> bool:
    schedule, revision = await read_schedule(tx.store, schedule_id)
    rules, before = read_zone_rules(schedule.zone, tx.now), schedule.zone_rules
    change = None if before is None or before.zone != schedule.zone else describe_changed_rules(before, rules)
    tx.stage(schedule_put(schedule.model_copy(update={"zone_rules": rules}), revision))
    if change is None:
        return False
    log.warning("the rules of a time zone have changed", schedule=schedule.name, zone=schedule.zone, change=change)
    tx.audit("zone_rules_changed", schedule_id, change, name=schedule.name, zone=schedule.zone)
    return True
