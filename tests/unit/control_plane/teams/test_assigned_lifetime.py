"""A lablet that is assigned to a team lasts no longer than the team allows (teams.md#limits)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lcm.core import clock
from lcm.model.access import Role
from tests.support.virtual.control_plane import serving_plane
from tests.support.web.lablets import LabletWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST = 60.0
DAY = 24 * 3600


@pytest.fixture
async def world() -> AsyncIterator[LabletWorld]:
    async with serving_plane() as plane:
        world = await LabletWorld(plane).open()
        await world.define()
        body = {"name": "blue", "limits": {"max_lifetime_minutes": MOST}}
        assert (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json=body)).status_code == 201
        yield world


async def assigned(world: LabletWorld, lablet: dict[str, Any]) -> dict[str, Any]:
    path = f"/api/lablets/{lablet['id']}/assign"
    response = await world.plane.ask("POST", path, role=Role.ADMIN, json={"team": "blue"})
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


async def runs(world: LabletWorld, **facts: Any) -> dict[str, Any]:
    """A lablet that has run for a day."""
    placed = await world.place(await world.make("old", **facts), await world.worker())
    running = await world.report(await world.report(placed, "INSTANTIATING", lab_id="lab-1"), "RUNNING")
    await asyncio.sleep(DAY)
    return await world.now(running)


def minutes_left(lablet: dict[str, Any]) -> float:
    return (datetime.fromisoformat(lablet["ends_at"]) - clock.now()) / timedelta(minutes=1)


@pytest.mark.parametrize(("before", "after"), [({}, MOST), ({"time_to_live_minutes": 30.0}, 30.0)])
async def test_one_that_does_not_run_yet_may_run_as_long_as_a_new_one(
    world: LabletWorld, before: dict[str, Any], after: float
) -> None:
    lablet = await assigned(world, await world.make("new", **before))
    assert (lablet["time_to_live_minutes"], lablet["ends_at"]) == (after, None)


async def test_one_with_a_later_start_may_last_from_then_on(world: LabletWorld) -> None:
    starts = clock.now() + timedelta(days=1)
    times = {"starts_at": starts.isoformat(), "ends_at": (starts + timedelta(days=1)).isoformat()}
    lablet = await assigned(world, await world.make("later", **times))
    assert minutes_left(lablet) == pytest.approx(24 * 60 + MOST)


@pytest.mark.parametrize("facts", [{}, {"time_to_live_minutes": 10_000.0}], ids=["endless", "too long"])
async def test_one_that_has_run_for_days_is_not_ended_at_once(world: LabletWorld, facts: dict[str, Any]) -> None:
    """The limit counts from the assignment, of which nobody who uses it may have heard."""
    lablet = await assigned(world, await runs(world, **facts))
    assert minutes_left(lablet) == pytest.approx(MOST)
    assert lablet["wanted"] is True
    assert await assigned(world, lablet) == lablet, "again changes nothing"


async def test_an_earlier_end_stays(world: LabletWorld) -> None:
    before = await runs(world, time_to_live_minutes=24 * 60 + 20.0)
    lablet = await assigned(world, before)
    assert (lablet["time_to_live_minutes"], lablet["ends_at"]) == (before["time_to_live_minutes"], None)


@pytest.mark.parametrize(
    ("facts", "changes"),
    [({}, True), ({"time_to_live_minutes": 10_000.0}, True), ({"time_to_live_minutes": 24 * 60 + 20.0}, False)],
)
async def test_another_end_is_a_change_of_what_is_desired(
    world: LabletWorld, facts: dict[str, Any], *, changes: bool
) -> None:
    """As with an extension: whoever waits to try something again does so at once."""
    before = await runs(world, **facts)
    after = await assigned(world, before)
    assert (after["version"], after["generation"]) == (before["version"] + 1, before["generation"] + changes)


@pytest.mark.parametrize(("minutes", "changes"), [(10_000.0, True), (30.0, False)])
async def test_another_time_to_live_is_one_too(world: LabletWorld, minutes: float, *, changes: bool) -> None:
    before = await world.make("new", time_to_live_minutes=minutes)
    after = await assigned(world, before)
    assert (after["version"], after["generation"]) == (before["version"] + 1, before["generation"] + changes)
