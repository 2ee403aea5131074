"""Timelines of workers and lablets: each change is one entry, and no entry is split between pages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import AUDIT, WORKER_HISTORY
from lcm.control_plane.store.cursors import journal_cursor
from lcm.control_plane.store.port import JournalEntry
from lcm.control_plane.web.timeline import TimelineEntry, build_worker_timeline, read_lablet_timeline
from lcm.model.audit import Actor, ActorKind, AuditEntry, WorkerHistoryEntry
from lcm.model.lablet.status import LabletStatus
from tests.support.records.lablet_records import LabletDesk, a_ready_worker
from tests.support.records.workers import NOW

if TYPE_CHECKING:
    from lcm.control_plane.web.timeline import TimelineEntry


ANN = Actor(kind=ActorKind.PERSON, name="ann")
CONTROLLER = Actor(kind=ActorKind.CONTROLLER, name="worker-controller")


class FakeJournal:
    """A journal as changes write it."""

    def __init__(self) -> None:
        self.lines: list[JournalEntry] = []

    def _line(self, topic: str, entry: WorkerHistoryEntry | AuditEntry) -> None:
        cursor = journal_cursor(len(self.lines) + 1)
        self.lines.append(JournalEntry(cursor, topic, "w-1", entry.model_dump_json().encode(), entry.at))

    def audit(self, minute: int, actor: Actor, action: str, reason: str = "", **details: Any) -> None:
        at = NOW + timedelta(minutes=minute)
        entry = AuditEntry(at=at, actor=actor, action=action, subject="w-1", reason=reason, details=details)
        self._line(AUDIT, entry)

    def step(self, minute: int, actor: Actor, before: str | None, after: str, reason: str) -> None:
        facts = {"at": NOW + timedelta(minutes=minute), "worker_id": "w-1", "reason": reason, "version": 1}
        entry = WorkerHistoryEntry.model_validate({**facts, "from_status": before, "to_status": after, "actor": actor})
        self._line(WORKER_HISTORY, entry)

    def newest(self, count: int = 100, before: str = "9") -> list[JournalEntry]:
        return [line for line in reversed(self.lines) if line.cursor < before][:count]


@pytest.fixture
def book() -> FakeJournal:
    book = FakeJournal()
    book.step(0, ANN, None, "PENDING", "created")
    book.audit(0, ANN, "created")
    book.audit(1, CONTROLLER, "launch_intended", attempt=1)
    book.audit(2, CONTROLLER, "provisioned", "launched i-1", instance_id="i-1")
    book.step(2, CONTROLLER, "PENDING", "PROVISIONING", "launched i-1")
    book.audit(2, CONTROLLER, "status_reported", "launched i-1", status="PROVISIONING")
    book.audit(3, CONTROLLER, "status_reported", "CML answers", status="RUNNING")
    return book


def test_a_step_with_its_label_and_audit_entry_is_one_entry(book: FakeJournal) -> None:
    timeline = build_worker_timeline(book.newest(), full=False)
    assert [(each.actor, each.text, each.before, each.after, each.reason) for each in timeline.entries] == [
        ("worker-controller", "reported", None, None, "CML answers"),
        ("worker-controller", "reported", "PENDING", "PROVISIONING", "launched i-1"),
        ("worker-controller", "started launch attempt 1", None, None, ""),
        ("ann", "created it", None, "PENDING", ""),
    ]
    assert timeline.next_cursor is None
    assert timeline.version == 7


def test_steps_at_the_same_time_stay_apart() -> None:
    book = FakeJournal()
    for before, after in (("PROVISIONING", "STARTING"), ("STARTING", "RUNNING")):
        book.step(0, CONTROLLER, before, after, "seen")
        book.audit(0, CONTROLLER, "status_reported", "seen", status=after)
    book.audit(0, CONTROLLER, "status_reported", "CML answers", status="RUNNING")
    found = build_worker_timeline(book.newest(), full=False).entries
    assert [each.after for each in found] == [None, "RUNNING", "STARTING"]


def test_other_changes_at_the_same_time_stay_apart_from_the_step() -> None:
    book = FakeJournal()
    book.step(0, CONTROLLER, "RUNNING", "STOPPED", "EC2 shows it as stopped")
    book.audit(0, ANN, "hold", "wait")
    found = build_worker_timeline(book.newest(), full=False).entries
    assert [(each.actor, each.after) for each in found] == [("ann", None), ("worker-controller", "STOPPED")]


@pytest.mark.parametrize("size", range(2, 9))
def test_pages_of_any_size_have_the_same_entries(book: FakeJournal, size: int) -> None:
    whole = list(build_worker_timeline(book.newest(), full=False).entries)
    paged: list[TimelineEntry] = []
    before = "9"
    for _ in range(20):
        lines = book.newest(max(size, 4), before)  # the largest entry has 3 lines
        timeline = build_worker_timeline(lines, full=len(lines) == max(size, 4))
        paged += timeline.entries
        if timeline.next_cursor is None:
            break
        before = timeline.next_cursor
    assert paged == whole


def test_policies_and_problems_are_marked() -> None:
    book = FakeJournal()
    book.audit(0, CONTROLLER, "auto_paused", "idle_timeout")
    book.audit(1, CONTROLLER, "scale_up_accepted", "lablet 7", resumed=True)
    book.audit(2, CONTROLLER, "license_reported", "refused", status="failed")
    book.audit(3, CONTROLLER, "status_reported", "it was lost", status="FAILED", event="failed")
    book.audit(4, ANN, "patched", fields=["idle_detection_enabled", "tags"])
    book.audit(5, CONTROLLER, "something_new", "why")
    found = build_worker_timeline(book.newest(), full=False).entries
    assert [(each.kind, each.actor, each.text, each.bad) for each in reversed(found)] == [
        ("policy", "auto-pause", "paused because it was idle", False),
        ("policy", "scale-up", "resumed by scale-up", False),
        ("controller", "worker-controller", "license in CML: failed", True),
        ("controller", "worker-controller", "failed", True),
        ("person", "ann", "changed idle detection enabled, tags", False),
        ("controller", "worker-controller", "something new", False),
    ]
    assert found[-1].reason == ""  # the placeholder reason is not shown


def test_an_empty_timeline() -> None:
    timeline = build_worker_timeline([], full=False)
    assert (list(timeline.entries), timeline.next_cursor, timeline.version) == ([], None, 0)


async def finished_lablet() -> tuple[LabletDesk, str]:
    """A lablet that was requested, placed and started, and then failed."""
    desk = await LabletDesk().open(a_ready_worker())
    await desk.define()
    lablet = await desk.placed()
    lablet = await desk.report(lablet, "INSTANTIATING")
    lablet = await desk.report(lablet, "INSTANTIATING", message="boots")
    lablet = await desk.report(lablet, "RUNNING")
    lablet = await desk.end(lablet, reason="enough")
    await desk.release(lablet, "FAILED")
    return desk, lablet.id


async def test_a_change_is_one_entry_with_its_step() -> None:
    desk, lablet_id = await finished_lablet()
    entries = (await read_lablet_timeline(desk.store, lablet_id)).entries
    assert [(each.text, each.before, each.after) for each in reversed(entries)] == [
        ("requested it", None, LabletStatus.PENDING_SCHEDULING),
        ("assigned it to a worker", LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED),
        ("reported", LabletStatus.SCHEDULED, LabletStatus.INSTANTIATING),
        ("reported", None, None),
        ("reported", LabletStatus.INSTANTIATING, LabletStatus.RUNNING),
        ("requested its end", None, None),
        ("released it from its worker", LabletStatus.RUNNING, LabletStatus.FAILED),
    ]
    assert [each.bad for each in entries] == [True] + [False] * 6
    assert (entries[1].actor, entries[1].reason) == ("anna", "enough")


@pytest.mark.parametrize("limit", [3, 4, 5, 6, 7])
async def test_pages_together_have_all_entries(limit: int) -> None:
    desk, lablet_id = await finished_lablet()
    whole = (await read_lablet_timeline(desk.store, lablet_id)).entries
    pieces: list[TimelineEntry] = []
    before: str | None = None
    while True:
        page = await read_lablet_timeline(desk.store, lablet_id, before, limit)
        pieces += page.entries
        before = page.next_cursor
        if before is None:
            break
    assert pieces == whole
