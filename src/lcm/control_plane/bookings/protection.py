"""Booked capacity is not taken by others: what scale-up adds or resumes must leave room for every class."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.bookings.admission import read_booked, read_live, read_templates
from lcm.control_plane.errors import ProblemError
from lcm.model.base import format_utc
from lcm.model.calendar.admission import BookingLimits, LiveWorker, added_shortage
from lcm.model.formatting import format_instant
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker

_AHEAD = timedelta(days=400)


async def check_not_booked(
    tx: Transaction,
    *,
    region: str,
    template: str,
    until: datetime | None,
    max_workers: int,
    resumed: Worker | None = None,
) -> None:
    """Rejected if a class would lack a worker because of this one, which is in use until then; None: for ever.

    The transaction has taken the calendar: no class that is not seen here can be confirmed before it is committed.
    """
    booked = [each for each in await read_booked(tx.store, tx.now, tx.now + _AHEAD) if each.region == region]
    if not booked:
        return
    live, _ = await read_live(tx.store, region, await read_templates(tx.store), tx.now)
    before = list(live.values())
    used = LiveWorker(region, template, until)
    if resumed is not None:
        used = replace(live.pop(resumed.id), free_from=until)
    shortage = added_shortage(booked, before, [*live.values(), used], BookingLimits(max_workers), region, tx.now)
    if shortage is not None:
        at = format_instant(shortage.at)
        detail = (
            f"the workers of {region} are booked from {at} on: {shortage.needed} would be needed then,"
            f" and MAX_WORKERS_PER_REGION is {shortage.allowed};"
            " give the lablet an earlier end, or cancel or move a booking"
        )
        current = {"at": format_utc(shortage.at), "needed": shortage.needed, "allowed": shortage.allowed}
        raise ProblemError(ProblemCode.BOOKED, detail, current=current)
