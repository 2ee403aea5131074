"""Classes take no more licenses than the pool has, those that need none included (calendar.md#carrying-out)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from lcm.control_plane.bookings import progress
from lcm.control_plane.bookings.progress import BookingProgressService
from lcm.control_plane.bookings.workers import book_workers
from lcm.control_plane.calendar.booking_plan import plan_booking_steps
from lcm.control_plane.records.unit_of_work import Leader
from lcm.control_plane.secrets.worker_secrets import LICENSE_TOKEN, read_secret
from lcm.core import clock
from tests.support.records.lablet_records import TOPOLOGY
from tests.unit.control_plane.bookings.test_progress import ADMIN, School, school

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

__all__ = ["school"]  # the fixture


@pytest.fixture
async def exam(school: School) -> School:
    """A control plane that gives new workers a license, with a definition that needs one, and with one license."""
    needs = {"license": True, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
    body = {"name": "exam", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    assert (await school.plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
    body = {"scaling": {"license_pool_size": 1, "max_workers_per_region": 4}}
    assert (await school.plane.ask("PATCH", "/api/settings", role=ADMIN, json=body)).status_code == 200
    return school


async def advance(school: School) -> None:
    context = replace(school.plane.services.context, scale_up_license=SecretStr("token"))
    now = clock.now()
    planned = await plan_booking_steps(context, now)
    before = {each.id for each in await school.workers()}
    progress = await BookingProgressService(context).advance(Leader("scheduler", 5), now)
    assert progress.skipped == 0
    launched = [each for each in await school.workers() if each.id not in before]
    assert sum(each.launches for each in planned) == len(launched)


def tokens(workers: list[Worker]) -> int:
    return sum(each.has_license_token for each in workers)


async def test_only_classes_that_need_a_license_take_one(exam: School) -> None:
    await exam.book("lesson")
    await exam.book("test", definition="exam", seats=1, learners=[])
    await exam.wait_until("warm_up_at")
    await advance(exam)
    workers = await exam.workers()
    assert len(workers) == 4
    assert tokens(workers) == 1
    mine = await exam.booked()
    assert [each.has_license_token for each in mine] == [True]


async def test_a_worker_of_an_earlier_class_gets_the_token_of_new_workers(exam: School) -> None:
    await exam.book("lesson", seats=1, learners=[])
    await exam.wait_until("warm_up_at")
    await advance(exam)
    await exam.wait_until("ends_at")
    await advance(exam)
    assert tokens(await exam.workers()) == 0
    await exam.book("test", definition="exam", seats=1, learners=[])
    await exam.wait_until("warm_up_at")
    await advance(exam)
    (worker,) = await exam.workers()
    assert worker.has_license_token
    context = exam.plane.services.context
    secret = await read_secret(context.store, context.secret_box, worker.id, LICENSE_TOKEN)
    assert secret.reveal() == "token"


@pytest.mark.parametrize("limit", ["license_pool_size", "max_workers_per_region"])
async def test_limits_hold_that_changed_while_workers_were_chosen(
    exam: School, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """The same goes for a scale-up or a booking then: all of them take turns with the calendar."""

    async def set_limits(**limits: int) -> None:
        assert (await exam.plane.ask("PATCH", "/api/settings", role=ADMIN, json={"scaling": limits})).status_code == 200

    await set_limits(license_pool_size=2)
    await exam.book("test", definition="exam", seats=2, learners=[])
    await exam.wait_until("warm_up_at")
    changed = False

    async def book_late(*about: Any) -> None:
        nonlocal changed
        if not changed:
            changed = True
            await set_limits(**{limit: 1})
        await book_workers(*about)

    monkeypatch.setattr(progress, "book_workers", book_late)
    context = replace(exam.plane.services.context, scale_up_license=SecretStr("token"))
    await BookingProgressService(context).advance(Leader("scheduler", 5), clock.now())
    assert len(await exam.workers()) == 1


async def test_a_license_that_a_person_takes_off_a_booked_worker_stays_off(exam: School) -> None:
    await exam.book("test", definition="exam", seats=1, learners=[])
    await exam.wait_until("warm_up_at")
    await advance(exam)
    (worker,) = await exam.booked()
    assert worker.has_license_token
    path = f"/api/workers/{worker.id}"
    assert (await exam.plane.ask("PATCH", path, json={"license_token": None})).status_code == 200
    await advance(exam)
    assert tokens(await exam.booked()) == 0
