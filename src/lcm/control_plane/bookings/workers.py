"""The workers of a class: booked, started or launched when it warms up, and given back when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.kinds import WORKERS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, store_secrets
from lcm.control_plane.store.port import Where
from lcm.control_plane.workers.lifecycle import resume_fields, updated_record
from lcm.control_plane.workers.scaling import ScaleUpPlan, new_worker
from lcm.core import clock
from lcm.model.booking.licenses import takes_license
from lcm.model.booking.progress import gets_token
from lcm.model.worker.record import Worker
from lcm.model.worker.requests import ScaleUpRequest
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import StoredDocument
    from lcm.model.booking.progress import WorkerChoice
    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.worker.template import WorkerTemplate


async def book_workers(
    context: ControlPlaneContext,
    tx: Transaction,
    booking: Booking,
    occurrence: BookingOccurrence,
    choice: WorkerChoice,
) -> None:
    """Book the chosen workers until the end of the class, start those that are stopped, and launch what is missing."""
    token = context.scale_up_license
    if (await context.settings()).scaling.license_pool_size and any(not takes_license(each) for each in choice.booked):
        await tx.take_calendar()  # what else takes a license of the pool takes its turn
    joining = {each.id for each in choice.booked}
    for worker in (*choice.serving, *choice.booked):
        # One that serves the class got it when it was booked. If it has none now, a person has taken it off.
        gets_license_token = token is not None and worker.id in joining and gets_token(worker, booking)
        after = booked_worker(worker, booking, occurrence, tx.now, gets_token=gets_license_token)
        if gets_license_token and token is not None:
            await store_secrets(tx, context.secret_box, worker.id, {LICENSE_TOKEN: token.get_secret_value()})
        resumes = after.desired_status is not worker.desired_status
        tx.save_worker(after, "booked", f"class {occurrence.number} of booking {booking.name}", resumed=resumes)
    if choice.launch:
        await _launch(context, tx, booking, occurrence, choice.launch)


def booked_worker(
    worker: Worker, booking: Booking, occurrence: BookingOccurrence, now: datetime, *, gets_token: bool = False
) -> Worker:
    """The worker once it is booked for the class: it runs until the end of it, with a license if it gets the token."""
    fields = _booked_fields(booking, occurrence)
    if gets_token:
        fields["has_license_token"] = True
    resumes = worker.desired_status is DesiredStatus.STOPPED
    if resumes:
        fields |= resume_fields(worker, by_policy=True)
    return updated_record(worker, now, bump_generation=resumes or gets_token, **fields)


def launched_worker(plan: ScaleUpPlan, booking: Booking, occurrence: BookingOccurrence, now: datetime) -> Worker:
    """The record of a worker that is launched for the class."""
    return new_worker(plan, now).model_copy(update=_booked_fields(booking, occurrence))


def _booked_fields(booking: Booking, occurrence: BookingOccurrence) -> dict[str, Any]:
    return {"booking_id": booking.id, "booked_until": occurrence.ends_at}


async def _launch(
    context: ControlPlaneContext, tx: Transaction, booking: Booking, occurrence: BookingOccurrence, count: int
) -> None:
    context.region(booking.aws_region)  # in another one nobody would launch them
    await tx.take_calendar()  # bookings count the workers that exist
    template = await read_template(tx.store, booking.template)
    pool = (await context.settings()).scaling.license_pool_size
    reason = f"class {occurrence.number} of booking {booking.name}"
    number = 0
    for _ in range(count):
        number += 1
        while await tx.store.get_unique(WORKERS, "requested_for", _need(booking, occurrence, number)) is not None:
            number += 1
        plan = launch_plan(context, template, booking, occurrence, number, pool=pool)
        token = context.scale_up_license if plan.licensed else None
        tx.save_worker(launched_worker(plan, booking, occurrence, tx.now), "booked", reason, resumed=False)
        if token is not None:
            await store_secrets(tx, context.secret_box, plan.worker_id, {LICENSE_TOKEN: token.get_secret_value()})


def launch_plan(
    context: ControlPlaneContext,
    template: WorkerTemplate,
    booking: Booking,
    occurrence: BookingOccurrence,
    number: int,
    *,
    pool: int,
) -> ScaleUpPlan:
    """What the so many-th worker that is launched for the class will be.

    Of a limited pool of licenses it takes one only for a class that needs it: admission counts no more.
    """
    reason = f"class {occurrence.number} of booking {booking.name}"
    need = {"template": template.name, "reason": reason, "for": _need(booking, occurrence, number)}
    request = ScaleUpRequest.model_validate(need)
    licensed = context.scale_up_license is not None and (booking.requirements.license or not pool)
    return ScaleUpPlan(request, template, booking.aws_region, clock.new_id("w"), licensed=licensed)


def _need(booking: Booking, occurrence: BookingOccurrence, number: int) -> str:
    """The key of one worker that is launched: a repeated commit launches no second one for it."""
    return f"booking:{booking.id}:{occurrence.number}:{number}"


async def extend_workers(tx: Transaction, booking: Booking, occurrence: BookingOccurrence) -> None:
    """Keep the workers of a class until its new end, in the commit that moves it.

    The scheduler does so too, but it may be away: from the old end on others would take them.
    """
    async for worker in _workers_of(tx, booking):
        if worker.booked_until is not None and worker.booked_until < occurrence.ends_at:
            after = updated_record(worker, tx.now, booked_until=occurrence.ends_at)
            tx.save_worker(after, "booked", f"class {occurrence.number} of booking {booking.name}", resumed=False)


async def give_back_workers(tx: Transaction, booking: Booking) -> None:
    """Take the booking off its workers: from now on policies decide about them."""
    async for worker in _workers_of(tx, booking):
        after = updated_record(worker, tx.now, booking_id=None, booked_until=None)
        tx.save_worker(after, "booking_ended", f"booking {booking.name}")


async def _workers_of(tx: Transaction, booking: Booking) -> AsyncIterator[Worker]:
    where = Where(any_of={"aws_region": [booking.aws_region]}, none_of={"status": [WorkerStatus.TERMINATED.value]})
    mark = booking.id.encode()
    async for stored in find_all(tx.store, WORKERS, where):
        worker = listed_or_skip(tx, stored) if mark in stored.body else None
        if worker is not None and worker.booking_id == booking.id:  # of an unreadable one the end is on its record
            yield worker


def listed_or_skip(tx: Transaction, stored: StoredDocument) -> Worker | None:
    """A worker that a list of this attempt has returned; None, with an error in the log, if it cannot be read."""
    try:
        return tx.listed_worker(stored)
    except ValidationError:
        return read_or_skip(stored, Worker, "worker")
