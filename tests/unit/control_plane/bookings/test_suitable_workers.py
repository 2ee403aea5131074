"""Workers that cannot serve a class are counted as such, and are not booked for it (calendar.md#admission)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.core import clock
from tests.support.records.lablet_records import TOPOLOGY
from tests.unit.control_plane.bookings.test_progress import ADMIN, WORKERS_NEEDED, School, school
from tests.unit.control_plane.bookings.test_walk_ins import READY

if TYPE_CHECKING:
    import httpx

__all__ = ["school"]  # the fixture


async def dedicated(school: School, name: str = "alpha") -> dict[str, Any]:
    """A ready worker of the template of the class that takes lablets of the team `net` alone."""
    await school.plane.ask("POST", "/api/teams", role=ADMIN, json={"name": "net"})
    worker = await ready(school, name)
    given = await school.plane.ask("PATCH", f"/api/workers/{worker['id']}", role=ADMIN, json={"team": "net"})
    assert given.status_code == 200, given.text
    return worker


async def ready(school: School, name: str) -> dict[str, Any]:
    worker = await school.plane.running(name, template_name="micro")
    condition = {**READY[0], "since": clock.now().isoformat()}
    return await school.plane.report(worker, "RUNNING", conditions=[condition])


async def ask(school: School, **facts: Any) -> httpx.Response:
    start = clock.now() + timedelta(days=2)
    body = {"name": "class", "definition": "lab", "seats": WORKERS_NEEDED, "zone": "UTC", "duration_minutes": 60}
    return await school.post("/api/bookings", {**body, "start": start.strftime("%Y-%m-%dT%H:%M"), **facts})


async def test_a_worker_of_another_team_takes_up_its_place(school: School) -> None:
    await dedicated(school)
    await school.set_limit(WORKERS_NEEDED)
    refused = await ask(school)
    assert (refused.status_code, refused.json()["code"]) == (409, "booking_refused")
    (short,) = refused.json()["current"]["shortages"]
    assert (short["resource"], short["needed"]) == ("workers", WORKERS_NEEDED + 1)
    booked = await ask(school, team="net")
    assert booked.status_code == 201, booked.text


async def test_a_worker_of_another_team_is_not_booked(school: School) -> None:
    """No seat would be placed on it: the class would wait until its end."""
    worker = await dedicated(school)
    booked = await school.warm_up()
    assert worker["id"] not in [each.id for each in booked]
    assert len(booked) == WORKERS_NEEDED


async def test_a_worker_that_is_given_to_another_team_is_replaced(school: School) -> None:
    first, *_ = await school.warm_up()
    await school.plane.ask("POST", "/api/teams", role=ADMIN, json={"name": "net"})
    given = await school.plane.ask("PATCH", f"/api/workers/{first.id}", role=ADMIN, json={"team": "net"})
    assert given.status_code == 200, given.text
    assert (await school.advance())["at_risk"] is None
    assert len([each for each in await school.booked() if not each.team]) == WORKERS_NEEDED
    await school.set_limit(WORKERS_NEEDED)
    second, *_ = [each for each in await school.booked() if not each.team]
    await school.plane.ask("PATCH", f"/api/workers/{second.id}", role=ADMIN, json={"team": "net"})
    assert f"{second.name} is dedicated to another team" in (await school.advance())["at_risk"]["missing"]


async def test_a_template_that_became_smaller_puts_its_classes_at_risk(school: School) -> None:
    await school.book()
    assert (await school.advance())["at_risk"] is None
    template = (await school.plane.ask("GET", "/api/worker-templates/micro", role=ADMIN)).json()
    template["capacity"]["memory_gb"] = 0.5
    changed = await school.plane.ask("PUT", "/api/worker-templates/micro", role=ADMIN, json=template)
    assert changed.status_code == 200, changed.text
    missing = (await school.advance())["at_risk"]["missing"]
    assert missing == "template micro was changed: it holds 0 of 1 seats by now; book the class anew"


async def test_a_class_whose_workers_will_have_no_license_is_warned_of_and_at_risk(school: School) -> None:
    needs = {"license": True, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
    body = {"name": "exam", "version": "1", "topology": TOPOLOGY, "requirements": needs}
    assert (await school.plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
    start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    wanted = {"name": "exam", "definition": "exam", "seats": WORKERS_NEEDED, "start": start, "zone": "UTC"}
    wanted["duration_minutes"] = 60
    preview = (await school.post("/api/bookings/preview", wanted)).json()
    said = "3 of 3 workers have no license: set SCALE_UP_LICENSE_TOKEN, or give them a license token"
    assert preview["confirmed"]
    assert preview["warnings"] == [f"{said}."]
    school.booking = (await school.post("/api/bookings", wanted)).json()
    assert (await school.advance())["at_risk"]["missing"] == said
    await school.wait_until("warm_up_at")
    await school.advance()
    assert (await school.advance())["at_risk"]["missing"] == said
    for each in await school.booked():
        path = f"/api/workers/{each.id}"
        await school.plane.ask("PATCH", path, role=ADMIN, json={"license_token": "token-1"})
    assert (await school.advance())["at_risk"] is None
