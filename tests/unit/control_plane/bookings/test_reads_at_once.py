"""Requests that are compared with all bookings read every worker: a few at a time, whoever sends how many."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.bookings import admission, progress, protection
from lcm.control_plane.bookings.admission import read_live
from lcm.control_plane.read_gate import MAX_RUNNING
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.records.unit_of_work import Transaction
from lcm.core import clock
from lcm.model.access import Role
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.bookings.test_progress import CONTROLLER, WORKERS_NEEDED, School, school
from tests.unit.control_plane.bookings.test_walk_ins import Class, class_

if TYPE_CHECKING:
    import pytest

    from lcm.control_plane.store.port import DocumentPage, Kind, StoredDocument
    from lcm.model.worker.record import Worker

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


async def test_all_classes_ahead_are_compared_with_one_calendar_each_minute(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison reads all bookings and all workers, and classes are carried out every ten seconds."""
    for number in range(3):
        await school.book(f"class{number}")
    reads = 0

    async def counted(*about: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read_live(*about)

    monkeypatch.setattr(admission, "read_live", counted)
    found = []
    for limit, minutes in ((None, 0), (None, 0), (8, 0), (None, 1)):
        if limit is not None:
            await school.set_limit(limit)
        await asyncio.sleep(60 * minutes)
        reads = 0
        await school.advance()
        found.append(reads)
    assert found == [1, 0, 1, 1], "at first, at once again, after a change of a limit, and a minute later"


async def test_bookings_are_carried_out_once_at_a_time(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler gives up after ten seconds and asks again; the run that is under way goes on meanwhile."""
    await school.book()
    reads, running, most = 0, 0, 0

    async def slow(*about: Any) -> Any:
        nonlocal reads, running, most
        reads, running = reads + 1, running + 1
        most = max(most, running)
        await asyncio.sleep(25)
        running -= 1
        return await read_live(*about)

    monkeypatch.setattr(admission, "read_live", slow)

    async def ask(after: float) -> int:
        await asyncio.sleep(after)
        return (await school.post("/api/internal/bookings/advance", role=CONTROLLER)).status_code

    answers = await asyncio.gather(*map(ask, (0, 10, 20)))
    assert (answers, reads, most) == ([200, 200, 200], 1, 1)


async def test_a_class_that_has_its_workers_decodes_no_others(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    await school.set_limit(WORKERS_NEEDED + 8)
    await school.warm_up()
    for number in range(4):
        await school.plane.create(f"other{number}", template_name="small")
    await school.advance()
    decoded = 0
    original = Transaction.listed_worker

    def counted(tx: Transaction, stored: StoredDocument) -> Worker:
        nonlocal decoded
        decoded += 1
        return original(tx, stored)

    monkeypatch.setattr(Transaction, "listed_worker", counted)
    await school.advance()
    assert decoded == WORKERS_NEEDED, "each of its own once"


async def test_a_class_reads_other_regions_only_if_it_lacks_workers_and_licenses_are_limited(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pool of licenses, workers of all regions count; a class that has its workers takes none of it."""
    body = {"scaling": {"license_pool_size": 9, "max_workers_per_region": WORKERS_NEEDED + 8}}
    assert (await school.plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json=body)).status_code == 200
    mine = await school.warm_up()
    elsewhere = await school.plane.create("elsewhere", template_name="micro", aws_region="us-east-1")
    read: set[str] = set()
    store = school.plane.services.context.store
    original = store.find

    async def find(kind: Kind, *about: Any, **options: Any) -> DocumentPage:
        page = await original(kind, *about, **options)
        if kind is WORKERS:
            read.update(each.id for each in page.items)
        return page

    monkeypatch.setattr(store, "find", find)
    await school.advance()
    assert read == {each.id for each in mine}
    await school.plane.report(mine[0].model_dump(mode="json"), "FAILED")
    await school.advance()
    assert elsewhere["id"] in read


async def test_others_are_served_while_workers_are_decoded(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    await school.set_limit(WORKERS_NEEDED + 8)
    for number in range(4):
        await school.plane.create(f"other{number}", template_name="small")
    await school.book()
    await school.wait_until("warm_up_at")
    monkeypatch.setattr(progress, "_DECODED_PER_TURN", 2)
    turns, decoded_at = 0, []

    async def serve() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    original = Transaction.listed_worker

    def listed(tx: Transaction, stored: StoredDocument) -> Worker:
        decoded_at.append(turns)
        return original(tx, stored)

    monkeypatch.setattr(Transaction, "listed_worker", listed)
    serving = asyncio.create_task(serve())
    await school.advance()
    serving.cancel()
    assert len(decoded_at) == 4
    assert len(set(decoded_at)) == 2, "two at a turn"
