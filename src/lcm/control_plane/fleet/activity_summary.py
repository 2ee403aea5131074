"""Looking back on a span of time: what automation and people did in it, and what stopped workers saved."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

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
_IN_BODY = b'"STOPPED"'
_PLAIN_REPORT = b'"action":"status_reported"'
_WITH_EVENT = b'"event":'


class ActivitySummaryService:
    """Looks back. Whoever asks the same at once shares the answer."""

    def __init__(self, plane: ControlPlaneContext) -> None:
        self._store = plane.store
        self._shared: FreshSingleflight[ActivitySummary] = FreshSingleflight()

    async def summarize(self, since: datetime | None = None, until: datetime | None = None) -> ActivitySummary:
        """The span from `since` to `until`: by default the last hours."""
        now = clock.now()
        end = now if until is None else min(until, now)
        begin = end - DEFAULT_SPAN if since is None else since
        if not begin < end <= begin + MAX_SPAN:
            detail = f"since: must be before until and before now, by {MAX_SPAN.days} days at most"
            raise ProblemError(ProblemCode.INVALID, detail)
        return await self._shared.ask((begin, end), lambda: self._look(begin, end))

    async def _look(self, since: datetime, until: datetime) -> ActivitySummary:
        told = _AuditCounts()
        covered = since
        async for line in _read_backwards(
            self._store, AUDIT, await cursor_after(self._store, AUDIT, until + CLOCK_SKEW), since
        ):
            covered = _covered_since(line, told.looked_at, covered)
            told.note(line, since, until)
        steps = await _StopTransitions.read(self._store, covered)
        begin = max(covered, steps.covered)
        savings = _Savings(begin, until)
        await savings.settle(self._store, steps)
        named = await _read_names(self._store, told.subjects())
        return ActivitySummary(
            since=begin,
            until=until,
            complete=begin == since,
            automation=told.automation(named),
            people=told.people(named),
            saved_usd=round(savings.by_policy + savings.by_people, 4),
            saved_by_policy_usd=round(savings.by_policy, 4),
            saved_by_people_usd=round(savings.by_people, 4),
            stopped_throughout=savings.throughout,
            savers=savings.savers(),
        )


@dataclass(slots=True)
class _ActionCount:
    count: int = 0
    subjects: dict[str, None] = field(default_factory=dict)

    def note(self, subject: str) -> None:
        self.count += 1
        if len(self.subjects) < MAX_NAMED:
            self.subjects[subject] = None

    def done(self, what: str, names: dict[str, str]) -> ActivityCount:
        concerned = tuple(ActivitySubject(id=subject, name=names.get(subject, "")) for subject in self.subjects)
        return ActivityCount(what=what, count=self.count, concerned=concerned)


class _AuditCounts:
    """What the audit tells, the newest line first."""

    def __init__(self) -> None:
        self.looked_at = 0
        self._deeds: dict[AutomatedAction, _ActionCount] = {}
        self._actions: dict[str, _ActionCount] = {}

    def note(self, line: JournalEntry, since: datetime, until: datetime) -> None:
        self.looked_at += 1
        if not since <= line.at <= until or (_PLAIN_REPORT in line.body and _WITH_EVENT not in line.body):
            return  # most lines are reports of the usual steps: they are not even read
        entry = AuditEntry.model_validate_json(line.body)
        deed = automated_action_of(entry)
        if deed is not None:
            self._deeds.setdefault(deed, _ActionCount()).note(entry.subject)
        elif entry.actor.kind is ActorKind.PERSON:
            action = f"lablet_{entry.action}" if entry.subject.startswith("l-") else entry.action
            self._actions.setdefault(action, _ActionCount()).note(entry.subject)

    def subjects(self) -> list[str]:
        tallies = (*self._deeds.values(), *self._actions.values())
        return sorted({subject for tally in tallies for subject in tally.subjects})

    def automation(self, names: dict[str, str]) -> tuple[ActivityCount, ...]:
        return tuple(self._deeds[deed].done(deed.value, names) for deed in AutomatedAction if deed in self._deeds)

    def people(self, names: dict[str, str]) -> tuple[ActivityCount, ...]:
        most_first = sorted(self._actions.items(), key=lambda each: (-each[1].count, each[0]))
        return tuple(tally.done(action, names) for action, tally in most_first)


@dataclass(frozen=True, slots=True)
class _StoppedWorkers:
    """Workers that are STOPPED now: how many and at what price, by whether a policy stopped them."""

    count: dict[bool, int]
    cost: dict[bool, float]


@dataclass(frozen=True, slots=True)
class _StopTransitions:
    """All steps into and out of STOPPED since a moment, the oldest first, and who was STOPPED after the last of them.

    Whoever took other steps only is STOPPED neither before nor after them, and is in no sum either.
    """

    by_worker: dict[str, list[StoppedTransition]]
    resting: _StoppedWorkers
    covered: datetime

    @classmethod
    async def read(cls, store: Store, since: datetime) -> _StopTransitions:
        mark, resting = await _count_stopped(store)
        begin = None if mark is None else journal_cursor(parse_journal_cursor(mark) + 1)
        by_worker: dict[str, list[StoppedTransition]] = {}
        looked_at, covered = 0, since
        if begin is not None:
            async for line in _read_backwards(store, WORKER_HISTORY, begin, since):
                covered = _covered_since(line, looked_at, covered)
                looked_at += 1
                if line.at >= since and _IN_BODY in line.body:
                    _add_transition(by_worker, line)
        for steps in by_worker.values():
            steps.reverse()
        return cls(by_worker, resting, covered)


class _Savings:
    """Adds up what stops saved: from the steps of those that took any, from sums for all who took none."""

    def __init__(self, since: datetime, until: datetime) -> None:
        self.by_policy = self.by_people = 0.0
        self.throughout = 0
        self._since = since
        self._until = until
        self._savers: list[WorkerSaving] = []

    async def settle(self, store: Store, all_steps: _StopTransitions) -> None:
        """Put both together: who took a step is known by name, and taken out of the sums."""
        count, cost = Counter(all_steps.resting.count), dict(all_steps.resting.cost)
        moved = list(all_steps.by_worker.items())
        for begin in range(0, len(moved), _RECORD_BATCH):
            some = moved[begin : begin + _RECORD_BATCH]
            found = await store.get_many(WORKERS, [worker_id for worker_id, _ in some])
            for worker_id, steps in some:
                worker = json.loads(found[worker_id].body) if worker_id in found else {}
                price = float(worker.get("cost_per_hour_usd") or 0.0)
                self._take(worker_id, str(worker.get("name", worker_id)), price, steps)
                if steps[-1].into:
                    by_policy = steps[-1].by_policy
                    count[by_policy] -= 1
                    cost[by_policy] = cost.get(by_policy, 0.0) - price
        hours = (self._until - self._since).total_seconds() / 3600
        self.by_policy += max(0.0, cost.get(True, 0.0)) * hours
        self.by_people += max(0.0, cost.get(False, 0.0)) * hours
        self.throughout = max(0, count.total())

    def savers(self) -> tuple[WorkerSaving, ...]:
        """Those who saved the most."""
        return tuple(sorted(self._savers, key=lambda saver: (-saver.saved_usd, saver.name))[:MAX_TOP_SAVINGS])

    def _take(self, worker_id: str, name: str, price: float, steps: Sequence[StoppedTransition]) -> None:
        stopped = stopped_time(steps, self._since, self._until)
        by_policy, by_people = stopped.usd(price)
        self.by_policy += by_policy
        self.by_people += by_people
        saved = round(by_policy + by_people, 4)
        if saved:
            self._savers.append(
                WorkerSaving(worker_id=worker_id, name=name, stopped_seconds=stopped.seconds, saved_usd=saved)
            )


def _add_transition(by_worker: dict[str, list[StoppedTransition]], line: JournalEntry) -> None:
    entry = json.loads(line.body)
    out, into = entry["from_status"] == _STOPPED_STATUS, entry["to_status"] == _STOPPED_STATUS
    if out or into:
        step = StoppedTransition(line.at, out, into, by_policy=bool(entry.get("stopped_by_policy")))
        by_worker.setdefault(line.subject, []).append(step)


async def _read_backwards(store: Store, topic: str, before: str | None, since: datetime) -> AsyncIterator[JournalEntry]:
    """Lines of a topic from a place back to a moment, or so many that it is enough."""
    looked_at = 0
    while looked_at < MAX_ENTRIES:
        page = await store.journal(topics=[topic], before=before, newest_first=True, limit=_JOURNAL_PAGE)
        for line in page:
            if line.at < since - CLOCK_SKEW:
                return
            yield line
        if len(page) < _JOURNAL_PAGE:
            return
        before, looked_at = page[-1].cursor, looked_at + len(page)


def _covered_since(line: JournalEntry, looked_at: int, covered: datetime) -> datetime:
    """From when on everything was looked at: that of the last line, once there are more than are looked at."""
    return max(covered, line.at + CLOCK_SKEW) if looked_at + 1 >= MAX_ENTRIES else covered


async def _count_stopped(store: Store) -> tuple[str | None, _StoppedWorkers]:
    """Who is STOPPED, and the last step of anybody at that moment."""
    stopped = Where(any_of={"status": [_STOPPED_STATUS]})
    tries = 3
    while True:
        mark, tries = await _newest_cursor(store), tries - 1
        rows = await store.count_by(WORKERS, ["status", "stopped_by_policy"], stopped, sums=["cost_per_hour_usd"])
        if not tries or await _newest_cursor(store) == mark:
            break  # else somebody took a step, and we do not know on which side of the count
    resting = _StoppedWorkers({True: 0, False: 0}, {True: 0.0, False: 0.0})
    for (_, by_policy), count, (cost,) in rows:
        resting.count[bool(by_policy)] += count
        resting.cost[bool(by_policy)] += cost
    return mark, resting


async def _newest_cursor(store: Store) -> str | None:
    lines = await store.journal(topics=[WORKER_HISTORY], newest_first=True, limit=1)
    return lines[0].cursor if lines else None


async def _read_names(store: Store, subjects: Iterable[str]) -> dict[str, str]:
    """Names of those subjects that are workers or lablets."""
    known = list(subjects)
    found = {
        **await store.get_many(WORKERS, [subject for subject in known if subject.startswith("w-")]),
        **await store.get_many(LABLETS, [subject for subject in known if subject.startswith("l-")]),
    }
    return {record_id: str(json.loads(stored.body)["name"]) for record_id, stored in found.items()}
