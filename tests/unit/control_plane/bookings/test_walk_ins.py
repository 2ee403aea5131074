"""Lablets that belong to no booking leave room for every class (calendar.md#walk-ins)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.unit_of_work import Leader
from lcm.control_plane.workers.controller_writes import WorkerControllerWrites
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.problems import ProblemCode
from lcm.model.worker.requests import LeadershipAnnouncement, ScaleUpRequest
from lcm.model.worker.status import LicenseStatus
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.virtual.control_plane import SYSTEM
from tests.unit.control_plane.bookings.test_progress import ADMIN, CONTROLLER, WORKERS_NEEDED, School, school

if TYPE_CHECKING:
    import httpx

    from lcm.control_plane.records.unit_of_work import Transaction

__all__ = ["school"]  # the fixture

READY = [{"type": "CmlReady", "status": "True", "reason": "Seen"}]


class Class(School):
    """A class that needs every worker of the region, all of which exist and are ready."""

    workers_by_name: dict[str, dict[str, Any]]

    async def prepare(self, spare: int = 0) -> datetime:
        """Returns when its warm-up begins."""
        sweep = {"term": 5, "startup_sweep_done": True}
        await self.plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json=sweep)
        await self.set_limit(WORKERS_NEEDED + spare)
        self.workers_by_name = {}
        for name in ("alpha", "beta", "gamma"):
            worker = await self.plane.running(name, template_name="micro")
            condition = {**READY[0], "since": clock.now().isoformat()}
            self.workers_by_name[name] = await self.plane.report(worker, "RUNNING", conditions=[condition])
        await self.book()
        return datetime.fromisoformat((await self.occurrence())["warm_up_at"])

    async def make(self, name: str, **facts: Any) -> dict[str, Any]:
        response = await self.post("/api/lablets", {"name": name, "definition": "lab", **facts})
        assert response.status_code == 201, response.text
        made: dict[str, Any] = response.json()
        return made

    async def place(self, *pairs: tuple[dict[str, Any], str]) -> list[dict[str, Any]]:
        items = []
        for lablet, name in pairs:
            placement = {"at": clock.now().isoformat(), "reason": "the best"}
            worker_id = self.workers_by_name[name]["id"]
            items.append(
                {
                    "lablet_id": lablet["id"],
                    "version": lablet["version"],
                    "worker_id": worker_id,
                    "placement": {**placement, "worker_id": worker_id},
                }
            )
        response = await self.post("/api/internal/lablets/schedule", {"items": items}, role=CONTROLLER)
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["items"]
        return results

    async def placed(self, name: str, on: str, **facts: Any) -> dict[str, Any]:
        (result,) = await self.place((await self.make(name, **facts), on))
        assert result["placed"], result
        return await self.lablet(result["lablet_id"])

    async def lablet(self, lablet_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.plane.ask("GET", f"/api/lablets/{lablet_id}")).json()
        return found

    async def preview(self, **facts: Any) -> dict[str, Any]:
        preview: dict[str, Any] = (await self.post("/api/lablets/preview", {"definition": "lab", **facts})).json()
        return preview

    async def extend(self, lablet: dict[str, Any], **how: Any) -> httpx.Response:
        return await self.post(f"/api/lablets/{lablet['id']}/extend", how)


@pytest.fixture
def class_(school: School) -> Class:
    return Class(school.plane)


def before(moment: datetime, minutes: int = 0) -> str:
    return (moment - timedelta(minutes=minutes)).isoformat()


async def test_a_walk_in_is_not_placed_where_a_class_needs_the_worker(class_: Class) -> None:
    warm_up = await class_.prepare()
    endless, too_long = await class_.make("endless"), await class_.make("long", ends_at=before(warm_up, -1))
    short = await class_.make("short", ends_at=before(warm_up))
    results = await class_.place((endless, "alpha"), (too_long, "beta"), (short, "gamma"))
    assert [each["placed"] for each in results] == [False, False, True]
    assert {each["code"] for each in results[:2]} == {"booked"}
    assert f"booked from {warm_up:%Y-%m-%d %H:%M}:00 UTC on" in results[0]["detail"]
    assert "give the lablet an earlier end" in results[0]["detail"]


async def test_walk_ins_that_are_placed_at_once_leave_room_together(class_: Class) -> None:
    """One worker more may exist than the class needs: one walk-in may keep a worker, not two."""
    await class_.prepare(spare=1)
    pairs = [(await class_.make(f"endless-{name}"), name) for name in class_.workers_by_name]
    results = await asyncio.gather(*(class_.place(pair) for pair in pairs))
    assert sum(each["placed"] for (each,) in results) == 1
    preview = await class_.preview()
    assert (preview["outcome"], preview["candidates_in_all"]) == ("wait", 0), "the preview says the same"
    assert sum("it is booked from" in each["reason"] for each in preview["rejections"]) == 2


async def test_a_preview_says_until_when_the_workers_are_free(class_: Class) -> None:
    warm_up = await class_.prepare()
    preview = await class_.preview()
    assert (preview["outcome"], preview["candidates_in_all"]) == ("wait", 0)
    assert f"booked from {warm_up:%Y-%m-%d %H:%M}:00 UTC on" in preview["rejections"][0]["reason"]
    assert (await class_.preview(ends_at=before(warm_up)))["outcome"] == "place"
    await class_.set_limit(WORKERS_NEEDED + 1)
    assert (await class_.preview())["outcome"] == "place", "a worker more may be launched for the class"


async def test_a_launch_that_would_take_a_booked_place_is_not_planned(class_: Class) -> None:
    await class_.set_limit(WORKERS_NEEDED)
    await class_.book()
    preview = await class_.preview()
    assert preview["outcome"] == "wait"
    assert "the workers of eu-west-1 are booked from" in preview["reason"]
    waiting = await class_.make("endless")
    plan = (await class_.plane.ask("GET", "/api/plan")).json()["lablets"]
    assert plan["scale_ups"] == []
    assert [each["lablet_id"] for each in plan["waiting"]] == [waiting["id"]]
    assert "are booked from" in plan["waiting"][0]["reason"]
    need = {"template": "micro", "reason": "full", "for": "lablet-1"}
    refused = await class_.post("/api/internal/workers/scale-up", need, role=CONTROLLER)
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")


async def test_a_walk_in_is_extended_up_to_a_booking_and_no_further(class_: Class) -> None:
    warm_up = await class_.prepare()
    lablet = await class_.placed("short", "alpha", ends_at=before(warm_up, 60))
    body = {"action": "extend", "ends_at": before(warm_up, -1)}
    preview = (await class_.post(f"/api/lablets/{lablet['id']}/preview", body)).json()
    refused = await class_.extend(lablet, ends_at=before(warm_up, -1))
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")
    assert preview["refusal"] == refused.json()["detail"]
    assert f"its end may be at most {warm_up:%Y-%m-%d %H:%M}:00 UTC" in refused.json()["detail"]
    assert refused.json()["current"]["latest_end"] == warm_up.isoformat().replace("+00:00", "Z")
    limit = (await class_.post(f"/api/lablets/{lablet['id']}/preview", {"action": "extend"})).json()
    assert f"The latest end is {warm_up:%H:%M}" in limit["effect"]
    assert (await class_.extend(lablet, ends_at=before(warm_up))).status_code == 200
    full = (await class_.post(f"/api/lablets/{lablet['id']}/preview", {"action": "extend"})).json()
    assert "booked" in full["refusal"]


async def test_a_lablet_that_does_not_run_yet_gets_no_time_of_a_class(class_: Class) -> None:
    warm_up = await class_.prepare()
    left = (warm_up - clock.now()).total_seconds() / 60
    lablet = await class_.placed("short", "alpha", time_to_live_minutes=left - 60)
    refused = await class_.extend(lablet, minutes=60)
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")
    assert "give at most 30 minutes" in refused.json()["detail"], "it may take half an hour until it runs"
    assert (await class_.extend(lablet, minutes=30)).status_code == 200


async def test_a_seat_ends_with_its_class(class_: Class) -> None:
    await class_.warm_up()
    (seat, *_) = await class_.seats()
    refused = await class_.extend({"id": seat.id}, minutes=30)
    assert (refused.status_code, refused.json()["code"]) == (409, "booked")
    assert "it is a seat of booking class; extend the class instead" in refused.json()["detail"]
    assert (await class_.post(f"/api/bookings/{class_.booking['id']}/extend", {"minutes": 30})).status_code == 200
    await class_.advance()
    (seat, *_) = await class_.seats()
    assert seat.ends_at is not None
    assert seat.ends_at.isoformat() == (await class_.occurrence())["ends_at"].replace("Z", "+00:00")


async def test_a_licensed_worker_is_kept_for_a_class_that_needs_a_license(class_: Class) -> None:
    needs = {"license": True, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
    body = {"name": "licensed", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    assert (await class_.plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
    scaling = {"license_pool_size": 1, "max_workers_per_region": 9}
    assert (await class_.plane.ask("PATCH", "/api/settings", role=ADMIN, json={"scaling": scaling})).status_code == 200
    sweep = {"term": 5, "startup_sweep_done": True}
    await class_.plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json=sweep)
    worker = await class_.plane.running("alpha", template_name="micro")
    condition = {**READY[0], "since": clock.now().isoformat()}
    class_.workers_by_name = {"alpha": await class_.plane.report(worker, "RUNNING", conditions=[condition])}

    async def register(tx: Transaction) -> None:
        found = await tx.worker(worker["id"])
        registered = {"license_status": LicenseStatus.REGISTERED, "version": found.version + 1}
        tx.save_worker(found.model_copy(update=registered), "registered")

    await class_.plane.services.context.unit_of_work.run(SYSTEM, register)
    start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    asked = {"name": "exam", "definition": "licensed", "seats": 1, "start": start, "zone": "UTC"}
    booked = await class_.post("/api/bookings", {**asked, "duration_minutes": 60})
    assert booked.status_code == 201, booked.text
    (result,) = await class_.place((await class_.make("endless"), "alpha"))
    assert (result["placed"], result["code"]) == (False, "booked")
    assert "licenses: 2 would be needed then, and LICENSE_POOL_SIZE is 1" in result["detail"]


async def test_who_reads_what_is_booked(class_: Class) -> None:
    path = "/api/internal/bookings/capacity"
    assert (await class_.plane.ask("GET", path, role=Role.VIEWER)).status_code == 403
    empty = (await class_.plane.ask("GET", path, role=CONTROLLER)).json()
    assert (empty["booked"], empty["workers"]) == ([], {}), "without bookings no worker is read"
    await class_.prepare()
    found = (await class_.plane.ask("GET", path, role=CONTROLLER)).json()
    assert [each["workers"] for each in found["booked"]] == [WORKERS_NEEDED]
    assert set(found["workers"]) == {each["id"] for each in class_.workers_by_name.values()}


async def test_a_worker_that_is_launched_for_a_walk_in_leaves_the_license_of_a_class(class_: Class) -> None:
    """It registers with the token of scale-up, long before the class, and keeps the license when nobody uses it."""
    needs = {"license": True, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
    body = {"name": "licensed", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    assert (await class_.plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
    scaling = {"license_pool_size": 2, "max_workers_per_region": 9}
    assert (await class_.plane.ask("PATCH", "/api/settings", role=ADMIN, json={"scaling": scaling})).status_code == 200
    start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    asked = {"name": "exam", "definition": "licensed", "seats": 1, "start": start, "zone": "UTC"}
    booked = await class_.post("/api/bookings", {**asked, "duration_minutes": 60})
    assert booked.status_code == 201, booked.text
    writes = WorkerControllerWrites(replace(class_.plane.services.context, scale_up_license=SecretStr("token")))
    leader = Leader("resource-scheduler", 5)
    await writes.leadership(leader, LeadershipAnnouncement(term=5))

    def need(lablet: str) -> ScaleUpRequest:
        return ScaleUpRequest.model_validate({"template": "small", "reason": "full", "for": lablet})

    assert (await writes.scale_up(leader, need("lablet-1"))).has_license_token, "one license is left"
    with pytest.raises(ProblemError, match="licenses: 3 would be needed then, and LICENSE_POOL_SIZE is 2") as refused:
        await writes.scale_up(leader, need("lablet-2"))
    assert refused.value.code is ProblemCode.BOOKED
