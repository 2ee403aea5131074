"""Booked capacity is not taken by others: what lablets of no booking use must leave room for every class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.bookings.admission import read_booked, read_live, read_templates
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.control_plane.records.kinds import BOOKINGS
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Where
from lcm.model.base import format_utc
from lcm.model.booking.failed_seats import can_be_made_anew, retry_text
from lcm.model.booking.progress import due_status
from lcm.model.booking.record import OPEN_STATUSES, UNDER_WAY, Booking
from lcm.model.calendar.walk_ins import BookedCapacitySnapshot, WalkInRoom, describe_booked
from lcm.model.lablet.lifetime import BookedUntil
from lcm.model.lablet.placement import FOREVER
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.booking.record import BookingOccurrence
    from lcm.model.calendar.admission import LiveWorker, Shortage
    from lcm.model.fleet.settings import ScalingSettings
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

_OPEN = Where(any_of={"status": [status.value for status in OPEN_STATUSES]})


async def read_snapshot(
    store: Store, scaling: ScalingSettings, now: datetime, default_region: str = "", *, licensed: bool | None = None
) -> BookedCapacitySnapshot:
    """What classes will take, and the workers of their regions. Without bookings no worker is read.

    `licensed`: whether workers that are launched get a license; None if it is of no interest.
    """
    booked = await read_booked(store, now, FOREVER)
    workers: dict[str, LiveWorker] = {}
    if booked:
        templates = await read_templates(store)
        # Licenses are counted in the whole fleet, workers in the regions of the classes.
        regions = [None] if scaling.license_pool_size else sorted({each.region for each in booked})
        for region in regions:
            workers |= (await read_live(store, region, templates, now))[0]
    return BookedCapacitySnapshot(
        booked=tuple(booked),
        workers=workers,
        max_workers_per_region=scaling.max_workers_per_region,
        license_pool=scaling.license_pool_size or None,
        launches_licensed=licensed,
        default_region=default_region,
    )


async def read_room(tx: Transaction, context: ControlPlaneContext) -> WalkInRoom:
    """The room beside the classes. If a booking changes meanwhile, the commit conflicts."""
    await tx.depend_on_calendar()
    return WalkInRoom(await read_snapshot(tx.store, (await context.settings()).scaling, tx.now), tx.now)


async def has_open_bookings(store: Store) -> bool:
    """Whether there is any class for which room has to be left."""
    return bool((await store.find(BOOKINGS, _OPEN, limit=1)).items)


async def use_worker(tx: Transaction, room: WalkInRoom, worker_id: str, until: datetime) -> None:
    """A walk-in uses the worker until then; rejected if a class would lack it."""
    shortage = room.shortage_on(worker_id, until)
    if shortage is not None:
        raise _booked_problem(shortage, "the worker is")
    if room.is_needed(worker_id, until):
        await tx.take_calendar()  # two walk-ins at once might each leave room for the class, and both together none
    room.use(worker_id, until)


async def check_not_booked(
    tx: Transaction,
    scaling: ScalingSettings,
    *,
    region: str,
    template: str,
    until: datetime | None,
    resumed: Worker | None = None,
    licensed: bool = False,
) -> None:
    """Rejected if a class would lack a worker because of this one, which is in use until then; None: for ever.

    So it is if a class would lack the license that a new one takes (`licensed`), also when nobody uses it any more. The
    transaction has taken the calendar: no class that is not seen here can be confirmed before it is committed.
    """
    room = WalkInRoom(await read_snapshot(tx.store, scaling, tx.now, licensed=licensed), tx.now)
    end = until or FOREVER
    shortage = room.launch_shortage(region, template, end) if resumed is None else room.shortage_on(resumed.id, end)
    if shortage is not None:
        raise _booked_problem(shortage, f"the workers of {region} are")


async def takes_room(store: Store, lablet: Lablet) -> bool:
    """Whether a longer use of its worker is compared with classes: then all workers of their regions are read."""
    is_walk_in = lablet.booking_id is None and lablet.worker_id is not None and lablet.assigned
    return is_walk_in and await has_open_bookings(store)


async def read_extension_limit(store: Store, scaling: ScalingSettings, lablet: Lablet, now: datetime) -> BookedUntil:
    """Until when a lablet may keep its worker because of bookings. One without a worker is limited when it gets one."""
    if lablet.booking_id is not None:
        return await _end_of_class(store, lablet)
    if lablet.worker_id is None or not await takes_room(store, lablet):
        return BookedUntil()
    room = WalkInRoom(await read_snapshot(store, scaling, now), now)
    counted = room.is_needed(lablet.worker_id, FOREVER)
    return BookedUntil(room.free_until(lablet.worker_id), "its worker is booked from then on", counted)


async def end_of_class_under_way(store: Store, lablet: Lablet, now: datetime) -> datetime | None:
    """Until when the class goes on whose seat the lablet is; None if it is of none, or the class is not under way."""
    _, found = await _class_of(store, lablet)
    return found.ends_at if found is not None and due_status(found, now) in UNDER_WAY else None


async def next_step_of_seat(store: Store, lablet: Lablet, now: datetime) -> str:
    """What happens next with a failed seat; empty for others, and if its class is not under way."""
    if not can_be_made_anew(lablet) or await end_of_class_under_way(store, lablet, now) is None:
        return ""
    return retry_text(lablet, now, on_hold=await fleet_is_on_hold(store, now))


async def fleet_is_on_hold(store: Store, now: datetime) -> bool:
    """Whether no class is carried out now."""
    hold = (await read_fleet_state(store)).hold
    return hold is not None and hold.active(now)


async def _class_of(store: Store, lablet: Lablet) -> tuple[Booking | None, BookingOccurrence | None]:
    stored = None if lablet.booking_id is None else await store.get(BOOKINGS, lablet.booking_id)
    booking = None if stored is None else read_or_skip(stored, Booking, "booking")
    number = lablet.booking_occurrence
    return booking, None if booking is None or number is None else booking.occurrence(number)


async def _end_of_class(store: Store, lablet: Lablet) -> BookedUntil:
    """A seat lasts as long as its class."""
    booking, found = await _class_of(store, lablet)
    name = lablet.booking_id if booking is None else booking.name
    ends_at = lablet.ends_at if found is None else found.ends_at
    return BookedUntil(ends_at, f"it is a seat of booking {name}; extend the class instead")


def _booked_problem(shortage: Shortage, subject: str) -> ProblemError:
    detail = f"{subject} {describe_booked(shortage)}; give the lablet an earlier end, or cancel or move a booking"
    current = {"at": format_utc(shortage.at), "needed": shortage.needed, "allowed": shortage.allowed}
    return ProblemError(ProblemCode.BOOKED, detail, current=current)
