"""During a rolling upgrade an older control plane changes records of a newer one, and erases nothing of them.

Reference: operations.md#upgrading. `upgrade` plays the newer version; what is tested is this version as the older one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lcm.cli.output.printer import Printer
from lcm.cli.output.worker_views import show_explanation, show_worker, worker_columns
from lcm.control_plane.records.kinds import FLEET, LABLETS, LEADERSHIPS, SETTINGS, TEMPLATES, WORKERS
from lcm.control_plane.store.port import Put
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.observation import InstanceObservation, Observation, Visibility
from lcm.core.controller.resources import Outcome
from lcm.model.access import Role
from lcm.model.lablet.placement import with_lablet, without_lablet
from lcm.model.lablet.record import Lablet, LabletRequirements
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.explain import Explanation
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import Allocation
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.records.newer_version import ADDED, lost, upgrade
from tests.support.records.workers import NOW, a_worker
from tests.support.virtual.control_plane import TestPlane, serving_plane
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.store.port import Kind


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def stored(plane: TestPlane, kind: Kind, record_id: str) -> dict[str, Any]:
    found = await plane.services.context.store.get(kind, record_id)
    assert found is not None
    body: dict[str, Any] = json.loads(found.body)
    return body


async def newer_worker(plane: TestPlane, name: str = "alpha", **words: str) -> dict[str, Any]:
    worker = await plane.running(name)
    return await upgrade(plane.services.context.store, WORKERS, worker["id"], **words)


async def newer_lablet(plane: TestPlane, **words: str) -> dict[str, Any]:
    definition = {"name": "ospf", "version": "1", "topology": TOPOLOGY}
    assert (await plane.ask("POST", "/api/lablet-definitions", json=definition)).status_code == 201
    made = (await plane.ask("POST", "/api/lablets", json={"definition": "ospf"})).json()
    return await upgrade(plane.services.context.store, LABLETS, made["id"], **words)


COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "stop": ("POST", {}),
    "terminate": ("POST", {}),
    "drain": ("POST", {}),
    "hold": ("POST", {"json": {"reason": "mine"}}),
    "license": ("POST", {"json": {"operation": "register", "token": "t" * 20}}),
    "": ("PATCH", {"json": {"tags": {"team": "a"}, "idle_detection_enabled": False}}),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_erases_no_field_of_a_newer_version(plane: TestPlane, command: str) -> None:
    before = await newer_worker(plane)
    method, options = COMMANDS[command]
    response = await plane.ask(method, f"/api/workers/{before['id']}/{command}".rstrip("/"), **options)
    assert response.status_code in (200, 202), response.text
    after = await stored(plane, WORKERS, before["id"])
    assert after["version"] == before["version"] + 1
    assert lost(before, after) == []
    assert any(condition["type"] == "Frozen" and condition["added_by_newer"] for condition in after["conditions"])
    assert json.loads(response.content)["added_by_newer"] == ADDED["added_by_newer"]


async def test_a_report_of_a_controller_erases_no_field_of_a_newer_version(plane: TestPlane) -> None:
    before = await newer_worker(plane)
    await plane.report(before, "STOPPED", private_ip="10.0.0.9")
    assert lost(before, await stored(plane, WORKERS, before["id"])) == []


async def test_a_lablet_keeps_the_fields_of_a_newer_version(plane: TestPlane) -> None:
    before = await newer_lablet(plane)
    assert (await plane.ask("POST", f"/api/lablets/{before['id']}/terminate")).status_code == 202
    after = await stored(plane, LABLETS, before["id"])
    assert after["status"] == "TERMINATED"
    assert lost(before, after) == []


async def test_templates_leaderships_settings_and_the_fleet_keep_the_fields_of_a_newer_version(
    plane: TestPlane,
) -> None:
    store = plane.services.context.store
    await plane.running()
    await plane.ask("POST", "/api/fleet/hold", role=Role.ADMIN, json={"reason": "once"})
    await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json={"idle": {"idle_detection_interval": 100}})
    for kind, record_id in (
        (TEMPLATES, "small"),
        (LEADERSHIPS, "worker-controller"),
        (FLEET, "fleet"),
        (SETTINGS, "fleet"),
    ):
        found = await store.get(kind, record_id)
        assert found is not None
        body = {**json.loads(found.body), **ADDED}
        fields: dict[str, Any] = {"enabled": True} if kind is TEMPLATES else {}
        await store.commit([Put(kind, record_id, json.dumps(body).encode(), found.revision, fields)])
    template = (await plane.ask("GET", "/api/worker-templates/small")).json()
    del template["added_by_newer"]
    changed = {**template, "description": "changed"}
    assert (await plane.ask("PUT", "/api/worker-templates/small", role=Role.ADMIN, json=changed)).status_code == 200
    await plane.ask("POST", "/api/worker-templates/small/disable", role=Role.ADMIN)
    term = {"term": 5, "startup_sweep_done": True}
    assert (await plane.ask("POST", "/api/internal/leadership", role=Role.CONTROLLER, json=term)).status_code == 200
    await plane.ask("POST", "/api/fleet/release", role=Role.ADMIN)
    patch = {"idle": {"idle_detection_interval": 200}}
    assert (await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json=patch)).status_code == 200
    for kind, record_id in (
        (TEMPLATES, "small"),
        (LEADERSHIPS, "worker-controller"),
        (FLEET, "fleet"),
        (SETTINGS, "fleet"),
    ):
        assert (await stored(plane, kind, record_id)).get("added_by_newer"), kind.name


def test_allocations_and_conditions_keep_what_a_newer_version_added() -> None:
    taken = Allocation.model_validate({"lablets": 1, "gpus": 2})
    needs = LabletRequirements()
    assert with_lablet(taken, needs).model_extra == without_lablet(taken, needs).model_extra == {"gpus": 2}
    worker = Worker.model_validate_json(
        json.dumps(
            {
                "id": "w-1", "name": "alpha", "template_name": None, "aws_region": "eu-west-1",
                "status_since": NOW.isoformat(), "created_at": NOW.isoformat(), "updated_at": NOW.isoformat(),
                "conditions": [{"type": "Frozen", "status": "Melting", "since": NOW.isoformat()}],
            }
        )
    )  # fmt: skip
    after = with_condition(worker.conditions, ConditionType.IDLE, ConditionStatus.TRUE, now=NOW)
    assert [condition.type for condition in after] == ["Idle", "Frozen"]


# Words

WORDS = [
    {"status": "HIBERNATING"},
    {"desired_status": "HIBERNATED"},
    {"lost_instance_policy": "resurrect"},
    {"license_status": "lending"},
    {"origin": "cloned"},
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: next(iter(words)))
async def test_a_word_of_a_newer_version_is_no_error_in_the_api(plane: TestPlane, words: dict[str, str]) -> None:
    await plane.running("other")
    worker = await newer_worker(plane, **words)
    (name, word), prefix = next(iter(words.items())), f"/api/workers/{worker['id']}"
    for path in ("", "/history", "/explain", "/metrics"):
        response = await plane.ask("GET", f"{prefix}{path}")
        assert response.status_code == 200, (path, response.text)
    for path in ("/api/workers", "/api/workers?exclude_statuses=TERMINATED", "/api/plan", "/api/fleet", "/api/system"):
        response = await plane.ask("GET", path)
        assert response.status_code == 200, (path, response.text)
    listed = (await plane.ask("GET", "/api/workers?exclude_statuses=TERMINATED")).json()["items"]
    assert [each[name] for each in listed if each["id"] == worker["id"]] == [word]
    held = await plane.ask("POST", f"{prefix}/hold", json={"reason": "look at it"})
    assert held.status_code == 202, held.text
    assert (await stored(plane, WORKERS, worker["id"]))[name] == word


async def test_no_status_is_written_over_one_of_a_newer_version(plane: TestPlane) -> None:
    worker = await newer_worker(plane, status="HIBERNATING")
    update = {"status": "STOPPED", "version": worker["version"], "reason": "seen"}
    path = f"/api/internal/workers/{worker['id']}/status"
    response = await plane.ask("POST", path, role=Role.CONTROLLER, json=update)
    assert (response.status_code, response.json()["code"]) == (409, "illegal_transition")
    assert "none that this version of LCM knows" in response.json()["detail"]


async def test_a_request_with_an_unknown_word_is_still_refused(plane: TestPlane) -> None:
    await newer_worker(plane, status="HIBERNATING")
    assert (await plane.ask("GET", "/api/workers?status=HIBERNATING")).status_code == 422
    worker = await plane.running("other")
    update = {"status": "HIBERNATING", "version": worker["version"], "reason": "seen"}
    path = f"/api/internal/workers/{worker['id']}/status"
    assert (await plane.ask("POST", path, role=Role.CONTROLLER, json=update)).status_code == 422


@pytest.mark.parametrize(
    "words", [{"status": "ARCHIVING"}, {"lost_worker_policy": "clone"}, {"ending": "ARCHIVED"}], ids=str
)
async def test_a_word_of_a_newer_version_in_a_lablet_is_no_error(plane: TestPlane, words: dict[str, str]) -> None:
    lablet = await newer_lablet(plane, **words)
    for path in (f"/api/lablets/{lablet['id']}", f"/api/lablets/{lablet['id']}/history", "/api/lablets", "/api/fleet"):
        response = await plane.ask("GET", path)
        assert response.status_code == 200, (path, response.text)
    assert Lablet.model_validate(lablet).unknown_words


async def test_a_setting_with_a_word_of_a_newer_version_does_not_stop_the_others(plane: TestPlane) -> None:
    store = plane.services.context.store
    body = {"discovery": {"drift_policy": "ask", "discovery_interval": 99}, "alerts": {"mail": True}}
    await store.commit([Put(SETTINGS, "fleet", json.dumps(body).encode(), None)])
    settings = (await plane.ask("GET", "/api/settings")).json()
    assert (settings["discovery"]["drift_policy"], settings["discovery"]["discovery_interval"]) == ("restore", 99)
    patch = {"discovery": {"discovery_interval": 98}}
    assert (await plane.ask("PATCH", "/api/settings", role=Role.ADMIN, json=patch)).status_code == 200
    assert await stored(plane, SETTINGS, "fleet") == {
        "discovery": {"drift_policy": "ask", "discovery_interval": 98},
        "alerts": {"mail": True},
        "idle": {},
        "scaling": {},
        "maintenance": {},
    }


def test_the_same_word_is_the_same_member_and_is_not_listed() -> None:
    first, second = WorkerStatus.carry("HIBERNATING"), WorkerStatus.carry("HIBERNATING")
    assert first is second
    assert not first.is_known
    assert first not in list(WorkerStatus)
    with pytest.raises(ValueError, match="HIBERNATING"):
        WorkerStatus("HIBERNATING")


# Pages, the command line and controllers


@pytest.mark.parametrize("words", [*WORDS, {}], ids=str)
async def test_pages_show_a_worker_of_a_newer_version(plane: TestPlane, words: dict[str, str]) -> None:
    worker = await newer_worker(plane, **words)
    visitor = await signed_in(plane, Role.ADMIN)
    for path in ("/", "/fleet", f"/workers/{worker['id']}", "/activity", "/system", "/settings", "/templates"):
        page = await visitor.page(path)
        assert "alpha" in page or not path.startswith(("/workers", "/fleet")), path
    parts = ["now", "timeline", "confirm/stop", "confirm/terminate", "edit", "license/register"]
    for part in parts:
        await visitor.part(f"/workers/{worker['id']}/{part}")
    await visitor.part(f"/fleet/rows?ids={worker['id']}")
    await visitor.part(f"/fleet/confirm?action=stop&ids={worker['id']}")
    await visitor.part("/fleet/summary")


@pytest.mark.parametrize("words", [{"status": "ARCHIVING"}, {"lost_worker_policy": "clone"}, {}], ids=str)
async def test_pages_show_a_lablet_of_a_newer_version(plane: TestPlane, words: dict[str, str]) -> None:
    lablet = await newer_lablet(plane, **words)
    visitor = await signed_in(plane, Role.ADMIN)
    for path in ("/lablets", f"/lablets/{lablet['id']}"):
        assert lablet["name"] in await visitor.page(path)
    for part in ("now", "timeline", "confirm-end"):
        await visitor.part(f"/lablets/{lablet['id']}/{part}")


@pytest.mark.parametrize("words", [*WORDS, {}], ids=str)
async def test_the_command_line_shows_a_worker_of_a_newer_version(
    plane: TestPlane, words: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    body = await newer_worker(plane, **words)
    worker = Worker.model_validate(body)
    printer = Printer()
    printer.items([worker], worker_columns(NOW), lambda each: each.name, "none")
    show_worker(printer, worker)
    explained = (await plane.ask("GET", f"/api/workers/{worker.id}/explain")).json()
    show_explanation(printer, worker.name, Explanation.model_validate(explained))
    shown = capsys.readouterr().out
    assert all(word in shown for name, word in words.items() if name in ("status", "desired_status"))


@pytest.mark.parametrize("words", [*WORDS[:-1], {"pending_license_operation": "lend"}], ids=str)
def test_the_worker_controller_skips_a_record_of_a_newer_version_and_says_so(words: dict[str, str]) -> None:
    facts: dict[str, Any] = dict(words)
    if "pending_license_operation" in facts:
        facts = {"pending_license_operation": {"operation": "lend", "requested_at": NOW, "requested_by": "anna"}}
    worker = a_worker(**{"status": "RUNNING", "instance_id": "i-1", **facts})
    decision = decide(worker, Observation(InstanceObservation(Visibility.NOT_OBSERVED)), Policy(), NOW)
    assert (decision.outcome, decision.actions) == (Outcome.SKIP, ())
    assert decision.rule == "newer_record.skip"
    assert f"does not know {next(iter(words))} {next(iter(words.values()))}" in decision.reason
