"""A lablet's timeline: a change is one entry, wherever a page ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.web.lablet_timeline import read_lablet_timeline
from lcm.model.lablet.status import LabletStatus
from tests.support.records.lablet_records import LabletDesk, a_ready_worker

if TYPE_CHECKING:
    from lcm.control_plane.web.timeline import Happening


async def lived() -> tuple[LabletDesk, str]:
    """One that was asked for, placed, brought up, and came to grief."""
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
    desk, lablet_id = await lived()
    told = (await read_lablet_timeline(desk.store, lablet_id)).happenings
    assert [(each.words, each.before, each.after) for each in reversed(told)] == [
        ("asked for it", None, LabletStatus.PENDING_SCHEDULING),
        ("found a worker for it", LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED),
        ("reported", LabletStatus.SCHEDULED, LabletStatus.INSTANTIATING),
        ("reported", None, None),
        ("reported", LabletStatus.INSTANTIATING, LabletStatus.RUNNING),
        ("asked for its end", None, None),
        ("took it off its worker", LabletStatus.RUNNING, LabletStatus.FAILED),
    ]
    assert [each.bad for each in told] == [True] + [False] * 6
    assert (told[1].who, told[1].reason) == ("anna", "enough")


@pytest.mark.parametrize("limit", [3, 4, 5, 6, 7])
async def test_pages_together_tell_the_same(limit: int) -> None:
    desk, lablet_id = await lived()
    whole = (await read_lablet_timeline(desk.store, lablet_id)).happenings
    pieces: list[Happening] = []
    before: str | None = None
    while True:
        page = await read_lablet_timeline(desk.store, lablet_id, before, limit)
        pieces += page.happenings
        before = page.older
        if before is None:
            break
    assert pieces == whole
