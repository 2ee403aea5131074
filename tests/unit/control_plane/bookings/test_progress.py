"""What becomes of bookings as time passes, whatever happens to their workers meanwhile."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.bookings import progress
from lcm.control_plane.records.kinds import ALERT, LABLETS, WORKERS, find_all
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.booking.progress import due_status
from lcm.model.booking.record import Booking, BookingStatus
from lcm.model.lablet.record import Lablet
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.virtual.control_plane import SYSTEM, TestPlane, serving_plane
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import Kind
    from tests.support.virtual.time import VirtualClock

ADMIN, CONTROLLER = Role.ADMIN, Role.CONTROLLER
SEATS = WORKERS_NEEDED = 3  # one seat on a worker of the template micro


class School:
    """A control plane with one class of an hour that begins in three hours, and a scheduler that carries it out."""

    def __init__(self, plane: TestPlane) -> None:
        self.plane = plane
        self.booking: dict[str, Any] = {}

    async def post(self, path: str, body: Any = None, role: Role = Role.OPERATOR) -> httpx.Response:
        return await self.plane.ask("POST", path, role=role, json=body)

    async def set_limit(self, workers: int) -> None:
        body = {"scaling": {"max_workers_per_region": workers}}
        assert (await self.plane.ask("PATCH", "/api/settings", role=ADMIN, json=body)).status_code == 200

    async def book(self, name: str = "class", **facts: Any) -> dict[str, Any]:
        start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
        body = {"name": name, "definition": "lab", "seats": SEATS, "start": start, "zone": "UTC"}
        body |= {"duration_minutes": 60, "learners": ["anna"], **facts}
        response = await self.post("/api/bookings", body)
        assert response.status_code == 201, response.text
        self.booking = response.json()
        return self.booking

    async def advance(self) -> dict[str, Any]:
        """What the scheduler does; returns the class."""
        response = await self.post("/api/internal/bookings/advance", role=CONTROLLER)
        assert response.status_code == 200, response.text
        assert response.json()["skipped"] == 0
        return await self.occurrence()

    async def occurrence(self) -> dict[str, Any]:
        response = await self.plane.ask("GET", f"/api/bookings/{self.booking['id']}", role=Role.VIEWER)
        found: dict[str, Any] = response.json()["occurrences"][0]
        return found

    async def wait_until(self, name: str, *, minutes: float = 0.0) -> None:
        moment = datetime.fromisoformat((await self.occurrence())[name]) + timedelta(minutes=minutes)
        await asyncio.sleep((moment - clock.now()).total_seconds() + 1)

    async def warm_up(self) -> list[Worker]:
        await self.book()
        await self.wait_until("warm_up_at")
        await self.advance()
        return await self.booked()

    async def workers(self) -> list[Worker]:
        return [Worker.model_validate_json(body) for body in await self._all(WORKERS)]

    async def booked(self) -> list[Worker]:
        return [each for each in await self.workers() if each.booking_id == self.booking["id"]]

    async def seats(self) -> list[Lablet]:
        return [Lablet.model_validate_json(body) for body in await self._all(LABLETS)]

    async def alerts(self) -> list[tuple[str, str]]:
        entries = await self.plane.services.context.store.read_journal(topics=[ALERT])
        return [(each["type"], each["state"]) for each in (json.loads(entry.body) for entry in entries)]

    async def _all(self, kind: Kind) -> list[bytes]:
        return [stored.body async for stored in find_all(self.plane.services.context.store, kind)]


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with serving_plane() as plane:
        await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 5})
        needs = {"license": False, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
        body = {"name": "lab", "version": "1", "topology": TOPOLOGY, "requirements": needs}
        assert (await plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
        yield School(plane)


async def test_nothing_is_started_before_the_warm_up(school: School) -> None:
    await school.book()
    assert (await school.advance())["status"] == "CONFIRMED"
    assert await school.workers() == []
    assert await school.seats() == []


async def test_at_the_warm_up_workers_are_launched_and_seats_made(school: School) -> None:
    workers = await school.warm_up()
    occurrence = await school.occurrence()
    assert occurrence["status"] == "WARMING"
    assert [each.template_name for each in workers] == ["micro"] * WORKERS_NEEDED
    assert {each.booked_until for each in workers} == {datetime.fromisoformat(occurrence["ends_at"])}
    seats = await school.seats()
    assert {each.booking_id for each in seats} == {school.booking["id"]}
    assert sorted(each.owner_name for each in seats) == ["anna", "operator", "operator"]
    assert {each.owner for each in seats} == {""}, "a name proves nothing"
    assert {each.ends_at for each in seats} == {workers[0].booked_until}
    await school.advance()
    assert (len(await school.workers()), len(await school.seats())) == (WORKERS_NEEDED, SEATS), "once is enough"


async def test_a_scheduler_that_comes_back_after_the_start_catches_up(school: School) -> None:
    await school.book()
    await school.wait_until("starts_at", minutes=5)
    occurrence = await school.advance()
    assert occurrence["status"] == "ACTIVE"
    assert len(await school.booked()) == WORKERS_NEEDED
    assert "0 of 3 workers are ready; 0 of 3 seats are running" in occurrence["at_risk"]["missing"]


async def test_a_class_that_passed_while_nobody_led_is_over(school: School) -> None:
    await school.book()
    await school.wait_until("ends_at")
    assert (await school.advance())["status"] == "ENDED"
    assert await school.workers() == []


async def test_workers_that_exist_are_used_first(school: School) -> None:
    kept = await school.plane.create("kept", template_name="micro")
    stopped = await school.plane.running("stopped", template_name="micro")
    await school.post(f"/api/workers/{stopped['id']}/stop")
    workers = await school.warm_up()
    assert {kept["id"], stopped["id"]} < {each.id for each in workers}
    assert {each.desired_status for each in workers} == {"RUNNING"}
    assert len(workers) == WORKERS_NEEDED


async def test_a_lost_worker_is_replaced(school: School) -> None:
    lost, *_ = await school.warm_up()
    await school.plane.report(lost.model_dump(mode="json"), "FAILED")
    await asyncio.sleep(660)  # right after a launch that failed another one would fail too
    await school.advance()
    serving = [each for each in await school.booked() if each.status != "FAILED"]
    assert len(serving) == WORKERS_NEEDED
    assert (await school.occurrence())["at_risk"] is None


async def test_a_hold_and_a_limit_put_the_class_at_risk_until_they_are_gone(school: School) -> None:
    held, *_ = await school.warm_up()
    await school.set_limit(WORKERS_NEEDED)
    preview = (await school.post(f"/api/workers/{held.id}/preview", {"action": "hold"})).json()
    assert preview["effect"].endswith("The class will get another worker, if the limits allow it.")
    await school.post(f"/api/workers/{held.id}/hold", {"reason": "a test"})
    missing = (await school.advance())["at_risk"]["missing"]
    assert missing.startswith("2 of 3 workers: ")
    assert f"{held.name} is on hold by operator: a test" in missing
    assert "MAX_WORKERS_PER_REGION is 3" in missing
    assert await school.alerts() == [("booking_at_risk", "raised")]
    await school.post(f"/api/workers/{held.id}/release")
    assert (await school.advance())["at_risk"] is None
    assert await school.alerts() == [("booking_at_risk", "raised"), ("booking_at_risk", "resolved")]


async def test_a_terminated_worker_is_replaced_if_there_is_room(school: School) -> None:
    ended, *_ = await school.warm_up()
    await school.set_limit(WORKERS_NEEDED)
    preview = (await school.post(f"/api/workers/{ended.id}/preview", {"action": "terminate"})).json()
    assert f"It is booked for {school.booking['id']} until" in preview["effect"]
    assert "The class will get another worker, if the limits allow it, and the seats" in preview["effect"]
    assert (await school.post(f"/api/workers/{ended.id}/terminate", {"reason": "mine"})).status_code == 202
    occurrence = await school.advance()
    if occurrence["at_risk"] is not None:  # a PENDING worker without an instance is TERMINATED at once
        assert "is being terminated" in occurrence["at_risk"]["missing"]
    await school.set_limit(WORKERS_NEEDED + 1)
    assert (await school.advance())["at_risk"] is None
    serving = [each for each in await school.booked() if each.desired_status == "RUNNING"]
    assert len(serving) == WORKERS_NEEDED


async def test_a_lowered_limit_is_named_the_day_before(school: School) -> None:
    await school.book()
    await school.set_limit(2)
    occurrence = await school.advance()
    assert occurrence["status"] == "CONFIRMED"
    assert occurrence["at_risk"]["missing"] == "workers: 3 would be needed, 2 are allowed"
    await school.set_limit(3)
    assert (await school.advance())["at_risk"] is None


async def test_what_a_class_lacks_is_stored_also_if_the_first_commit_conflicts(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = await school.book()
    await school.set_limit(2)
    unit_of_work = school.plane.services.context.unit_of_work
    original, touched = progress.assess_future, False

    async def touch(tx: Transaction) -> None:
        found = await tx.booking(booking["id"])
        tx.save_booking(found.model_copy(update={"learners": ("bert",)}), "touched")

    async def assess(*about: Any) -> Any:
        nonlocal touched
        if not touched:
            touched = True
            await unit_of_work.run(SYSTEM, touch)
        return await original(*about)

    monkeypatch.setattr(progress, "assess_future", assess)
    assert (await school.advance())["at_risk"]["missing"] == "workers: 3 would be needed, 2 are allowed"


async def test_a_fleet_on_hold_starts_nothing_and_says_so(school: School) -> None:
    await school.book()
    await school.post("/api/fleet/hold", {"reason": "a test"})
    await school.wait_until("warm_up_at")
    occurrence = await school.advance()
    assert "the fleet is on hold by operator" in occurrence["at_risk"]["missing"]
    assert await school.workers() == []
    await school.post("/api/fleet/release")
    assert (await school.advance())["at_risk"] is None
    assert len(await school.booked()) == WORKERS_NEEDED


@pytest.mark.parametrize("cancelled", [True, False])
async def test_when_it_is_over_or_cancelled_everything_is_given_back(school: School, *, cancelled: bool) -> None:
    await school.warm_up()
    if cancelled:
        await school.post(f"/api/bookings/{school.booking['id']}/cancel", {"reason": "ill"})
    else:
        await school.wait_until("ends_at")
    occurrence = await school.advance()
    assert (occurrence["status"], occurrence["holds_capacity"]) == ("CANCELLED" if cancelled else "ENDED", False)
    assert await school.booked() == []
    assert {each.status for each in await school.seats()} == {"TERMINATED"}
    assert {each.booked_until for each in await school.workers()} == {None}


async def test_an_extension_in_the_last_second_keeps_every_lab(school: School) -> None:
    """The scheduler may be away for minutes then: labs whose end had not moved would be deleted meanwhile."""
    await school.warm_up()
    first, *others = await school.seats()
    await school.post(f"/api/lablets/{first.id}/terminate")
    await school.wait_until("ends_at", minutes=-0.03)
    extended = await school.post(f"/api/bookings/{school.booking['id']}/extend", {"minutes": 30})
    assert extended.status_code == 200, extended.text
    end = datetime.fromisoformat((await school.occurrence())["ends_at"])
    seats = {each.id: each for each in await school.seats()}
    assert {each.booked_until for each in await school.booked()} == {end}, "another class would take them otherwise"
    assert {seats[each.id].ends_at for each in others} == {end}
    assert seats[first.id].ends_at == first.ends_at, "a seat that somebody ended stays so"


async def test_an_extension_moves_the_end_of_workers_and_seats(school: School) -> None:
    await school.warm_up()
    await school.post(f"/api/bookings/{school.booking['id']}/extend", {"minutes": 30})
    ends = datetime.fromisoformat((await school.advance())["ends_at"])
    assert {each.booked_until for each in await school.booked()} == {ends}
    assert {each.ends_at for each in await school.seats()} == {ends}


@pytest.mark.parametrize("command", ["stop", "drain"])
async def test_nobody_stops_a_worker_in_the_middle_of_a_class(school: School, command: str) -> None:
    """It would be started again at the next step, with all labs of the class lost."""
    first, *_ = await school.warm_up()
    worker = await school.plane.report(first.model_dump(mode="json"), "PROVISIONING", instance_id="i-1")
    worker = await school.plane.report(worker, "STARTING")
    await school.plane.report(worker, "RUNNING", public_ip="192.0.2.7")
    refused = await school.post(f"/api/workers/{first.id}/{command}")
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")
    link = f'<dt>Booked for</dt><dd><a href="/bookings/{school.booking["id"]}">'
    assert link in await (await signed_in(school.plane, Role.VIEWER)).page(f"/workers/{first.id}")
    assert f"it is booked for {school.booking['id']} until" in refused.json()["detail"]
    preview = (await school.post(f"/api/workers/{first.id}/preview", {"action": command})).json()
    assert preview["refusal"] == refused.json()["detail"]
    await school.wait_until("ends_at")
    assert (await school.post(f"/api/workers/{first.id}/{command}")).status_code == 202


async def test_a_stopped_worker_is_started_for_a_class(school: School) -> None:
    made = await school.plane.create("alpha", template_name="micro")
    await school.plane.report(made, "PROVISIONING", instance_id="i-1")
    assert (await school.post(f"/api/workers/{made['id']}/stop")).status_code == 202
    booked = await school.warm_up()
    assert made["id"] in [each.id for each in booked]
    assert {each.desired_status for each in booked} == {"RUNNING"}


async def test_policies_leave_a_booked_worker_alone(school: School) -> None:
    first, *_ = await school.warm_up()
    worker = await school.plane.report(first.model_dump(mode="json"), "PROVISIONING", instance_id="i-1")
    worker = await school.plane.report(worker, "STARTING")
    await school.plane.report(worker, "RUNNING", public_ip="192.0.2.7")
    refused = await school.post(f"/api/internal/workers/{first.id}/drain", role=CONTROLLER)
    assert (refused.status_code, refused.json()["code"]) == (409, "not_possible_now")
    assert f"it is booked for {school.booking['id']} until" in refused.json()["detail"]


async def test_a_worker_for_others_must_leave_room_for_the_class(school: School) -> None:
    await school.set_limit(WORKERS_NEEDED)
    await school.book()
    need = {"template": "small", "reason": "full", "for": "lablet-1"}
    refused = await school.post("/api/internal/workers/scale-up", need, role=CONTROLLER)
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")
    assert "4 would be needed then" in refused.json()["detail"]
    # A worker of the template of the class that is free before the warm-up serves the class afterwards.
    until = (clock.now() + timedelta(minutes=30)).isoformat()
    short = {**need, "template": "micro", "until": until}
    assert (await school.post("/api/internal/workers/scale-up", short, role=CONTROLLER)).status_code == 202
    endless = {**short, "for": "lablet-2", "until": None}
    refused = await school.post("/api/internal/workers/scale-up", endless, role=CONTROLLER)
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")


async def test_a_worker_that_was_launched_for_a_walk_in_is_not_free_until_it_is_placed(school: School) -> None:
    """Two walk-ins without an end, one after the other: the second would take the last place of the class."""
    await school.set_limit(WORKERS_NEEDED + 1)
    await school.book()
    answers = []
    for _ in range(2):
        walk_in = (await school.post("/api/lablets", {"definition": "lab"})).json()
        need = {"template": "micro", "reason": "full", "for": f"lablet:{walk_in['id']}:0"}
        answers.append(await school.post("/api/internal/workers/scale-up", need, role=CONTROLLER))
    assert [each.status_code for each in answers] == [202, 409]
    assert answers[1].json()["code"] == "booked"


async def test_an_older_leader_carries_nothing_out(school: School) -> None:
    await school.book()
    await school.wait_until("warm_up_at")
    headers = {"X-LCM-Leader-Term": "4"}
    path = "/api/internal/bookings/advance"
    refused = await school.plane.ask("POST", path, role=CONTROLLER, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "stale_leader")
    assert await school.workers() == []


async def test_two_extensions_at_once_leave_room_for_the_class_that_follows(school: School) -> None:
    """Each fits alone; together they would take time of the next class."""
    await school.set_limit(WORKERS_NEEDED)
    first = await school.book()
    warm_up = datetime.fromisoformat(first["occurrences"][0]["starts_at"]) - datetime.fromisoformat(
        first["occurrences"][0]["warm_up_at"]
    )
    ends = datetime.fromisoformat(first["occurrences"][0]["ends_at"])
    start = (ends + timedelta(minutes=45) + warm_up).strftime("%Y-%m-%dT%H:%M")
    body = {"name": "next", "definition": "lab", "seats": SEATS, "start": start, "zone": "UTC", "duration_minutes": 60}
    assert (await school.post("/api/bookings", body)).status_code == 201
    path = f"/api/bookings/{first['id']}/extend"
    answers = await asyncio.gather(*(school.post(path, {"minutes": 30}) for _ in range(2)))
    assert sorted(each.status_code for each in answers) == [200, 409]
    (refused,) = [each.json() for each in answers if each.status_code == 409]
    assert refused["code"] == "booking_refused"
    assert datetime.fromisoformat((await school.occurrence())["ends_at"]) == ends + timedelta(minutes=30)


async def test_a_class_that_takes_place_is_extended(school: School) -> None:
    await school.warm_up()
    await school.wait_until("starts_at", minutes=1)
    assert (await school.advance())["status"] == "ACTIVE"
    before = datetime.fromisoformat((await school.occurrence())["ends_at"])
    assert (await school.post(f"/api/bookings/{school.booking['id']}/extend", {"minutes": 30})).status_code == 200
    occurrence = await school.advance()
    ends = before + timedelta(minutes=30)
    assert (occurrence["status"], datetime.fromisoformat(occurrence["ends_at"])) == ("ACTIVE", ends)
    assert {each.booked_until for each in await school.booked()} == {ends}
    assert {each.ends_at for each in await school.seats()} == {ends}
    await asyncio.sleep((before - clock.now()).total_seconds() + 60)
    assert (await school.advance())["status"] == "ACTIVE", "the former end has passed"
    await school.wait_until("ends_at")
    assert (await school.advance())["status"] == "ENDED"


async def test_an_extension_that_nobody_carries_out_before_the_former_end_is_caught_up(school: School) -> None:
    """The control plane is away from before the former end until after the new one."""
    await school.warm_up()
    await school.wait_until("ends_at", minutes=-5)
    assert (await school.post(f"/api/bookings/{school.booking['id']}/extend", {"minutes": 30})).status_code == 200
    await school.wait_until("ends_at", minutes=5)
    assert (await school.advance())["status"] == "ENDED"
    assert await school.booked() == []
    assert {each.status for each in await school.seats()} == {"TERMINATED"}


async def test_a_worker_held_during_a_class_puts_it_at_risk_until_the_release(school: School) -> None:
    await school.set_limit(WORKERS_NEEDED)
    first, *_ = await school.warm_up()
    await school.wait_until("starts_at", minutes=1)
    held = await school.post(f"/api/workers/{first.id}/hold", {"reason": "a look"})
    assert held.status_code < 300, held.text
    occurrence = await school.advance()
    assert occurrence["status"] == "ACTIVE"
    assert f"{first.name} is on hold by operator: a look" in occurrence["at_risk"]["missing"]
    assert "MAX_WORKERS_PER_REGION is 3" in occurrence["at_risk"]["missing"]


async def test_the_plan_says_when_a_class_changes_and_it_does(school: School) -> None:
    await school.book()
    planned = await boundaries(school)
    occurrence = await school.occurrence()
    times = [occurrence[name] for name in ("warm_up_at", "starts_at", "ends_at")]
    assert planned == list(zip(("WARMING", "ACTIVE", "ENDED"), times, strict=True))
    status = "CONFIRMED"
    for number, (following, at) in enumerate(planned, start=1):
        await asyncio.sleep((datetime.fromisoformat(at) - clock.now()).total_seconds() - 1)
        assert (await school.advance())["status"] == status, "not earlier"
        await asyncio.sleep(2)
        assert (await school.advance())["status"] == (status := following)
        assert await boundaries(school) == planned[number:]


async def test_a_class_does_not_go_back_when_the_clock_does(school: School) -> None:
    await school.warm_up()
    occurrence = Booking.model_validate(school.booking).occurrences[0]
    for status in (BookingStatus.WARMING, BookingStatus.ACTIVE):
        begun = occurrence.model_copy(update={"status": status})
        assert due_status(begun, occurrence.warm_up_at - timedelta(hours=1)) is status
        assert due_status(begun, occurrence.ends_at) is BookingStatus.ENDED


@pytest.mark.parametrize("begun", [True, False])
async def test_a_clock_that_jumps_ahead_ends_no_class(school: School, virtual_clock: VirtualClock, begun: bool) -> None:
    if begun:
        await school.warm_up()
        await school.wait_until("starts_at", minutes=5)
    else:
        await school.book()
    status = (await school.advance())["status"]
    virtual_clock.jumped = 7500.0 if begun else 15_000.0
    assert (await school.advance())["status"] == status == ("ACTIVE" if begun else "CONFIRMED")
    assert len([seat for seat in await school.seats() if seat.wanted]) == (SEATS if begun else 0)
    assert len(await school.booked()) == (WORKERS_NEEDED if begun else 0)
    virtual_clock.jumped = 0.0
    await school.wait_until("ends_at", minutes=61)  # the clocks have settled
    assert (await school.advance())["status"] == "ENDED"


async def test_the_plan_says_which_workers_a_class_is_given_when_the_fleet_is_released(school: School) -> None:
    await school.book()
    free = await school.plane.running("free", template_name=school.booking["template"])
    await school.plane.ask("POST", f"/api/workers/{free['id']}/stop")
    await school.plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})
    await school.wait_until("warm_up_at", minutes=1)
    await school.advance()
    assert await school.booked() == []
    [step] = (await school.plane.ask("GET", "/api/plan", role=Role.VIEWER)).json()["booking_steps"]
    assert (step["workers"], step["launches"]) == ({free["id"]: "free"}, WORKERS_NEEDED - 1)
    effect = (await school.post("/api/fleet/release/preview")).json()["effect"]
    said = f"{school.booking['name']}: free will be booked for it and run until its end. {WORKERS_NEEDED - 1} "
    assert f"Class 1 of {said}" in effect
    assert "Instance" not in effect, "it is not stopped"
    await school.plane.ask("POST", "/api/fleet/release")
    await school.advance()
    booked = await school.booked()
    assert {each.id for each in booked} > {free["id"]}
    assert {each.desired_status for each in booked} == {"RUNNING"}
    assert (await school.plane.ask("GET", "/api/plan", role=Role.VIEWER)).json()["booking_steps"] == []


async def planned_steps(school: School) -> dict[str, tuple[set[str], int]]:
    plan = (await school.plane.ask("GET", "/api/plan", role=Role.VIEWER)).json()
    return {each["name"]: (set(each["workers"].values()), each["launches"]) for each in plan["booking_steps"]}


async def test_two_classes_that_lack_workers_are_given_different_ones_as_planned(school: School) -> None:
    await school.set_limit(2 * WORKERS_NEEDED)
    names = ["first", "second"]
    for name in names:
        await school.book(name)
    for name in ("a", "b", "c", "d"):
        await school.plane.running(name, template_name=school.booking["template"])
    await school.wait_until("warm_up_at", minutes=1)
    steps = await planned_steps(school)
    assert [len(steps[name][0]) for name in names] == [WORKERS_NEEDED, 1]
    assert steps["first"][0] | steps["second"][0] == {"a", "b", "c", "d"}
    assert [steps[name][1] for name in names] == [0, WORKERS_NEEDED - 1], "the limit has room for two more"
    await school.advance()
    given: dict[str, set[str]] = {}
    ids = {each["id"]: each["name"] for each in (await school.plane.ask("GET", "/api/bookings")).json()["items"]}
    for worker in await school.workers():
        given.setdefault(ids[str(worker.booking_id)], set()).add(worker.name)
    for name, (workers, launches) in steps.items():
        assert given[name] > workers if launches else given[name] == workers
        assert len(given[name]) == len(workers) + launches == WORKERS_NEEDED
    assert await planned_steps(school) == {}


async def test_a_booked_worker_that_was_stopped_is_planned_to_run_and_does(school: School) -> None:
    first, *_ = await school.warm_up()

    async def stop(tx: Transaction) -> None:
        worker = await tx.worker(first.id)
        tx.save_worker(worker.model_copy(update={"desired_status": DesiredStatus.STOPPED}), "stopped")

    await school.plane.services.context.unit_of_work.run(SYSTEM, stop)
    assert await planned_steps(school) == {"class": ({first.name}, 0)}
    await school.advance()
    assert {each.desired_status for each in await school.booked()} == {DesiredStatus.RUNNING}
    assert await planned_steps(school) == {}


async def test_a_class_that_cannot_be_carried_out_hides_no_other_in_the_plan(school: School) -> None:
    await school.set_limit(2 * WORKERS_NEEDED)
    broken, _ = await school.book("broken"), await school.book("whole")

    async def change(tx: Transaction) -> None:
        booking = await tx.booking(broken["id"])
        tx.save_booking(booking.model_copy(update={"template": "gone"}), "changed", "")

    await school.plane.services.context.unit_of_work.run(SYSTEM, change)
    await school.wait_until("warm_up_at", minutes=1)
    assert await planned_steps(school) == {"whole": (set(), WORKERS_NEEDED)}


async def boundaries(school: School) -> list[tuple[str, str]]:
    plan = (await school.plane.ask("GET", "/api/plan", role=Role.VIEWER)).json()
    return [(each["status"], each["at"]) for each in plan["booking_boundaries"]]
