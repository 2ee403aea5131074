"""Whatever bookings depend on takes a turn with the calendar, so that admission sees it or runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.records.kinds import CALENDAR
from lcm.model.access import Role
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADMIN, CONTROLLER = Role.ADMIN, Role.CONTROLLER
NEED = {"template": "small", "reason": "full", "for": "lablet-1"}


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        await plane.ask("POST", "/api/internal/leadership", role=CONTROLLER, json={"term": 5})
        assert (await plane.ask("POST", "/api/teams", role=ADMIN, json={"name": "net"})).status_code == 201
        yield plane


async def revision(plane: TestPlane) -> int:
    stored = await plane.services.context.store.get(CALENDAR, CALENDAR.name)
    return 0 if stored is None else stored.revision


@pytest.mark.parametrize(
    ("role", "method", "path", "body"),
    [
        (ADMIN, "PATCH", "/api/teams/net", {"limits": {"max_seats": 3}}),
        (ADMIN, "PATCH", "/api/settings", {"scaling": {"max_workers_per_region": 3}}),
        (ADMIN, "PATCH", "/api/settings", {"scaling": {"license_pool_size": 3}}),
        (ADMIN, "POST", "/api/worker-templates/small/disable", None),
        (CONTROLLER, "POST", "/api/internal/workers/scale-up", NEED),
    ],
)
async def test_a_change_that_bookings_depend_on_takes_a_turn(
    plane: TestPlane, role: Role, method: str, path: str, body: Any
) -> None:
    before = await revision(plane)
    response = await plane.ask(method, path, role=role, json=body)
    assert response.status_code < 300, response.text
    after = await revision(plane)
    assert after > before
    await plane.ask(method, path, role=role, json=body)
    assert await revision(plane) == after, "a repeated request changes nothing"


async def test_other_settings_take_none(plane: TestPlane) -> None:
    before = await revision(plane)
    await plane.ask("PATCH", "/api/teams/net", role=ADMIN, json={"description": "networks"})
    await plane.ask("PATCH", "/api/settings", role=ADMIN, json={"idle": {"worker_idle_timeout_minutes": 30}})
    assert await revision(plane) == before
