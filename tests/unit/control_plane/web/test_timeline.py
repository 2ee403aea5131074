"""The timeline of a worker: lines of one change are one entry, and no entry is cut by the end of a page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.control_plane.records.kinds import AUDIT, HISTORY
from lcm.control_plane.store.cursors import journal_cursor
from lcm.control_plane.store.port import Recorded
from lcm.control_plane.web.timeline import Happening, timeline_of
from lcm.model.audit import Actor, ActorKind, AuditEntry, HistoryEntry
from tests.support.records.workers import NOW

ANN = Actor(kind=ActorKind.PERSON, name="ann")
CONTROLLER = Actor(kind=ActorKind.CONTROLLER, name="worker-controller")


class Book:
    """A journal as changes write it."""

    def __init__(self) -> None:
        self.lines: list[Recorded] = []

    def _line(self, topic: str, entry: HistoryEntry | AuditEntry) -> None:
        cursor = journal_cursor(len(self.lines) + 1)
        self.lines.append(Recorded(cursor, topic, "w-1", entry.model_dump_json().encode(), entry.at))

    def audit(self, minute: int, actor: Actor, action: str, reason: str = "", **details: Any) -> None:
        at = NOW + timedelta(minutes=minute)
        entry = AuditEntry(at=at, actor=actor, action=action, subject="w-1", reason=reason, details=details)
        self._line(AUDIT, entry)

    def step(self, minute: int, actor: Actor, before: str | None, after: str, reason: str) -> None:
        facts = {"at": NOW + timedelta(minutes=minute), "worker_id": "w-1", "reason": reason, "version": 1}
        entry = HistoryEntry.model_validate({**facts, "from_status": before, "to_status": after, "actor": actor})
        self._line(HISTORY, entry)

    def newest(self, count: int = 100, before: str = "9") -> list[Recorded]:
        return [line for line in reversed(self.lines) if line.cursor < before][:count]


@pytest.fixture
def book() -> Book:
    book = Book()
    book.step(0, ANN, None, "PENDING", "created")
    book.audit(0, ANN, "created")
    book.audit(1, CONTROLLER, "launch_intended", attempt=1)
    book.audit(2, CONTROLLER, "provisioned", "launched i-1", instance_id="i-1")
    book.step(2, CONTROLLER, "PENDING", "PROVISIONING", "launched i-1")
    book.audit(2, CONTROLLER, "status_reported", "launched i-1", status="PROVISIONING")
    book.audit(3, CONTROLLER, "status_reported", "CML answers", status="RUNNING")
    return book


def test_a_step_its_label_and_who_made_it_are_one_entry(book: Book) -> None:
    timeline = timeline_of(book.newest(), full=False)
    assert [(each.who, each.words, each.before, each.after, each.reason) for each in timeline.happenings] == [
        ("worker-controller", "reported", None, None, "CML answers"),
        ("worker-controller", "reported", "PENDING", "PROVISIONING", "launched i-1"),
        ("worker-controller", "begins launch attempt 1", None, None, ""),
        ("ann", "created it", None, "PENDING", ""),
    ]
    assert timeline.older is None
    assert timeline.version == 7


def test_steps_of_the_same_moment_stay_apart() -> None:
    book = Book()
    for before, after in (("PROVISIONING", "STARTING"), ("STARTING", "RUNNING")):
        book.step(0, CONTROLLER, before, after, "seen")
        book.audit(0, CONTROLLER, "status_reported", "seen", status=after)
    book.audit(0, CONTROLLER, "status_reported", "CML answers", status="RUNNING")
    found = timeline_of(book.newest(), full=False).happenings
    assert [each.after for each in found] == [None, "RUNNING", "STARTING"]


def test_what_others_did_at_the_same_moment_is_not_taken_for_the_step() -> None:
    book = Book()
    book.step(0, CONTROLLER, "RUNNING", "STOPPED", "EC2 shows it as stopped")
    book.audit(0, ANN, "hold", "wait")
    found = timeline_of(book.newest(), full=False).happenings
    assert [(each.who, each.after) for each in found] == [("ann", None), ("worker-controller", "STOPPED")]


@pytest.mark.parametrize("size", range(2, 9))
def test_pages_of_any_size_tell_the_same(book: Book, size: int) -> None:
    whole = list(timeline_of(book.newest(), full=False).happenings)
    paged: list[Happening] = []
    before = "9"
    for _ in range(20):
        lines = book.newest(max(size, 4), before)  # the largest entry has 3 lines
        timeline = timeline_of(lines, full=len(lines) == max(size, 4))
        paged += timeline.happenings
        if timeline.older is None:
            break
        before = timeline.older
    assert paged == whole


def test_policies_and_troubles_are_told_as_such() -> None:
    book = Book()
    book.audit(0, CONTROLLER, "auto_paused", "idle_timeout")
    book.audit(1, CONTROLLER, "scale_up_accepted", "lablet 7", resumed=True)
    book.audit(2, CONTROLLER, "license_reported", "refused", status="failed")
    book.audit(3, CONTROLLER, "status_reported", "it was lost", status="FAILED", event="failed")
    book.audit(4, ANN, "patched", fields=["idle_detection_enabled", "tags"])
    book.audit(5, CONTROLLER, "something_new", "why")
    found = timeline_of(book.newest(), full=False).happenings
    assert [(each.kind, each.who, each.words, each.bad) for each in reversed(found)] == [
        ("policy", "auto-pause", "paused because nobody used it", False),
        ("policy", "scale-up", "resumed by scale-up", False),
        ("controller", "worker-controller", "licence in CML: failed", True),
        ("controller", "worker-controller", "failed", True),
        ("person", "ann", "changed idle detection enabled, tags", False),
        ("controller", "worker-controller", "something new", False),
    ]
    assert found[-1].reason == ""  # the word that stands for idleness is told in words


def test_nothing_is_a_timeline_too() -> None:
    timeline = timeline_of([], full=False)
    assert (list(timeline.happenings), timeline.older, timeline.version) == ([], None, 0)
