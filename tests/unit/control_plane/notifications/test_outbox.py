"""Alerts are written in the commit of the change that causes them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.fleet.breaker import close_breakers, open_breaker
from lcm.control_plane.http.openapi import load_examples
from lcm.control_plane.records.kinds import ALERT
from lcm.model.booking.record import AtRisk, Booking
from lcm.model.fleet.losses import RegionLosses
from lcm.model.lablet.status import LabletStatus
from lcm.model.notification.alert import Alert, booking_changes, lablet_changes, leak_changes, worker_changes
from lcm.model.notification.subscription import AlertFilter, SubjectSelector
from lcm.model.system import ControllerReport, LeakedInstanceReport, RegionReport, with_leaks_before
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.maintenance import AnnouncedMaintenance
from lcm.model.worker.status import WorkerStatus
from tests.support.records.lablet_records import a_lablet
from tests.support.records.worker_records import ANNA
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pytest

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import NewJournalEntry
    from lcm.model.worker.record import Worker
    from tests.support.records.worker_records import Desk


def stuck(worker: Worker, status: ConditionStatus = ConditionStatus.TRUE) -> Worker:
    conditions = with_condition(worker.conditions, ConditionType.STUCK, status, now=NOW, message="it waits for CML")
    return worker.model_copy(update={"conditions": conditions, "version": worker.version + 1})


async def alerts(desk: Desk, **selector: Any) -> list[tuple[str, str, str]]:
    """What a subscription delivers."""
    wanted = AlertFilter(selector=SubjectSelector(**selector))
    found = [Alert.model_validate(each) for each in await desk.entries(ALERT)]
    return [(each.type, each.state, each.detail) for each in found if wanted.matches(each)]


async def test_an_alert_is_in_the_same_commit_as_its_change(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[Sequence[str]] = []
    commit = desk.store.commit

    async def recorded(writes: object, *, entries: Sequence[NewJournalEntry] = (), guards: object = ()) -> object:
        commits.append([entry.topic for entry in entries])
        return await commit(writes, entries=entries, guards=guards)  # type: ignore[arg-type]

    monkeypatch.setattr(desk.store, "commit", recorded)
    await desk.add(a_worker(status=WorkerStatus.FAILED))
    assert len(commits) == 1
    assert ALERT in commits[0]


async def test_stuck_is_raised_once_and_resolved_once(desk: Desk) -> None:
    worker = a_worker(status=WorkerStatus.RUNNING)
    await desk.add(worker)

    async def write(after: Worker) -> None:
        async def attempt(tx: Transaction) -> None:
            await tx.worker("w-1")
            tx.save_worker(after, "status_reported", "seen")

        await desk.unit_of_work.run(ANNA, attempt)

    once = stuck(worker)
    again = once.model_copy(update={"version": 7, "name": "beta"})
    await write(once)
    await write(again)
    await write(stuck(again, ConditionStatus.FALSE))
    begins, ends = ("worker_stuck", "raised", "it waits for CML"), ("worker_stuck", "resolved", "seen")
    assert await alerts(desk) == [begins, ends]
    renamed = ("worker_stuck", "resolved", "it goes on, but its name, team, template or tags were changed")
    assert await alerts(desk, names=("alpha",)) == [begins, renamed]
    assert await alerts(desk, names=("beta",)) == [begins, ends]
    assert await alerts(desk, names=("alpha", "beta")) == [begins, ends]


async def test_a_stuck_worker_that_fails_is_no_longer_stuck(desk: Desk) -> None:
    before = stuck(a_worker(status=WorkerStatus.RUNNING))
    after = before.model_copy(update={"status": WorkerStatus.FAILED})
    changes = [(change.type, change.state) for change in worker_changes(before, after, "gone")]
    assert changes == [("worker_stuck", "resolved"), ("worker_failed", "raised")]


def test_maintenance_that_is_brought_forward_is_raised_once_more() -> None:
    def announced(due: datetime | None, code: str = "instance-retirement") -> Worker:
        text = "retirement" if due is None else f"retirement from {due:%Y-%m-%d}"
        conditions = with_condition((), ConditionType.MAINTENANCE, ConditionStatus.TRUE, now=NOW, message=text)
        event = AnnouncedMaintenance(code=code, not_before=due)
        return a_worker(status=WorkerStatus.RUNNING, conditions=conditions, maintenance=event)

    def changes(before: datetime | None, after: datetime | None) -> list[tuple[str, str]]:
        found = worker_changes(announced(before), announced(after), "seen")
        return [(each.state, each.finding.detail) for each in found]

    next_week, tomorrow = NOW + timedelta(days=7), NOW + timedelta(days=1)
    forward = f"brought forward from {next_week:%Y-%m-%d %H:%M} UTC: retirement from {tomorrow:%Y-%m-%d}"
    assert changes(next_week, tomorrow) == [("raised", forward)]
    for before, after in ((next_week, next_week), (tomorrow, next_week), (next_week, None), (None, next_week)):
        assert changes(before, after) == []
    another = worker_changes(announced(next_week), announced(tomorrow, "instance-reboot"), "seen")
    assert [each.finding.detail for each in another] == [f"retirement from {tomorrow:%Y-%m-%d}"], "the first one stays"


async def test_alerts_name_the_team_of_their_subject(desk: Desk) -> None:
    await desk.add(a_worker(status=WorkerStatus.FAILED, team="team-1"))
    assert [each["subject"]["team"] for each in await desk.entries(ALERT)] == ["team-1"]
    lablet = a_lablet(status=LabletStatus.FAILED, team="team-2")
    assert [each.finding.subject.team for each in lablet_changes(None, lablet, "no image")] == ["team-2"]
    booking = Booking.model_validate({**load_examples()["Booking"], "team": "team-3"})
    risk = AtRisk(since=NOW, missing="one worker")
    risky = booking.model_copy(update={"occurrences": (booking.occurrences[0].model_copy(update={"at_risk": risk}),)})
    assert [each.finding.subject.team for each in booking_changes(booking, risky)] == ["team-3"]


async def test_a_breaker_is_raised_and_resolved(desk: Desk) -> None:
    async def open_it(tx: Transaction) -> None:
        state = await tx.fleet()
        state = state.model_copy(update={"losses": {"eu-west-1": RegionLosses(withheld=("w-1",))}})
        open_breaker(tx, state, "eu-west-1", "3 of 10 workers lost", only_a_person_closes=False)

    async def close_it(tx: Transaction) -> None:
        close_breakers(tx, await tx.fleet(), ["eu-west-1"], "breaker_reset", "checked")

    for attempt in (open_it, open_it, close_it):
        await desk.unit_of_work.run(ANNA, attempt)
    assert [each[:2] for each in await alerts(desk)] == [("breaker_open", "raised"), ("breaker_open", "resolved")]


def test_leaks_are_raised_and_resolved_by_the_reports_of_a_controller() -> None:
    leak = LeakedInstanceReport(instance_id="i-1", region="eu-west-1", since=NOW, reason="no worker has it")
    assert [(each.type, each.state) for each in leak_changes([], [leak])] == [("instance_leaked", "raised")]
    assert list(leak_changes([leak], [leak])) == []
    assert [(each.type, each.state) for each in leak_changes([leak], [])] == [("instance_leaked", "resolved")]


def a_leak(number: int, region: str = "eu-west-1") -> LeakedInstanceReport:
    return LeakedInstanceReport(instance_id=f"i-{number:03}", region=region, since=NOW, reason="no worker has it")


def a_report(*leaks: LeakedInstanceReport, total: int | None = None, scanned: Sequence[str] | None) -> ControllerReport:
    regions = (RegionReport(name="eu-west-1"), RegionReport(name="us-east-1"))
    count = len(leaks) if total is None else total
    scanned_regions = None if scanned is None else tuple(scanned)
    return ControllerReport(
        instance_id="one", regions=regions, leaks=leaks, leaks_total=count, scanned_regions=scanned_regions
    )


def test_of_regions_that_a_new_leader_has_not_scanned_the_leaks_stay_as_they_were() -> None:
    before = [a_leak(1), a_leak(2, "us-east-1"), a_leak(3, "xx-gone-1")]
    first = with_leaks_before(a_report(scanned=()), before)
    assert (first.leaks, first.leaks_total) == (tuple(before[:2]), 2)  # the third is in a region without a manager
    second = with_leaks_before(a_report(a_leak(4), scanned=["eu-west-1"]), first.leaks)
    assert [leak.instance_id for leak in second.leaks] == ["i-004", "i-002"]
    third = with_leaks_before(a_report(a_leak(4), scanned=["eu-west-1", "us-east-1"]), second.leaks)
    assert [leak.instance_id for leak in third.leaks] == ["i-004"]
    assert with_leaks_before(a_report(scanned=None), before).leaks == ()  # a controller of an earlier version


def test_leaks_that_were_only_counted_are_counted_until_a_new_leader_has_scanned_every_region() -> None:
    regions = ["eu-west-1", "us-east-1"]
    listed = [a_leak(number) for number in range(100)]
    before = a_report(*listed, total=250, scanned=regions)
    for scanned in ([], ["eu-west-1"]):
        found = listed if scanned else []
        merged = with_leaks_before(a_report(*found, total=150 * bool(scanned), scanned=scanned), before.leaks, 250)
        assert (merged.leaks, merged.leaks_total) == (before.leaks, 250)
    after = with_leaks_before(a_report(*listed, total=150, scanned=regions), before.leaks, 250)
    assert after.leaks_total == 150


def test_leaks_do_not_take_turns_in_a_list_that_is_cut() -> None:
    regions = ["eu-west-1", "us-east-1"]
    old = [a_leak(number) for number in range(10, 110)]
    before = with_leaks_before(a_report(*old, total=100, scanned=regions), []).leaks
    newer = [a_leak(number) for number in range(5, 105)]  # five more, which come first
    after = with_leaks_before(a_report(*newer, total=105, scanned=regions), before)
    assert list(leak_changes(before, after.leaks)) == []
    assert after.leaks_total == 105
    fewer = with_leaks_before(
        a_report(*newer[:-1], total=99, scanned=regions), after.leaks
    )  # i-104 and behind are gone
    resolved = [
        change.finding.subject.id for change in leak_changes(after.leaks, fewer.leaks) if change.state == "resolved"
    ]
    assert resolved == [f"i-{number}" for number in range(104, 110)]
