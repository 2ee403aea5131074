"""Ended lablets are removed after LABLET_RETENTION_DAYS: operations.md#retention."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets import retention
from lcm.control_plane.lablets.retention import remove_ended_lablets
from lcm.control_plane.records.kinds import AUDIT, LABLETS, lablet_fields
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.audit import AuditEntry
from lcm.model.lablet.record import AbandonedLab, Lablet
from lcm.model.lablet.status import LabletStatus
from lcm.settings import StoreSettings
from lcm.wiring.control_plane import make_maintenance
from tests.support.records.lablet_records import ANNA, LabletDesk, a_lablet, a_ready_worker
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from tests.support.virtual.time import VirtualClock

DAY = timedelta(days=1)
ENDED = (LabletStatus.TERMINATED, LabletStatus.FAILED, LabletStatus.EXPIRED)


@pytest.fixture
async def desk() -> LabletDesk:
    return await LabletDesk().open(a_ready_worker())


async def add(desk: LabletDesk, lablet_id: str, status: LabletStatus, age: timedelta, **facts: Any) -> None:
    """A lablet that changed last so long ago."""
    at = clock.now() - age
    lablet = a_lablet(id=lablet_id, name=lablet_id, status=status, updated_at=at, status_since=at, **facts)

    async def attempt(tx: Transaction) -> None:
        tx.save_lablet(lablet, "created")

    await desk.unit_of_work.run(ANNA.actor, attempt)


async def present(desk: LabletDesk) -> list[str]:
    return [item.id for item in (await desk.store.find(LABLETS, limit=1000)).items]


async def test_lablets_are_removed_some_days_after_their_end_and_not_before(desk: LabletDesk) -> None:
    for status in LabletStatus:
        await add(desk, f"old-{status.lower().replace('_', '-')}", status, 31 * DAY)
        await add(desk, f"new-{status.lower().replace('_', '-')}", status, 29 * DAY)
    assert await remove_ended_lablets(desk.unit_of_work, 30) == len(ENDED)
    assert not [each for each in await present(desk) if each in {f"old-{status.lower()}" for status in ENDED}]
    assert len(await present(desk)) == 2 * len(LabletStatus) - len(ENDED)


async def test_with_zero_days_lablets_are_kept_forever(desk: LabletDesk) -> None:
    await add(desk, "l-1", LabletStatus.TERMINATED, 4000 * DAY)
    assert await remove_ended_lablets(desk.unit_of_work, 0) == 0
    assert await present(desk) == ["l-1"]


async def test_removal_is_audited_and_counted(desk: LabletDesk) -> None:
    before = retention.LABLETS_REMOVED._value.get()
    await add(desk, "l-1", LabletStatus.TERMINATED, 31 * DAY)
    await add(desk, "l-2", LabletStatus.FAILED, 31 * DAY)
    await remove_ended_lablets(desk.unit_of_work, 30)
    entries = await desk.store.read_journal(topics=[AUDIT], subjects=["lablets"])
    audit = AuditEntry.model_validate_json(entries[-1].body)
    assert (audit.action, audit.reason) == ("lablets_removed", "ended more than 30 days ago")
    assert (audit.actor.name, audit.details) == ("retention", {"count": 2, "lablets": ["l-1", "l-2"]})
    assert retention.LABLETS_REMOVED._value.get() == before + 2


async def test_the_history_of_a_removed_lablet_can_still_be_read(desk: LabletDesk) -> None:
    """Red before: its history was 404 without the record."""
    await add(desk, "l-1", LabletStatus.TERMINATED, 31 * DAY)
    await remove_ended_lablets(desk.unit_of_work, 30)
    assert len(await desk.people.history(ANNA, "l-1", None, 100)) == 1
    with pytest.raises(ProblemError, match="there is no lablet l-2"):
        await desk.people.history(ANNA, "l-2", None, 100)


async def test_a_run_is_bounded_and_the_next_one_goes_on(desk: LabletDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_BATCH_SIZE", 3)
    monkeypatch.setattr(retention, "_MAX_BATCHES", 2)
    for number in range(10):
        await add(desk, f"l-{number}", LabletStatus.EXPIRED, 40 * DAY)
    desk.commits = 0
    assert [await remove_ended_lablets(desk.unit_of_work, 30) for _ in range(3)] == [6, 4, 0]
    assert desk.commits == 4


async def test_a_lablet_whose_lab_was_left_behind_is_kept_as_long_as_the_worker_exists(desk: LabletDesk) -> None:
    """Its record says that the lab is ours to remove."""
    left = AbandonedLab(worker_id="w-1", marker="l-1.1")
    gone = AbandonedLab(worker_id="w-gone", marker="l-2.1")
    await add(desk, "l-1", LabletStatus.FAILED, 40 * DAY, left_behind=(left,))
    await add(desk, "l-2", LabletStatus.FAILED, 40 * DAY, left_behind=(gone,))
    assert await remove_ended_lablets(desk.unit_of_work, 30) == 1
    assert await present(desk) == ["l-1"]


async def test_a_seat_that_has_ended_is_kept_until_its_class_is_over(desk: LabletDesk) -> None:
    """Without a record the class would make it once more, although a person has ended it or it has failed for good."""
    end = clock.now() + DAY
    await add(desk, "seat", LabletStatus.FAILED, 2 * DAY, booking_id="bk-1", ends_at=end)
    await add(desk, "walk-in", LabletStatus.FAILED, 2 * DAY, ends_at=end)
    assert await remove_ended_lablets(desk.unit_of_work, 1) == 1
    assert await present(desk) == ["seat"]
    await asyncio.sleep(DAY.total_seconds() + 600)
    assert await remove_ended_lablets(desk.unit_of_work, 1) == 1


async def test_two_control_planes_remove_each_lablet_once(desk: LabletDesk) -> None:
    for number in range(250):
        await add(desk, f"l-{number:03}", LabletStatus.TERMINATED, 40 * DAY)
    both = await asyncio.gather(*(remove_ended_lablets(desk.unit_of_work, 30) for _ in range(2)))
    assert sum(both) == 250
    assert await present(desk) == []


async def test_a_clock_that_jumped_removes_nothing(desk: LabletDesk, virtual_clock: VirtualClock) -> None:
    await add(desk, "l-1", LabletStatus.TERMINATED, timedelta(0))
    clock.earliest_now()
    virtual_clock.jumped = 40 * 86_400.0
    assert await remove_ended_lablets(desk.unit_of_work, 30) == 0


async def test_each_control_plane_removes_them_with_its_other_maintenance() -> None:
    async with serving_plane() as plane:
        service = make_maintenance(StoreSettings(), plane.services.context.store, plane.services)
        desk = LabletDesk(plane.services.context.store)  # type: ignore[arg-type]
        await add(desk, "l-1", LabletStatus.TERMINATED, 31 * DAY)
        await service.start()
        await asyncio.sleep(601)
        await service.stop()
        assert await present(desk) == []


async def test_a_record_that_cannot_be_read_stays_and_the_others_are_removed(desk: LabletDesk) -> None:
    for number in range(3):
        await add(desk, f"l-{number}", LabletStatus.TERMINATED, 40 * DAY)
    stored = await desk.store.get(LABLETS, "l-1")
    assert stored is not None
    fields = lablet_fields(Lablet.model_validate_json(stored.body))
    await desk.store.commit([Put(LABLETS, "l-1", b'{"id": 7}', stored.revision, fields)])
    assert await remove_ended_lablets(desk.unit_of_work, 30) == 2
    assert await present(desk) == ["l-1"]
