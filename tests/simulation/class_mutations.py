"""Deliberate faults in what keeps the promises of bookings and schedules; see `mutations`."""

from __future__ import annotations

from tests.simulation.mutation import Mutation

_SPRING = "a class at the hour that is skipped, with fail-overs at its start"
_AUTUMN = "two classes and walk-ins compete for two workers in the hour that comes twice"
_DOWN = "control plane and controllers are down across the start of a class"
_BESIDE = "a class beside a walk-in that goes on is cancelled in its middle"

_POOL = "a class that needs a license and one that needs none begin at one time, and the pool has one license"

CLASS_MUTATIONS = (
    Mutation(
        "more classes are confirmed than there may be workers",
        "model/calendar/admission.py",
        "        if workers > limits.max_workers_per_region:",
        "        if False:",
        _AUTUMN,
    ),
    Mutation(
        "more classes are confirmed than the pool has licenses",
        "model/calendar/admission.py",
        "            if takes and licenses > limits.license_pool:",
        "            if False:",
        _AUTUMN,
    ),
    Mutation(
        "workers of a class that needs no license take one",
        "control_plane/bookings/workers.py",
        "context.scale_up_license is not None and (booking.requirements.license or not pool)",
        "context.scale_up_license is not None",
        _POOL,
    ),
    Mutation(
        "a team books more seats than it may",
        "model/calendar/admission.py",
        "        if allowed is not None and usage.team_seats > allowed:",
        "        if False:",
        _AUTUMN,
    ),
    Mutation(
        "a worker that is launched for a walk-in takes the place of a class",
        "model/calendar/walk_ins.py",
        "        return next((each.shortage for each in found), None)",
        "        return None",
        _AUTUMN,
    ),
    Mutation(
        "a walk-in is placed on a worker that a class needs later",
        "model/calendar/walk_ins.py",
        "            if each.until > free_from:",
        "            if False:",
        "a walk-in waits for the only worker, which a class needs",
    ),
    Mutation(
        "a walk-in is placed on a booked worker",
        "model/lablet/placement.py",
        "        if worker.booking_id == booking_id or worker.booked_until is None:",
        "        if True:",
        _SPRING,
    ),
    Mutation(
        "a worker is booked under a walk-in",
        "model/booking/progress.py",
        "        and all(walk_in_end(lablet, now) <= now for lablet in walk_ins.get(worker.id, ()))",
        "",
        _BESIDE,
    ),
    Mutation(
        "a policy stops a booked worker",
        "model/calendar/precedence.py",
        "    if not worker.is_booked(now) or worker.booked_until is None:",
        "    if True:",
        _SPRING,
    ),
    Mutation(
        "a class warms up when it begins",
        "model/booking/progress.py",
        "is_warming = now >= occurrence.warm_up_at or",
        "is_warming = now >= occurrence.starts_at or",
        _DOWN,
    ),
    Mutation(
        "what a class lacks is not said",
        "model/booking/progress.py",
        "    if now >= occurrence.starts_at - RISK_BEFORE and not missing:",
        "    if False:",
        "CML refuses labs before a class",
    ),
    Mutation(
        "a seat whose lab has failed stays failed",
        "control_plane/bookings/seats.py",
        "    return at is not None and at <= now",
        "    return False",
        "CML rejects the lab of a seat twice",
    ),
    Mutation(
        "a class does not end",
        "model/booking/progress.py",
        "    if now >= occurrence.ends_at:",
        "    if False:",
        _DOWN,
    ),
    Mutation(
        "the seats of a cancelled class go on",
        "control_plane/bookings/progress.py",
        "            if occurrence.holds_capacity and is_over(occurrence, clock.earliest_now()):",
        "            if False:",
        _BESIDE,
    ),
    Mutation(
        "workers stay booked after a class",
        "control_plane/bookings/workers.py",
        "after = updated_record(worker, tx.now, booking_id=None, booked_until=None)",
        "after = worker",
        _DOWN,
    ),
)
