"""What a class may take of a limited pool of licenses, and what is left to classes that need one. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.lablet.scheduling.template_choice import will_be_licensed
from lcm.model.worker.status import DesiredStatus, LicenseStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.model.booking.record import Booking
    from lcm.model.worker.record import Worker


@dataclass(frozen=True, slots=True)
class LicenseRoom:
    """The licenses of the pool that a class may take now.

    `spare`: how many more workers may register. `reserved`: of the workers that are registered and not booked, so many
    are left to classes that need a license.
    """

    spare: int
    reserved: int = 0


def takes_license(worker: Worker) -> bool:
    """Whether it has a license, or registers as it is."""
    if worker.license_status is LicenseStatus.REGISTERED:
        return True
    return will_be_licensed(worker) and worker.desired_status is DesiredStatus.RUNNING


def license_room(
    pool: int, booking: Booking, workers: Iterable[Worker], others: Sequence[Booking], until: datetime, now: datetime
) -> LicenseRoom:
    """What a class may take until its end. `workers` are those of all regions, `others` the bookings beside it."""
    registered = [worker for worker in workers if takes_license(worker)]
    spare = pool - len(registered)
    if booking.requirements.license:
        return LicenseRoom(max(0, spare))
    licensed = [each for each in others if each.requirements.license and each.id != booking.id]
    ids, kinds = {each.id for each in licensed}, defaultdict[tuple[str, str], list["Booking"]](list)
    for each in licensed:
        kinds[each.aws_region, each.template].append(each)
    reserved = 0
    for kind, found in kinds.items():
        alike = [worker for worker in registered if (worker.aws_region, worker.template_name) == kind]
        free = sum(not worker.is_booked(now) for worker in alike)
        served = sum(worker.is_booked(now) and worker.booking_id in ids for worker in alike)
        missing = max(0, _most_at_once(found, until, now) - served)
        spare -= max(0, missing - free)
        if kind == (booking.aws_region, booking.template):
            reserved = missing
    return LicenseRoom(max(0, spare), reserved)


def _most_at_once(bookings: Sequence[Booking], until: datetime, now: datetime) -> int:
    """How many workers they take at one time before then."""
    parts = [
        (max(part.warm_up_at, now), part.ends_at, each.workers)
        for each in bookings
        for part in each.open_occurrences
        if part.warm_up_at < until and part.ends_at > now
    ]
    return max((sum(count for begin, end, count in parts if begin <= at < end) for at, _, _ in parts), default=0)
