"""Transactions on records: what is read, decided and staged in one transaction is committed together or not at all.

An attempt is a function that reads, decides and stages writes. If what it read has changed before the commit, it runs
again from the beginning with a new transaction, so it must do nothing but read and stage.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.records.kinds import (
    ALERT,
    AUDIT,
    BOOKING_CHANGED,
    BOOKINGS,
    CALENDAR,
    FLEET,
    LABLET_CHANGED,
    LABLET_HISTORY,
    LABLETS,
    LEADERSHIPS,
    SCHEDULES,
    SUBSCRIPTIONS,
    TEAMS,
    WORKER_CHANGED,
    WORKER_HISTORY,
    WORKERS,
    booking_fields,
    booking_unique_keys,
    lablet_fields,
    lablet_unique_keys,
    worker_fields,
    worker_unique_keys,
)
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Guard, NewJournalEntry, Put, RevisionConflictError, UniqueViolationError
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.model.audit import Actor, ActorKind, AuditEntry, LabletHistoryEntry, WorkerHistoryEntry
from lcm.model.booking.record import Booking
from lcm.model.booking.unreadable import unreadable_reason
from lcm.model.calendar.state import CalendarState
from lcm.model.fleet.state import FIRST_TERM, FleetState, LeadershipTerm
from lcm.model.lablet.record import Lablet
from lcm.model.notification.alert import booking_changes, breaker_changes, lablet_changes, worker_changes
from lcm.model.problems import ProblemCode
from lcm.model.worker.cost import DEFAULT_STORAGE_PRICE
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Delete, Kind, Store, StoredDocument
    from lcm.model.notification.alert import AlertChange

R = TypeVar("R")

_MAX_ATTEMPTS = 60
"""A long attempt loses to shorter ones until their burst is over: it is tried for about six seconds."""
_NAMED_KINDS = {
    BOOKINGS.name: "booking",
    LABLETS.name: "lablet",
    SUBSCRIPTIONS.name: "subscription",
    SCHEDULES.name: "schedule",
    TEAMS.name: "team",
}
_RETRY_BACKOFF = Backoff(base=0.002, max_delay=0.1, jitter=0.5)


class Owned(Protocol):
    """What belongs to a team: journal entries about it are for the members who may see it."""

    @property
    def team(self) -> str:
        """The id of the team; empty for none."""

    @property
    def owner(self) -> str:
        """What proves the owner; empty for none."""


@dataclass(frozen=True, slots=True)
class OwnedBy:
    """Belongs to a team, and to no person in it."""

    team: str
    owner: str = ""


class Transaction:
    """One attempt by one actor, at one time."""

    def __init__(self, store: Store, actor: Actor, storage_price: float = DEFAULT_STORAGE_PRICE) -> None:
        self.store = store
        self.actor = actor
        self._storage_price = storage_price
        self.now: datetime = clock.now()
        self.earliest_now: datetime = clock.earliest_now()  # for deadlines
        self._read: dict[str, tuple[Worker, int]] = {}
        self._lablets: dict[str, tuple[Lablet, int]] = {}
        self._bookings: dict[str, tuple[Booking, int]] = {}
        self._calendar: tuple[CalendarState, int | None] | None = None
        self._on_calendar = False
        self._fleet: tuple[FleetState, int | None] | None = None
        self._fleet_after: FleetState | None = None
        self._leaving = 0
        self._writes: list[Put | Delete] = []
        self._entries: list[NewJournalEntry] = []
        self._guards: dict[tuple[str, str], Guard] = {}

    async def worker(self, worker_id: str, *, if_match: int | None = None) -> Worker:
        """Read a worker; with `if_match` it must be at this version."""
        stored = await self.store.get(WORKERS, worker_id)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no worker {worker_id}")
        worker = Worker.model_validate_json(stored.body)
        if if_match is not None and if_match != worker.version:
            raise PreconditionFailedError("worker", worker.version, if_match)
        self._read[worker_id] = (worker, stored.revision)
        return worker

    def listed_worker(self, stored: StoredDocument) -> Worker:
        """A worker that a list of this attempt has returned. If it changes before the commit, that conflicts."""
        worker = Worker.model_validate_json(stored.body)
        self._read[stored.id] = (worker, stored.revision)
        return worker

    def attribute_to_policy(self, name: str) -> None:
        """Record what follows as done by a policy, not by the caller who made the request."""
        self.actor = Actor(kind=ActorKind.POLICY, name=name)

    def save_worker(self, worker: Worker, action: str, reason: str = "", **details: Any) -> Worker:
        """Stage a worker that was read in this transaction, or a new one. An unchanged worker is not written."""
        before, revision = self._read.get(worker.id, (None, None))
        if before is not None and worker == before:
            return worker
        if before is not None and _in_service(before) and not _in_service(worker):
            self._leaving += 1
        worker, body = self._put(worker, revision)
        if before is None or before.status is not worker.status:
            step = WorkerHistoryEntry(
                at=self.now,
                worker_id=worker.id,
                from_status=None if before is None else before.status,
                to_status=worker.status,
                reason=reason or action,
                actor=self.actor,
                version=worker.version,
                stopped_by_policy=_stopped_by_policy(before, worker),
            )
            self._entry(WORKER_HISTORY, worker.id, step.model_dump_json())
        self.audit(action, worker.id, reason, **details)
        self._entry(WORKER_CHANGED, worker.id, body)
        self.alert(worker_changes(before, worker, reason or action))
        return worker

    def save_without_event(self, worker: Worker) -> None:
        """Stage fields that are not part of the contract, such as activity: no new version, no event."""
        before, revision = self._read[worker.id]
        if worker != before:
            assert (worker.version, worker.generation) == (before.version, before.generation)
            self._put(worker, revision)

    async def lablets(self, lablet_ids: Sequence[str], unreadable: set[str] | None = None) -> dict[str, Lablet]:
        """Read lablets; those that do not exist are left out.

        One that cannot be read raises `ValidationError`; with `unreadable` it is logged, and its id added to the set.
        """
        for lablet_id, stored in (await self.store.get_many(LABLETS, lablet_ids)).items():
            if unreadable is None:
                lablet: Lablet | None = Lablet.model_validate_json(stored.body)
            else:
                lablet = read_or_skip(stored, Lablet, "lablet")
            if lablet is not None:
                self._lablets[lablet_id] = (lablet, stored.revision)
            elif unreadable is not None:
                unreadable.add(lablet_id)
        return {lablet_id: self._lablets[lablet_id][0] for lablet_id in lablet_ids if lablet_id in self._lablets}

    async def lablet(self, lablet_id: str, *, if_match: int | None = None) -> Lablet:
        """Read a lablet; with `if_match` it must be at this version."""
        lablet = (await self.lablets([lablet_id])).get(lablet_id)
        if lablet is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no lablet {lablet_id}")
        if if_match is not None and if_match != lablet.version:
            raise PreconditionFailedError("lablet", lablet.version, if_match)
        return lablet

    def save_lablet(self, lablet: Lablet, action: str, reason: str = "", **details: Any) -> Lablet:
        """Stage a lablet that was read in this transaction, or a new one. An unchanged lablet is not written."""
        before, revision = self._lablets.get(lablet.id, (None, None))
        if before is not None and lablet == before:
            return lablet
        body = lablet.model_dump_json()
        fields, unique = lablet_fields(lablet), lablet_unique_keys(lablet)
        self._writes.append(Put(LABLETS, lablet.id, body.encode(), revision, fields, unique))
        if before is None or before.status is not lablet.status:
            step = LabletHistoryEntry(
                at=self.now,
                lablet_id=lablet.id,
                from_status=None if before is None else before.status,
                to_status=lablet.status,
                reason=reason or action,
                actor=self.actor,
                version=lablet.version,
                worker_id=lablet.worker_id or (before.worker_id if before is not None else None),
            )
            self._entry(LABLET_HISTORY, lablet.id, step.model_dump_json(), lablet)
        self.audit(action, lablet.id, reason, about=lablet, **details)
        self._entry(LABLET_CHANGED, lablet.id, body, lablet)
        self.alert(lablet_changes(before, lablet, reason or action))
        return lablet

    async def take_calendar(self) -> None:
        """Take turns with all else that bookings depend on: read the calendar first, and write it with the commit.

        Of two commits that have read the same calendar, one runs again and then sees what the other has changed.
        """
        if self._on_calendar:
            return
        calendar, revision = await self.read_calendar()
        self._on_calendar = True
        after = calendar.model_copy(update={"changes": calendar.changes + 1})
        self._guards.pop((CALENDAR.name, CALENDAR.name), None)  # it is written
        self._writes.append(Put(CALENDAR, CALENDAR.name, after.model_dump_json().encode(), revision))

    async def depend_on_calendar(self) -> None:
        """Read the calendar. The commit conflicts if anything that bookings depend on changes meanwhile."""
        _, revision = await self.read_calendar()
        self._guard(CALENDAR, CALENDAR.name, revision)

    async def read_calendar(self) -> tuple[CalendarState, int | None]:
        """The calendar and its revision, read once. The commit depends on it only if the attempt takes its turn later.

        For an attempt that finds out from what it reads next whether it has to.
        """
        if self._calendar is None:
            stored = await self.store.get(CALENDAR, CALENDAR.name)
            state = CalendarState() if stored is None else CalendarState.model_validate_json(stored.body)
            self._calendar = (state, None if stored is None else stored.revision)
        return self._calendar

    def require_unchanged(self, documents: Iterable[tuple[Kind, StoredDocument]]) -> None:
        """Make the commit depend on documents that were read in this attempt."""
        for kind, stored in documents:
            self._guard(kind, stored.id, stored.revision)

    async def booking(self, booking_id: str, *, if_match: int | None = None) -> Booking:
        """Read a booking; with `if_match` it must be at this version."""
        stored = await self.store.get(BOOKINGS, booking_id)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no booking {booking_id}")
        try:
            booking = Booking.model_validate_json(stored.body)
        except ValidationError as error:
            raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, unreadable_reason(error)) from None
        if if_match is not None and if_match != booking.version:
            raise PreconditionFailedError("booking", booking.version, if_match)
        self._bookings[booking_id] = (booking, stored.revision)
        return booking

    def save_booking(self, booking: Booking, action: str, reason: str = "", **details: Any) -> Booking:
        """Stage a booking that was read in this transaction, or a new one. An unchanged booking is not written."""
        before, revision = self._bookings.get(booking.id, (None, None))
        if before is not None and booking == before:
            return booking
        body = booking.model_dump_json()
        fields, unique = booking_fields(booking), booking_unique_keys(booking)
        self._writes.append(Put(BOOKINGS, booking.id, body.encode(), revision, fields, unique))
        self.audit(action, booking.id, reason, about=booking, **details)
        self._entry(BOOKING_CHANGED, booking.id, body, booking)
        self.alert(booking_changes(before, booking))
        return booking

    def audit(self, action: str, subject: str, reason: str = "", *, about: Owned | None = None, **details: Any) -> None:
        """Stage an audit entry: who did what, and why. `about` is the subject if it belongs to a team."""
        entry = AuditEntry(
            at=self.now, actor=self.actor, action=action, subject=subject, reason=reason, details=details
        )
        self._entry(AUDIT, subject, entry.model_dump_json(), about)

    def alert(self, changes: Iterable[AlertChange]) -> None:
        """Stage alerts that are raised or resolved. The journal is the outbox of notifications."""
        for change in changes:
            alert = change.to_alert(clock.new_id("ev"), self.now)
            self._entry(ALERT, alert.subject.id, alert.model_dump_json())

    async def fleet(self) -> FleetState:
        """Read the fleet state. Reading it makes the commit depend on it."""
        if self._fleet is None:
            stored = await self.store.get(FLEET, FLEET.name)
            state = FleetState() if stored is None else FleetState.model_validate_json(stored.body)
            self._fleet = (state, None if stored is None else stored.revision)
        return self._fleet_after or self._fleet[0]

    def save_fleet(self, state: FleetState) -> None:
        """Stage the fleet state; it must have been read in this transaction."""
        assert self._fleet is not None
        self._fleet_after = state

    def stage(self, put: Put | Delete) -> None:
        """Stage a document of another kind."""
        self._writes.append(put)

    def depend_on(self, kind: Kind, document_id: str, revision: int | None) -> None:
        """Make the commit depend on a document of another kind: it must still have this revision."""
        self._guard(kind, document_id, revision)

    async def fence(self, controller: str, term: int, *, announce: bool = False, swept: bool = False) -> LeadershipTerm:
        """Reject a term that is older than the newest known one, and store the newest.

        The newest term is part of the commit: if an old and a new leader write at once, the old one's commit fails.
        """
        stored = await self.store.get(LEADERSHIPS, controller)
        newest = None if stored is None else LeadershipTerm.model_validate_json(stored.body)
        if term < FIRST_TERM:
            detail = f"term {term} of {controller} is not valid: terms start at {FIRST_TERM}"
            raise ProblemError(ProblemCode.STALE_LEADER, detail)
        if newest is not None and term < newest.term:
            raise ProblemError(
                ProblemCode.STALE_LEADER,
                f"term {term} of {controller} is older than the newest term, {newest.term}; if etcd was replaced, run: "
                f"lcm leadership reset {controller}",
                current={"term": newest.term},
            )
        if newest is not None and newest.term < term and not announce:
            # A leader announces its term first. The store does not know it if the leadership was reset, or if a backup
            # was restored: then the leader must announce itself again and verify all workers, as every new leader does.
            detail = (
                f"term {term} of {controller} was not announced to this store: the leadership was reset, or a backup "
                "was restored"
            )
            raise ProblemError(ProblemCode.STALE_LEADER, detail, current={"term": newest.term})
        swept = swept or (newest is not None and newest.term == term and newest.startup_sweep_done)
        leadership = LeadershipTerm(controller=controller, term=term, announced_at=self.now, startup_sweep_done=swept)
        if newest is not None and newest.term == term:
            leadership = leadership.with_unknown_fields_of(newest)
        if newest is not None and (newest.term, newest.startup_sweep_done) == (term, swept):
            self._guard(LEADERSHIPS, controller, stored.revision if stored else None)
            return newest
        revision = None if stored is None else stored.revision
        self._writes.append(Put(LEADERSHIPS, controller, leadership.model_dump_json().encode(), revision))
        if announce:
            self.audit("leadership_swept" if swept else "leadership_announced", controller, term=term)
        return leadership

    async def startup_sweep_done(self, controller: str) -> bool:
        """Whether a controller's current leader has finished its startup sweep; the commit depends on it."""
        stored = await self.store.get(LEADERSHIPS, controller)
        self._guard(LEADERSHIPS, controller, None if stored is None else stored.revision)
        return stored is not None and LeadershipTerm.model_validate_json(stored.body).startup_sweep_done

    async def reset_leadership(self, controller: str) -> None:
        """Reset the newest term of a controller, for an etcd that was replaced and counts from the beginning."""
        stored = await self.store.get(LEADERSHIPS, controller)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"no controller {controller} has announced a term")
        was = LeadershipTerm.model_validate_json(stored.body)
        fresh = was.model_copy(update={"term": 0, "announced_at": self.now, "startup_sweep_done": False})
        self._writes.append(Put(LEADERSHIPS, controller, fresh.model_dump_json().encode(), stored.revision))
        self.audit("leadership_reset", controller, f"term {was.term} was reset")

    async def commit(self) -> Sequence[str]:
        """Commit what was staged. If nothing was staged, guards are not checked either."""
        if self._leaving:
            state = await self.fleet()
            self.save_fleet(state.model_copy(update={"departures": state.departures + self._leaving}))
        if self._fleet is not None:
            self._settle_fleet(*self._fleet)
        if not self._writes and not self._entries:
            return ()
        return await self.store.commit(self._writes, entries=self._entries, guards=self._unwritten())

    def _unwritten(self) -> list[Guard]:
        """The guards of documents that are not written. One that is written must be what it was when it was guarded."""
        for write in self._writes:
            guard = self._guards.pop((write.kind.name, write.id), None)
            if guard is not None and guard.expected != write.expected:
                raise RevisionConflictError(write.kind.name, write.id, write.expected)
        return list(self._guards.values())

    def _put(self, worker: Worker, revision: int | None) -> tuple[Worker, str]:
        """Stage it with the present price of disk space; returns what is stored."""
        if worker.storage_price_per_gb_month_usd != self._storage_price:
            worker = worker.model_copy(update={"storage_price_per_gb_month_usd": self._storage_price})
        body = worker.model_dump_json()
        fields, unique = worker_fields(worker), worker_unique_keys(worker)
        self._writes.append(Put(WORKERS, worker.id, body.encode(), revision, fields, unique))
        return worker, body

    def _settle_fleet(self, before: FleetState, revision: int | None) -> None:
        if self._fleet_after is None or self._fleet_after == before:
            self._guard(FLEET, FLEET.name, revision)
        else:
            self._writes.append(Put(FLEET, FLEET.name, self._fleet_after.model_dump_json().encode(), revision))
            self.alert(breaker_changes(before.breakers, self._fleet_after.breakers))

    def _guard(self, kind: Kind, document_id: str, revision: int | None) -> None:
        """Make the commit depend on a document. A document that is written in the commit is checked anyway."""
        if not any(write.kind is kind and write.id == document_id for write in self._writes):
            self._guards.setdefault((kind.name, document_id), Guard(kind, document_id, revision))

    def _entry(self, topic: str, subject: str, body: str, about: Owned | None = None) -> None:
        team, owner = ("", "") if about is None else (about.team, about.owner)
        self._entries.append(NewJournalEntry(topic, subject, body.encode(), self.now, team, owner))


@dataclass(frozen=True, slots=True)
class Leader:
    """A controller that leads, and its term."""

    controller: str
    term: int
    sent_at: datetime | None = field(default=None, compare=False)  # what its clock showed; older ones do not say

    @property
    def actor(self) -> Actor:
        """The controller as recorded in the audit."""
        return Actor(kind=ActorKind.CONTROLLER, name=self.controller)

    def is_outdated(self, moment: datetime, newest: datetime, now: datetime) -> bool:
        """Whether something of this moment arrived after something newer.

        If the controller's clock has not even reached the newest moment, then it was set back since: what it sends now
        is the newest, although its moment is earlier. `now` serves for a controller that does not send its time.
        """
        return moment < newest <= (self.sent_at or now)


class UnitOfWork:
    """Runs transactions. `committed` is called after something was written."""

    def __init__(
        self,
        store: Store,
        committed: Callable[[], None] = lambda: None,
        *,
        storage_price: float = DEFAULT_STORAGE_PRICE,
    ) -> None:
        """`storage_price` is the price of disk space that every worker is saved with, per GB and month."""
        self.store = store
        self._committed = committed
        self._storage_price = storage_price
        self.transactions = 0
        """How many have ended: as long as it is the same, this process has changed nothing."""

    async def run(self, actor: Actor, attempt: Callable[[Transaction], Awaitable[R]]) -> R:
        """Run an attempt until it is committed, and return its result."""
        for number in range(_MAX_ATTEMPTS):
            tx = Transaction(self.store, actor, self._storage_price)
            result = await attempt(tx)
            try:
                entries = await tx.commit()
                self.transactions += 1
                if entries:
                    self._committed()
                return result
            except RevisionConflictError:
                await asyncio.sleep(_RETRY_BACKOFF.delay(number))
            except UniqueViolationError as violation:
                if violation.field != "requested_for":
                    raise _unique_violation_problem(violation) from None
                # Another scale-up for the same request committed first: run again and find its worker.
        raise ProblemError(ProblemCode.VERSION_CONFLICT, "too many concurrent changes; try again")

    async def run_fenced(self, leader: Leader, attempt: Callable[[Transaction], Awaitable[R]]) -> R:
        """Run a leader's attempt. A term older than the newest known one is rejected and changes nothing."""

        async def attempt_in_term(tx: Transaction) -> R:
            await tx.fence(leader.controller, leader.term)
            return await attempt(tx)

        return await self.run(leader.actor, attempt_in_term)


def _stopped_by_policy(before: Worker | None, after: Worker) -> bool | None:
    stopped = next((each for each in (after, before) if each and each.status is WorkerStatus.STOPPED), None)
    return None if stopped is None else stopped.stopped_by_policy


def _in_service(worker: Worker) -> bool:
    return worker.status is WorkerStatus.RUNNING and worker.desired_status is DesiredStatus.RUNNING


def name_taken_problem(what: str, name: str, owner: str) -> ProblemError:
    """The problem of a name that another record has."""
    detail = f"name: {name} is already used by {what} {owner}; choose another"
    return ProblemError(ProblemCode.NAME_TAKEN, detail, current={f"{what}_id": owner})


def _unique_violation_problem(violation: UniqueViolationError) -> ProblemError:
    if violation.field == "name":
        what = _NAMED_KINDS.get(violation.kind, "worker")
        return name_taken_problem(what, violation.value.rpartition(":")[2], violation.owner)
    detail = f"instance {violation.value} already belongs to worker {violation.owner}"
    return ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail, current={"worker_id": violation.owner})
