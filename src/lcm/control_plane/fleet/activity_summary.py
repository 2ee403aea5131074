"""A summary of activity in a span of time: what automation and people did, and what stopped workers saved."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic_core import from_json

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.journal.search import CLOCK_SKEW, cursor_after
from lcm.control_plane.records.kinds import AUDIT, LABLETS, WORKER_HISTORY, WORKERS
from lcm.control_plane.store.cursors import journal_cursor, parse_journal_cursor
from lcm.control_plane.store.port import Where
from lcm.core import clock
from lcm.core.singleflight import FreshSingleflight
from lcm.model.audit import ActorKind, AuditEntry
from lcm.model.fleet.activity_summary import (
    ActivityCount,
    ActivitySubject,
    ActivitySummary,
    AutomatedAction,
    WorkerSaving,
    automated_action_of,
)
from lcm.model.problems import ProblemCode
from lcm.model.worker.cost import StoppedTransition, stopped_time
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.store.port import JournalEntry, Store

DEFAULT_SPAN = timedelta(hours=12)
MAX_SPAN = timedelta(days=31)
MAX_ENTRIES = 100_000
MAX_NAMED = 12
MAX_TOP_SAVINGS = 10

_JOURNAL_PAGE = 500
_RECORD_BATCH = 100
_STOPPED_STATUS = WorkerStatus.STOPPED.value


class ActivitySummaryService:
    """Builds summaries. Concurrent requests for the same span share one."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._store = context.store
        self._shared: FreshSingleflight[ActivitySummary] = FreshSingleflight()

    async def summarize(self, since: datetime | None = None, until: datetime | None = None) -> ActivitySummary:
        """The summary from `since` to `until`; by default the last 12 hours."""
        now = clock.now()
        end = now if until is None else min(until, now)
        begin = end - DEFAULT_SPAN if since is None else since
        if not begin < end <= begin + MAX_SPAN:
            detail = f"since: must be before until and before now, by at most {MAX_SPAN.days} days"
            raise ProblemError(ProblemCode.INVALID, detail)
        return await self._shared.run((begin, end), lambda: self._read_summary(begin, end))

    async def _read_summary(self, since: datetime, until: datetime) -> ActivitySummary:
        counts = _AuditCounts()
        covered = since
        async for entry in _read_backwards(
            self._store, AUDIT, await cursor_after(self._store, AUDIT, until + CLOCK_SKEW), since
        ):
            covered = _covered_since(entry, counts.scanned, covered)
            counts.add(entry, since, until)
        transitions = await _StopTransitions.read(self._store, covered)
        begin = max(covered, transitions.covered)
        savings = _Savings(begin, until)
        await savings.add_all(self._store, transitions)
        subject_names = await _read_names(self._store, counts.subjects())
        return ActivitySummary(
            since=begin,
            until=until,
            complete=begin == since,
            automation=counts.automation(subject_names),
            people=counts.people(subject_names),
            saved_usd=round(savings.by_policy + savings.by_people, 4),
            saved_by_policy_usd=round(savings.by_policy, 4),
            saved_by_people_usd=round(savings.by_people, 4),
            stopped_throughout=savings.throughout,
            savers=savings.top_savings(),
        )


@dataclass(slots=True)
class _ActionCount:
    count: int = 0
    subjects: dict[str, None] = field(default_factory=dict)

    def add(self, subject: str) -> None:
        self.count += 1
        if len(self.subjects) < MAX_NAMED:
            self.subjects[subject] = None

    def to_model(self, what: str, names: dict[str, str]) -> ActivityCount:
        subjects = tuple(ActivitySubject(id=subject, name=names.get(subject, "")) for subject in self.subjects)
        return ActivityCount(what=what, count=self.count, concerned=subjects)


class _AuditCounts:
    """Counts audit entries, read newest first."""

    def __init__(self) -> None:
        self.scanned = 0
        self._automation: dict[AutomatedAction, _ActionCount] = {}
        self._people: dict[str, _ActionCount] = {}

    def add(self, entry: JournalEntry, since: datetime, until: datetime) -> None:
        self.scanned += 1
        if not since <= entry.at <= until or _is_ordinary_report(entry):
            return
        audit = AuditEntry.model_validate_json(entry.body)
        automated = automated_action_of(audit)
        if automated is not None:
            self._automation.setdefault(automated, _ActionCount()).add(audit.subject)
        elif audit.actor.kind is ActorKind.PERSON:
            action = f"lablet_{audit.action}" if audit.subject.startswith("l-") else audit.action
            self._people.setdefault(action, _ActionCount()).add(audit.subject)

    def subjects(self) -> list[str]:
        counts = (*self._automation.values(), *self._people.values())
        return sorted({subject for count in counts for subject in count.subjects})

    def automation(self, names: dict[str, str]) -> tuple[ActivityCount, ...]:
        return tuple(
            self._automation[action].to_model(action.value, names)
            for action in AutomatedAction
            if action in self._automation
        )

    def people(self, names: dict[str, str]) -> tuple[ActivityCount, ...]:
        most_first = sorted(self._people.items(), key=lambda each: (-each[1].count, each[0]))
        return tuple(count.to_model(action, names) for action, count in most_first)


@dataclass(frozen=True, slots=True)
class _StoppedWorkers:
    """Workers that are STOPPED now: count and hourly cost, by whether a policy stopped them."""

    count: dict[bool, int]
    cost: dict[bool, float]


@dataclass(frozen=True, slots=True)
class _StopTransitions:
    """All transitions into and out of STOPPED since a time, oldest first, and the workers STOPPED after the last one.

    A worker with other transitions only was STOPPED neither before nor after them, and is not in the sums.
    """

    by_worker: dict[str, list[StoppedTransition]]
    stopped_now: _StoppedWorkers
    covered: datetime

    @classmethod
    async def read(cls, store: Store, since: datetime) -> _StopTransitions:
        newest, stopped_now = await _count_stopped(store)
        begin = None if newest is None else journal_cursor(parse_journal_cursor(newest) + 1)
        by_worker: dict[str, list[StoppedTransition]] = {}
        scanned, covered = 0, since
        if begin is not None:
            async for entry in _read_backwards(store, WORKER_HISTORY, begin, since):
                covered = _covered_since(entry, scanned, covered)
                scanned += 1
                if entry.at >= since:
                    _add_transition(by_worker, entry)
        for transitions in by_worker.values():
            transitions.reverse()
        return cls(by_worker, stopped_now, covered)


class _Savings:
    """Adds up savings: from transitions for workers that have any, from sums for all others."""

    def __init__(self, since: datetime, until: datetime) -> None:
        self.by_policy = self.by_people = 0.0
        self.throughout = 0
        self._since = since
        self._until = until
        self._savings: list[WorkerSaving] = []

    async def add_all(self, store: Store, all_transitions: _StopTransitions) -> None:
        """Combine both: workers with transitions are listed by name and subtracted from the sums."""
        count, cost = Counter(all_transitions.stopped_now.count), dict(all_transitions.stopped_now.cost)
        changed = list(all_transitions.by_worker.items())
        for begin in range(0, len(changed), _RECORD_BATCH):
            batch = changed[begin : begin + _RECORD_BATCH]
            workers = await store.get_many(WORKERS, [worker_id for worker_id, _ in batch])
            for worker_id, transitions in batch:
                worker = json.loads(workers[worker_id].body) if worker_id in workers else {}
                price = float(worker.get("cost_per_hour_usd") or 0.0)
                self._add_worker(worker_id, str(worker.get("name", worker_id)), price, transitions)
                if transitions[-1].into:
                    by_policy = transitions[-1].by_policy
                    count[by_policy] -= 1
                    cost[by_policy] = cost.get(by_policy, 0.0) - price
        hours = (self._until - self._since).total_seconds() / 3600
        self.by_policy += max(0.0, cost.get(True, 0.0)) * hours
        self.by_people += max(0.0, cost.get(False, 0.0)) * hours
        self.throughout = max(0, count.total())

    def top_savings(self) -> tuple[WorkerSaving, ...]:
        """The workers that saved the most."""
        return tuple(sorted(self._savings, key=lambda saver: (-saver.saved_usd, saver.name))[:MAX_TOP_SAVINGS])

    def _add_worker(self, worker_id: str, name: str, price: float, transitions: Sequence[StoppedTransition]) -> None:
        stopped = stopped_time(transitions, self._since, self._until)
        by_policy, by_people = stopped.usd(price)
        self.by_policy += by_policy
        self.by_people += by_people
        saved = round(by_policy + by_people, 4)
        if saved:
            self._savings.append(
                WorkerSaving(worker_id=worker_id, name=name, stopped_seconds=stopped.seconds, saved_usd=saved)
            )


def _is_ordinary_report(entry: JournalEntry) -> bool:
    """Most audit entries are status reports without an event: decoding them is cheaper than validating them."""
    audit = from_json(entry.body)
    return audit["action"] == "status_reported" and "event" not in audit.get("details", {})


def _add_transition(by_worker: dict[str, list[StoppedTransition]], entry: JournalEntry) -> None:
    step = from_json(entry.body)
    out, into = step["from_status"] == _STOPPED_STATUS, step["to_status"] == _STOPPED_STATUS
    if out or into:
        transition = StoppedTransition(entry.at, out, into, by_policy=bool(step.get("stopped_by_policy")))
        by_worker.setdefault(entry.subject, []).append(transition)


async def _read_backwards(store: Store, topic: str, before: str | None, since: datetime) -> AsyncIterator[JournalEntry]:
    """Entries of a topic from a cursor back to a time, at most `MAX_ENTRIES`."""
    scanned = 0
    while scanned < MAX_ENTRIES:
        page = await store.read_journal(topics=[topic], before=before, newest_first=True, limit=_JOURNAL_PAGE)
        for entry in page:
            if entry.at < since - CLOCK_SKEW:
                return
            yield entry
        if len(page) < _JOURNAL_PAGE:
            return
        before, scanned = page[-1].cursor, scanned + len(page)


def _covered_since(entry: JournalEntry, scanned: int, covered: datetime) -> datetime:
    """The time since which all entries were read: that of the last entry, once the maximum is reached."""
    return max(covered, entry.at + CLOCK_SKEW) if scanned + 1 >= MAX_ENTRIES else covered


async def _count_stopped(store: Store) -> tuple[str | None, _StoppedWorkers]:
    """The workers that are STOPPED, and the cursor of the last transition of any worker at that time."""
    stopped = Where(any_of={"status": [_STOPPED_STATUS]})
    attempts = 3
    while True:
        newest, attempts = await _newest_cursor(store), attempts - 1
        rows = await store.count_by(WORKERS, ["status", "stopped_by_policy"], stopped, sums=["cost_per_hour_usd"])
        if not attempts or await _newest_cursor(store) == newest:
            break  # otherwise a worker changed status, and it is unknown whether before or after the count
    stopped_now = _StoppedWorkers({True: 0, False: 0}, {True: 0.0, False: 0.0})
    for (_, by_policy), count, (cost,) in rows:
        stopped_now.count[bool(by_policy)] += count
        stopped_now.cost[bool(by_policy)] += cost
    return newest, stopped_now


async def _newest_cursor(store: Store) -> str | None:
    newest = await store.read_journal(topics=[WORKER_HISTORY], newest_first=True, limit=1)
    return newest[0].cursor if newest else None


async def _read_names(store: Store, subjects: Iterable[str]) -> dict[str, str]:
    """The names of those subjects that are workers or lablets."""
    ids = list(subjects)
    records = {
        **await store.get_many(WORKERS, [subject for subject in ids if subject.startswith("w-")]),
        **await store.get_many(LABLETS, [subject for subject in ids if subject.startswith("l-")]),
    }
    return {record_id: str(json.loads(stored.body)["name"]) for record_id, stored in records.items()}
