"""Workers and lablets are found by whatever a user may know about them, by the API and on the pages alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.records.backfill import backfill_fields
from lcm.control_plane.records.kinds import LABLETS, WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.records.search_text import SEARCH_FIELD, search_condition
from lcm.control_plane.store.port import Put, Where
from lcm.model.access import Role
from lcm.model.worker.record import Worker
from tests.support.virtual.control_plane import serving_plane
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.control_plane import TestPlane


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def names(plane: TestPlane, q: str, what: str = "workers") -> list[str]:
    response = await plane.ask("GET", f"/api/{what}", params={"q": q, "sort": "name"})
    assert response.status_code == 200, response.text
    return [each["name"] for each in response.json()["items"]]


async def test_workers_are_found_by_every_property_that_users_know(plane: TestPlane) -> None:
    alpha = await plane.running("alpha", tags={"owner": "Ann", "course": "routing-101"})
    alpha = await plane.report(alpha, "RUNNING", public_ip="198.51.100.7", private_ip="10.9.8.7")
    await plane.create("bravo", aws_region="eu-west-1", template_name="large")
    for q in (
        "ALPH",
        alpha["id"],
        alpha["instance_id"],
        "198.51.100.7",
        "10.9.8",
        "owner=ann",
        "routing",
        "routing alpha",
    ):
        assert await names(plane, q) == ["alpha"], q
    assert await names(plane, "large") == ["bravo"]
    assert await names(plane, "alpha large") == []
    both = [alpha["name"], "bravo"] if alpha["aws_region"] == "eu-west-1" else ["bravo"]
    assert await names(plane, "eu-west-1") == both
    page = await (await signed_in(plane, Role.VIEWER)).page("/fleet?q=owner%3Dann")
    assert "alpha" in page
    assert "bravo" not in page


async def test_lablets_are_found_by_owner_definition_and_address(plane: TestPlane) -> None:
    world = await LabletWorld(plane).open()
    await world.define()
    worker = await world.worker("host")
    first = await world.runs("first", worker, endpoints=[{"node": "R1", "addresses": ["10.0.0.5"]}])
    await world.make("second", owner="Berta")
    for q, found in (
        ("berta", ["second"]),
        ("10.0.0.5", ["first"]),
        (worker["id"], ["first"]),
        (first["id"], ["first"]),
        ("ospf@1", ["first", "second"]),
        ("ospf berta", ["second"]),
    ):
        assert await names(plane, q, "lablets") == found, q


async def test_records_of_an_older_version_are_found_after_the_next_start(plane: TestPlane) -> None:
    made = await plane.create("old-one")
    store = plane.services.context.store
    stored = await store.get(WORKERS, made["id"])
    assert stored is not None
    worker = Worker.model_validate_json(stored.body)
    fields = {**worker_fields(worker), SEARCH_FIELD: None}
    await store.commit([Put(WORKERS, worker.id, stored.body, stored.revision, fields, worker_unique_keys(worker))])
    assert await names(plane, "old-one") == []
    assert await backfill_fields(store) == 1
    assert await names(plane, "old-one") == ["old-one"]
    assert (await store.find(LABLETS, Where(contains_all=search_condition("old-one")))).items == []
