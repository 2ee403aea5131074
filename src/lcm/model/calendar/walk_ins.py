"""Until when lablets of no booking may use workers: whatever classes need must be free again in time. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from lcm.model.base import LenientModel
from lcm.model.calendar.admission import (
    AddedShortage,
    BookedCapacity,
    BookingLimits,
    LiveWorker,
    Resource,
    Shortage,
    added_shortages,
)
from lcm.model.formatting import format_instant

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


class BookedCapacitySnapshot(LenientModel):
    """What classes will take, and the workers of their regions as admission counts them."""

    booked: tuple[BookedCapacity, ...] = ()
    workers: dict[str, LiveWorker] = Field(
        default_factory=dict, description="By id. `free_from`: when it can serve a class; null if it cannot."
    )
    max_workers_per_region: int = 0
    license_pool: int | None = None
    launches_licensed: bool | None = Field(
        default=None, description="Whether a worker that is launched takes a license; null if it is not known."
    )
    default_region: str = ""


NOTHING_BOOKED = BookedCapacitySnapshot()


class WalkInRoom:
    """The room that classes leave to walk-ins. What is planned is taken off, so it only gets smaller."""

    def __init__(self, snapshot: BookedCapacitySnapshot, now: datetime) -> None:
        self._now = now
        self._workers = dict(snapshot.workers)
        self._limits = BookingLimits(snapshot.max_workers_per_region, snapshot.license_pool)
        self._launches_licensed = bool(snapshot.launches_licensed)
        self.default_region = snapshot.default_region
        self._booked = [each for each in snapshot.booked if each.end > now]
        self._templates = {(each.region, each.template) for each in self._booked}
        self._first = min((each.start for each in self._booked), default=None)
        self._last = max((each.end for each in self._booked), default=None)
        self._kept: dict[LiveWorker, list[AddedShortage]] = {}
        self._launches: dict[LiveWorker, Shortage | None] = {}
        self._licenses: dict[LiveWorker, Shortage | None] = {}

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """From the first time that is booked to the last; None if nothing is."""
        return None if self._first is None or self._last is None else (max(self._first, self._now), self._last)

    def shortage_on(self, worker_id: str, until: datetime) -> Shortage | None:
        """What a class would lack if a walk-in used the worker until then; None if nothing."""
        found = self._first_shortage(worker_id)
        return found if found is not None and found.at < until else self._license_shortage(worker_id)

    def free_until(self, worker_id: str) -> datetime | None:
        """Until when walk-ins may use the worker; None if no class needs it."""
        found = self._first_shortage(worker_id)
        return None if found is None else found.at

    def launch_shortage(self, region: str | None, template: str, until: datetime) -> Shortage | None:
        """What a class would lack if a worker were launched for walk-ins that end then; None if nothing."""
        worker = self._launched(region, template, until)
        if sum(each.region == worker.region for each in self._workers.values()) >= self._limits.max_workers_per_region:
            return None  # none is launched, and that is the reason
        if worker not in self._launches:
            before = list(self._workers.values())
            self._launches[worker] = self._first_added(before, [*before, worker], worker.region)
        return self._launches[worker]

    def use(self, worker_id: str, until: datetime) -> None:
        """A walk-in uses the worker until then."""
        worker = self._workers.get(worker_id)
        if worker is None or not self._booked:
            return
        after = _started(worker)
        if after.free_from is not None and until > after.free_from:
            after = replace(after, free_from=until)
        if after != worker:
            self._workers[worker_id] = after
            self._clear()

    def launch(self, worker_id: str, region: str | None, template: str, until: datetime) -> None:
        """A worker with this id is launched for walk-ins that end then."""
        if self._booked:
            self._workers[worker_id] = self._launched(region, template, until)
            self._clear()

    def is_needed(self, worker_id: str, until: datetime) -> bool:
        """Whether any class might need the worker before that time, so that its use has to be counted at once."""
        worker = self._workers.get(worker_id)
        if worker is None or self._first is None or worker.free_from is None or until <= self._first:
            return False
        return (worker.region, worker.template) in self._templates

    def _first_shortage(self, worker_id: str) -> Shortage | None:
        worker = self._workers.get(worker_id)
        if worker is None or worker.free_from is None or (worker.region, worker.template) not in self._templates:
            return None
        free_from = worker.free_from
        for each in self._shortages_without(worker):
            if each.until > free_from:
                return replace(each.shortage, at=max(each.shortage.at, free_from))
        return None

    def _license_shortage(self, worker_id: str) -> Shortage | None:
        """What a class would lack if the worker were started and took a license, which it then keeps."""
        worker = self._workers.get(worker_id)
        if worker is None or not worker.registers:
            return None
        if worker not in self._licenses:
            before = list(self._workers.values())
            after = before.copy()
            after[after.index(worker)] = _started(worker)
            self._licenses[worker] = self._first_added(before, after, worker.region)
        return self._licenses[worker]

    def _shortages_without(self, worker: LiveWorker) -> list[AddedShortage]:
        """What is short if a worker of this kind never serves a class: the same for all that are alike."""
        kind = replace(worker, free_from=self._now)
        if kind not in self._kept:
            before = list(self._workers.values())
            alike = [each for each in before if each.free_from and replace(each, free_from=self._now) == kind]
            first = min(alike, key=lambda each: each.free_from or self._now)
            after = before.copy()
            after[after.index(first)] = replace(kind, free_from=None)
            found = added_shortages(self._booked, before, after, self._limits, kind.region, self._now)
            self._kept[kind] = list(found)
        return self._kept[kind]

    def _first_added(self, before: Iterable[LiveWorker], after: Iterable[LiveWorker], region: str) -> Shortage | None:
        found = added_shortages(self._booked, list(before), list(after), self._limits, region, self._now)
        return next((each.shortage for each in found), None)

    def _launched(self, region: str | None, template: str, until: datetime) -> LiveWorker:
        free_from = max(until, self._now)
        return LiveWorker(region or self.default_region, template, free_from, self._launches_licensed)

    def _clear(self) -> None:
        self._kept.clear()
        self._launches.clear()
        self._licenses.clear()


def _started(worker: LiveWorker) -> LiveWorker:
    return replace(worker, registered=True, registers=False) if worker.registers else worker


def describe_booked(shortage: Shortage) -> str:
    """Why a walk-in waits, as a clause."""
    limit = "LICENSE_POOL_SIZE" if shortage.resource is Resource.LICENSES else "MAX_WORKERS_PER_REGION"
    what = "licenses: " if shortage.resource is Resource.LICENSES else ""
    return (
        f"booked from {format_instant(shortage.at)} on: {what}{shortage.needed} would be needed then,"
        f" and {limit} is {shortage.allowed}"
    )
