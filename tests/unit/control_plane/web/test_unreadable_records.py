"""One record that cannot be read is left out of lists and previews: pages, settings and decisions work on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.auth.tokens import TOKENS
from lcm.control_plane.records.kinds import (
    CONTROLLER_REPORTS,
    DECISIONS,
    DEFINITIONS,
    LABLETS,
    TEMPLATES,
    WORKERS,
    lablet_fields,
    worker_fields,
)
from lcm.control_plane.store.port import Put
from lcm.control_plane.workers.decisions import read_decision
from lcm.model.access import Role
from lcm.model.lablet.record import Lablet
from lcm.model.worker.record import Worker
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import FieldValue, Kind
    from tests.support.virtual.control_plane import TestPlane

UNREADABLE = b'{"name":"broken"}'
READY = {"type": "CmlReady", "status": "True", "since": "2026-01-17T10:30:00Z"}


async def overwrite(plane: TestPlane, kind: Kind, id_: str, fields: Mapping[str, FieldValue] | None = None) -> None:
    store = plane.services.context.store
    stored = await store.get(kind, id_)
    assert stored is not None
    await store.commit([Put(kind, id_, UNREADABLE, stored.revision, dict(fields or {}))])


async def break_worker(plane: TestPlane, worker_id: str) -> None:
    stored = await plane.services.context.store.get(WORKERS, worker_id)
    assert stored is not None
    await overwrite(plane, WORKERS, worker_id, worker_fields(Worker.model_validate_json(stored.body)))


async def test_an_unreadable_worker_is_left_out_of_pages_and_previews(plane: TestPlane) -> None:
    good = await plane.report(await plane.running("good"), "RUNNING", conditions=[READY])
    broken = await plane.report(await plane.running("broken"), "RUNNING", conditions=[READY])
    failed = await plane.report(await plane.create("failed"), "FAILED")
    for worker in (broken, failed):
        await break_worker(plane, worker["id"])
    ids = f"{good['id']},{broken['id']},{failed['id']}"
    waiting = await plane.create("waiting")
    await break_worker(plane, waiting["id"])
    admin = await signed_in(plane, Role.ADMIN)
    assert ">good<" in await admin.page("/")
    assert ">good<" in await admin.page("/fleet")
    await admin.part(f"/fleet/rows?ids={ids}")
    await admin.part(f"/fleet/figures?ids={ids}")
    assert "good" in await admin.part(f"/fleet/confirm?ids={ids}&action=stop")
    body = {"idle": {"worker_idle_timeout_minutes": 1, "worker_auto_pause_snooze_minutes": 0}}
    preview = await plane.ask("POST", "/api/settings/preview", role=Role.VIEWER, json=body)
    assert preview.status_code == 200, preview.text
    assert preview.json()["effects"][0].startswith("1 worker will be stopped within 5 minutes unless used: good.")
    template = (await plane.ask("GET", "/api/worker-templates/small", role=Role.VIEWER)).json()
    change = {"action": "apply", "template": {**template, "instance_type": "t3.large"}}
    response = await plane.ask("POST", "/api/worker-templates/small/preview", role=Role.VIEWER, json=change)
    assert response.status_code == 200, response.text


async def test_an_unreadable_lablet_or_template_is_left_out_of_pages(plane: TestPlane) -> None:
    world = await LabletWorld(plane).open()
    await world.define()
    good = await world.make("good")
    broken = await world.make("broken")
    stored = await plane.services.context.store.get(LABLETS, broken["id"])
    assert stored is not None
    await overwrite(plane, LABLETS, broken["id"], lablet_fields(Lablet.model_validate_json(stored.body)))
    await overwrite(plane, TEMPLATES, "micro", {"enabled": True})
    admin = await signed_in(plane, Role.ADMIN)
    assert ">good<" in await admin.page("/lablets")
    assert "metal" in await admin.page("/templates")
    assert "metal" in await admin.part("/workers/new")
    assert "good" in await admin.part(f"/lablets/confirm-end?ids={broken['id']},{good['id']}")


async def test_an_unreadable_definition_token_or_report_is_left_out_of_lists(plane: TestPlane) -> None:
    world = await LabletWorld(plane).open()
    await world.define("ospf")
    broken = await world.define("ospf", version="2")
    await overwrite(plane, DEFINITIONS, broken, {"name": "ospf", "enabled": True, "created_at": 9e9, "team": ""})
    lablet = await world.make("newest", "ospf")
    assert lablet["definition"] == "ospf@1"
    path = "/api/internal/controllers/worker-controller/report"
    reported = await plane.ask("POST", path, role=Role.CONTROLLER, json={"instance_id": "one"})
    assert reported.status_code == 200, reported.text
    for stored in (await plane.services.context.store.find(CONTROLLER_REPORTS)).items:
        await overwrite(plane, CONTROLLER_REPORTS, stored.id)
    for name in ("first", "second"):
        body = {"name": name, "role": "viewer"}
        made = await plane.ask("POST", "/api/tokens", role=Role.ADMIN, json=body)
        assert made.status_code == 201, made.text
    listed = (await plane.ask("GET", "/api/tokens", role=Role.ADMIN)).json()["items"]
    (second,) = [each["id"] for each in listed if each["name"] == "second"]
    await overwrite(plane, TOKENS, second, {"name": "second", "role": "viewer", "revoked": False})
    tokens = await plane.ask("GET", "/api/tokens", role=Role.ADMIN)
    assert {"first", "second"} & {each["name"] for each in tokens.json()["items"]} == {"first"}
    assert (await plane.ask("GET", "/api/plan", role=Role.VIEWER)).status_code == 200


async def test_an_unreadable_decision_counts_as_none_and_is_replaced_by_the_next(plane: TestPlane) -> None:
    worker, other = await plane.running("alpha"), await plane.running("beta")
    at = {"rule": "running.steady", "reason": "as it should be", "decided_at": "2026-01-17T10:31:00Z"}

    async def report() -> dict[str, int]:
        body = {"items": [{"worker_id": each["id"], "decision": at} for each in (worker, other)]}
        response = await plane.ask("POST", "/api/internal/workers/decisions", role=Role.CONTROLLER, json=body)
        assert response.status_code == 200, response.text
        kept: dict[str, int] = response.json()
        return kept

    await report()
    await overwrite(plane, DECISIONS, worker["id"])
    plan = await plane.ask("GET", "/api/plan", role=Role.VIEWER)
    assert plan.status_code == 200, plan.text
    assert {item["name"]: item["decision"] is None for item in plan.json()["items"]} == {"alpha": True, "beta": False}
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}/explain", role=Role.VIEWER)).status_code == 200
    assert (await report())["dropped"] == 0
    decision = await read_decision(plane.services.context.store, worker["id"])
    assert decision is not None
    assert decision.rule == "running.steady"
