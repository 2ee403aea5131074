"""Who decides what a worker is to be. One order for everybody who may stop or start a worker; pure.

From the highest to the lowest: termination, hold, booking, a person's override, maintenance, schedule, and at last the
policies (auto-pause, scale-down, scale-up). Whoever wants to change a desired status asks `decide_desired` first, and
changes it only if its own claim wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.base import CaseInsensitiveEnum
from lcm.model.formatting import as_clause, format_clock_time
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.record import Hold, Worker


class Authority(CaseInsensitiveEnum):
    """Who may decide what a worker is to be, the highest first."""

    TERMINATION = "termination"
    HOLD = "hold"
    BOOKING = "booking"
    PERSON = "person"
    MAINTENANCE = "maintenance"
    SCHEDULE = "schedule"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Claim:
    """What an authority wants a worker to be, why, and until when; without an end it lasts until something changes."""

    authority: Authority
    desired: DesiredStatus
    reason: str
    until: datetime | None = None
    pause_reason: str = ""  # what a stop is recorded with


@dataclass(frozen=True, slots=True)
class OtherClaims:
    """Claims that do not follow from the worker's record alone. None: that authority wants nothing."""

    fleet_hold: Hold | None = None
    booking: Claim | None = None
    maintenance: Claim | None = None
    schedule: Claim | None = None


NO_OTHER_CLAIMS = OtherClaims()


def decide_desired(worker: Worker, now: datetime, others: OtherClaims = NO_OTHER_CLAIMS) -> Claim:
    """The claim that wins. Without any, the desired status stays as a person or a policy has set it."""
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Claim(Authority.TERMINATION, DesiredStatus.TERMINATED, "termination is requested")
    return (
        _hold_claim(worker, others.fleet_hold, now)
        or others.booking
        or booking_claim(worker, now)
        or override_claim(worker, now)
        or others.maintenance
        or others.schedule
        or Claim(Authority.POLICY, worker.desired_status, f"its desired status is {worker.desired_status}")
    )


def outranking_claim(
    authority: Authority, worker: Worker, now: datetime, others: OtherClaims = NO_OTHER_CLAIMS
) -> Claim | None:
    """The claim of a higher authority, because of which this one must not change the desired status now; or None."""
    winner, order = decide_desired(worker, now, others), tuple(Authority)
    return winner if order.index(winner.authority) < order.index(authority) else None


def booking_claim(worker: Worker, now: datetime) -> Claim | None:
    """A worker that is booked for a class runs until the class ends."""
    if not worker.is_booked(now) or worker.booked_until is None:
        return None
    reason = f"it is booked for {worker.booking_id} until {format_clock_time(worker.booked_until, now)}"
    return Claim(Authority.BOOKING, DesiredStatus.RUNNING, reason, worker.booked_until)


def override_claim(worker: Worker, now: datetime) -> Claim | None:
    """What a person wants this worker to be for a time, if that time is not over."""
    override = worker.override
    if override is None or not override.active(now):
        return None
    until = "" if override.until is None else f" until {format_clock_time(override.until, now)}"
    why = f" ({as_clause(override.reason)})" if override.reason else ""
    reason = f"{override.by} requested {override.desired}{until}{why}"
    return Claim(Authority.PERSON, override.desired, reason, override.until)


def _hold_claim(worker: Worker, fleet_hold: Hold | None, now: datetime) -> Claim | None:
    """A hold keeps whatever is desired now. Of two holds, the later end counts."""
    holds = [hold for hold in (fleet_hold, worker.hold) if hold is not None and hold.active(now)]
    if not holds:
        return None
    endless = any(hold.until is None for hold in holds)
    until = None if endless else max(hold.until for hold in holds if hold.until is not None)
    first = holds[0]
    reason = f"on hold by {first.by}: {as_clause(first.reason)}"
    return Claim(Authority.HOLD, worker.desired_status, reason, until)
