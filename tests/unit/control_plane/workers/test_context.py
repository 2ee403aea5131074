"""What a controller reads before a pass, and writes that a hold on the fleet rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.model.access import Role
from lcm.model.fleet.worker_context import WorkerContext
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HELD = (409, "held")


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as made:
        yield made


async def context_of(plane: TestPlane, worker: dict[str, Any]) -> WorkerContext:
    response = await plane.ask("GET", f"/api/internal/workers/{worker['id']}/context", role=Role.CONTROLLER)
    assert response.status_code == 200, response.text
    return WorkerContext.model_validate_json(response.content)


async def hold(plane: TestPlane) -> None:
    assert (await plane.ask("POST", "/api/fleet/hold", role=Role.ADMIN, json={"reason": "stop!"})).is_success


async def test_one_read_gives_worker_holds_settings_and_template(plane: TestPlane) -> None:
    worker = await plane.create("alpha")
    changed = {"scaling": {"min_workers": 3}}
    assert (await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json=changed)).is_success
    await hold(plane)
    context = await context_of(plane, worker)
    assert (context.worker.id, context.worker.version) == (worker["id"], worker["version"])
    assert context.fleet.hold is not None
    assert context.fleet.hold.reason == "stop!"
    assert context.settings.scaling.min_workers == 3
    assert context.template is not None
    assert context.template.name == worker["template_name"]


async def test_only_a_worker_that_is_to_be_launched_needs_its_template(plane: TestPlane) -> None:
    context = await context_of(plane, await plane.running("alpha"))
    assert context.template is None
    assert context.fleet.hold is None


async def test_a_worker_that_does_not_exist_is_not_found(plane: TestPlane) -> None:
    response = await plane.ask("GET", "/api/internal/workers/w-000000000000/context", role=Role.CONTROLLER)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("unless_held", [True, False])
async def test_a_hold_rejects_a_write_that_announces_an_action(plane: TestPlane, *, unless_held: bool) -> None:
    worker = await plane.create("alpha")
    running = await plane.running("beta")
    await hold(plane)
    launch = {"version": worker["version"], "attempt": 1, "parameters": {"region": "eu-west-1"}}
    status = {"status": "STOPPING", "version": running["version"], "reason": "stop it"}
    license_status = {"status": "registering"}
    for target, path, body in (
        (worker, "launch", launch),
        (running, "license-status", license_status),
        (running, "status", status),
    ):
        response = await plane.ask(
            "POST",
            f"/api/internal/workers/{target['id']}/{path}",
            role=Role.CONTROLLER,
            json={**body, "unless_held": unless_held},
        )
        if unless_held:
            assert (response.status_code, response.json()["code"]) == HELD
            after = await context_of(plane, target)
            assert after.worker.version == target["version"]
        else:
            assert response.is_success, response.text
            running = response.json() if target is running else running
            status["version"] = running["version"]
