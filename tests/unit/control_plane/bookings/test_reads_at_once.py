"""Requests that are compared with all bookings read every worker: a few at a time, whoever sends how many."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.bookings import admission, protection
from lcm.control_plane.bookings.admission import read_live
from lcm.control_plane.read_gate import MAX_RUNNING
from lcm.core import clock
from lcm.model.access import Role
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.bookings.test_progress import school
from tests.unit.control_plane.bookings.test_walk_ins import Class, class_

if TYPE_CHECKING:
    import pytest

__all__ = ["class_", "school"]  # the fixtures


async def test_all_workers_are_read_a_few_times_at_once(class_: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of teams and seat links can request these as often as they like; at 5,000 workers each takes seconds."""
    await class_.prepare(spare=3)
    lablets = [await class_.placed(name, name, time_to_live_minutes=60.0) for name in class_.workers_by_name]
    reads, running, most = 0, 0, 0

    async def slow(*about: Any) -> Any:
        nonlocal reads, running, most
        reads, running = reads + 1, running + 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return await read_live(*about)

    for module in (admission, protection):
        monkeypatch.setattr(module, "read_live", slow)
    start = (clock.now() + timedelta(hours=9)).strftime("%Y-%m-%dT%H:%M")
    body = {"name": "x", "definition": "lab", "seats": 1, "start": start, "zone": "UTC", "duration_minutes": 60}
    paths = [f"/api/lablets/{each['id']}" for each in lablets]
    for requests in (
        [("/api/bookings/preview", body)] * 9,
        [(f"{path}/preview", {"action": "extend", "minutes": 1}) for path in 3 * paths],
        [(f"{path}/extend", {"minutes": 1}) for path in 3 * paths],
    ):
        reads, most = 0, 0
        answers = await asyncio.gather(*(class_.post(*each) for each in requests))
        assert {each.status_code for each in answers} == {200}
        assert reads >= 9
        assert most == MAX_RUNNING
    reads = 0
    visitor = await signed_in(class_.plane, Role.OPERATOR)
    assert "It will end" in await visitor.part(f"/lablets/{lablets[0]['id']}/confirm-extend")
    assert reads == 1, "once for all choices of the dialog"
