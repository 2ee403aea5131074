"""Forms accept what the API accepts, and refuse what it refuses, with the same words."""

from __future__ import annotations

import pytest

from lcm.model.access import Role
from tests.support.virtual.control_plane import serving_plane
from tests.support.web.visitor import signed_in

ESCAPE = "\x1b[2Jgone"


@pytest.mark.parametrize("reason", [ESCAPE, "x" * 501, "a\0b", "\u202egnp.exe"])
async def test_a_reason_that_the_api_refuses_is_refused_by_the_form(reason: str) -> None:
    async with serving_plane() as plane:
        worker = await plane.create("alpha")
        by_api = await plane.ask("POST", f"/api/workers/{worker['id']}/stop", json={"reason": reason})
        visitor = await signed_in(plane, Role.OPERATOR)
        by_form = await visitor.send(f"/workers/{worker['id']}/do/stop", {"reason": reason})
        assert (by_api.status_code, by_form.status_code) == (422, 422)
        assert by_api.json()["detail"] in by_form.text
        audit = (await plane.ask("GET", "/api/audit")).text
        assert "gone" not in audit


async def test_a_whole_page_is_rendered_for_htmx_too() -> None:
    async with serving_plane() as plane:
        worker = await plane.create("alpha")
        visitor = await signed_in(plane, Role.VIEWER)
        assert "alpha" in await visitor.part(f"/workers/{worker['id']}")
        await visitor.part("/workers/w-none", 404)
        await visitor.part("/lablets/l-none", 404)


async def test_a_clock_that_shows_the_year_1_is_ignored() -> None:
    """One header of a controller must not break the clock of the control plane."""
    async with serving_plane() as plane:
        worker = await plane.create("alpha")
        headers = {"X-LCM-Time": "0001-01-01T00:00:00+23:59", "X-LCM-Earliest-Time": "9999-12-31T23:59:59-14:00"}
        body = {"status": "PROVISIONING", "version": worker["version"], "reason": "seen"}
        path = f"/api/internal/workers/{worker['id']}/status"
        response = await plane.ask("POST", path, role=Role.CONTROLLER, json=body, headers=headers)
        assert response.status_code == 200
        assert (await plane.ask("GET", "/api/workers")).status_code == 200
