"""Commands from pages: a preview first, then the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.workers.action_preview import WORKER_ACTIONS, available_actions, preview_action
from lcm.model.access import Role
from lcm.model.worker.conditions import Condition
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.record import Hold
from lcm.model.worker.template import Capacity
from tests.support.records.workers import NOW, a_worker
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

CML_READY = Condition.model_validate({"type": "CmlReady", "status": "True", "since": NOW})
_LICENSED_ENDING: dict[str, object] = {"desired_status": "TERMINATED", "license_status": "registered"}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"status": "RUNNING"}, ["stop", "drain", "hold", "terminate"]),
        ({"status": "STOPPED", "desired_status": "STOPPED"}, ["start", "hold", "terminate"]),
        ({"status": "DRAINING", "desired_status": "STOPPED"}, ["start", "stop", "cancel-drain", "hold", "terminate"]),
        ({"status": "FAILED"}, ["retry", "hold", "terminate"]),
        (
            {"status": "RUNNING", "cml_certificate_presented": "b0" * 32},
            ["stop", "drain", "trust", "hold", "terminate"],
        ),
        ({"status": "TERMINATED", "desired_status": "TERMINATED"}, []),
        ({"status": "TERMINATING", "desired_status": "TERMINATED"}, ["hold"]),
        ({**_LICENSED_ENDING, "status": "TERMINATING"}, ["hold", "leak-license"]),
        ({**_LICENSED_ENDING, "status": "RUNNING"}, ["hold", "leak-license"]),
        ({**_LICENSED_ENDING, "status": "TERMINATING", "release_license": False}, ["hold"]),
        (
            {"status": "RUNNING", "hold": Hold(reason="x", by="ann", since=NOW)},
            ["stop", "drain", "hold", "release", "terminate"],
        ),
    ],
)
def test_actions_depend_on_the_status(facts: dict[str, object], expected: list[str]) -> None:
    assert available_actions(a_worker(**facts), NOW) == expected


def test_costs_and_savings() -> None:
    disk = Capacity(cpu_cores=2, memory_gb=4, storage_gb=730, max_nodes=5)  # 0.08 dollars an hour
    facts: dict[str, object] = {"cost_per_hour_usd": 3.9641, "instance_id": "i-1", "capacity": disk}
    running = a_worker(status="RUNNING", conditions=(CML_READY,), **facts)
    stop = preview_action(running, "stop", NOW)
    assert (stop.cost, stop.cost_change_usd) == ("It will save $3.96 an hour; its disks still cost $0.0800.", -3.9641)
    assert preview_action(running, "terminate", NOW).cost == "It will save $4.04 an hour."
    stopped = a_worker(status="STOPPED", desired_status="STOPPED", **facts)
    start = preview_action(stopped, "start", NOW)
    assert (start.cost, start.cost_change_usd) == ("It will cost $4.04 an hour.", 3.9641)
    assert preview_action(stopped, "terminate", NOW).cost == "It will save $0.0800 an hour."
    imported = a_worker(status="RUNNING", instance_id="i-1")
    assert "the price of this worker is not known" in preview_action(imported, "stop", NOW).cost
    assert preview_action(running, "hold", NOW).cost == ""
    presenting = running.model_copy(update={"cml_certificate_presented": "b0" * 32})
    preview = preview_action(presenting, "trust", NOW)
    assert preview.effect == f"Passwords will be sent to the server with the certificate {'b0' * 32}."
    assert preview.cost == ""


def test_a_termination_shows_what_is_lost() -> None:
    worker = a_worker(status="RUNNING", instance_id="i-1", license_status="registered", cost_per_hour_usd=1.0)
    sample = MetricsSample(
        worker_id="w-1", instance_id="i-1", collected_at=NOW, labs_count=2, nodes_count=9, running_nodes=5
    )
    losses = dict(preview_action(worker, "terminate", NOW, sample).losses)
    assert losses["Running now"] == "5 of 9 nodes, in 2 labs"
    assert "deregistered first" in losses["License"]
    assert "i-1" in losses["Instance"]
    assert dict(preview_action(worker, "stop", NOW, sample).losses) == {"Running now": "5 of 9 nodes, in 2 labs"}


def test_a_refusal_is_shown_instead_of_a_preview() -> None:
    found = preview_action(a_worker(status="FAILED"), "start", NOW)
    assert not found.changes
    assert "retry" in found.refusal


async def test_an_action_is_previewed_and_then_performed(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    dialog = await visitor.part(f"/workers/{worker['id']}/confirm/stop")
    assert "Instance i-alpha will be stopped." in dialog
    assert "save $0.0208 an hour" in dialog
    assert f'value="{worker["version"]}"' in dialog
    response = await visitor.send(
        f"/workers/{worker['id']}/do/stop", {"version": str(worker["version"]), "reason": "lunch <b>"}
    )
    assert response.status_code == 200, response.text
    assert response.headers["hx-trigger"] == "lcm:done"
    after = (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()
    assert (after["desired_status"], after["pause_reason"]) == ("STOPPED", "lunch <b>")


async def test_a_worker_that_changed_meanwhile_is_not_changed(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    await plane.ask("POST", f"/api/workers/{worker['id']}/hold", json={"reason": "mine"})
    response = await visitor.send(
        f"/workers/{worker['id']}/do/terminate", {"version": str(worker["version"]), "confirm": "alpha"}
    )
    assert response.status_code == 412
    assert 'class="toast bad"' in response.text
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["desired_status"] == "RUNNING"


async def licensed(plane: TestPlane, name: str) -> dict[str, Any]:
    """A running worker with a registered license."""
    worker = await plane.running(name, license_token="a-license-token")
    path = f"/api/internal/workers/{worker['id']}/license-status"
    response = await plane.ask("POST", path, role=Role.CONTROLLER, json={"status": "registered"})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_license_is_given_up_while_the_termination_waits_for_it(plane: TestPlane) -> None:
    worker = await licensed(plane, "alpha")
    visitor, place = await signed_in(plane, Role.OPERATOR), f"/workers/{worker['id']}"
    # It terminates nothing by itself: the name is typed to terminate a worker.
    assert "act-leak-license" not in await visitor.page(place)
    refused = await visitor.send(f"{place}/do/leak-license")
    assert (refused.status_code, "only a worker that is being terminated" in refused.text) == (409, True)
    targets = {"targets": f"{worker['id']}:{worker['version']}", "confirm": "1"}
    assert "0 of 1" in (await visitor.send("/fleet/do/leak-license", targets)).text
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["desired_status"] == "RUNNING"

    ending = (await plane.ask("POST", f"/api/workers/{worker['id']}/terminate")).json()
    assert ending["release_license"] is True
    page = await visitor.page(place)
    assert "Give up the license…" in page
    assert "act-terminate" not in page
    dialog = await visitor.part(f"{place}/confirm/leak-license")
    assert "Give up the license of alpha?" in dialog
    assert "Cisco will still count it" in dialog
    assert "data-expected" not in dialog
    response = await visitor.send(f"{place}/do/leak-license", {"version": str(ending["version"]), "reason": "hurry"})
    assert "license given up" in response.text
    after = (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()
    assert (after["desired_status"], after["release_license"]) == ("TERMINATED", False)
    assert "act-leak-license" not in await visitor.page(place)


async def test_licenses_are_given_up_with_several_workers(plane: TestPlane) -> None:
    one, two = await licensed(plane, "one"), await plane.running("two")
    visitor = await signed_in(plane, Role.OPERATOR)
    assert "leak_license" not in await visitor.part(f"/fleet/confirm?action=terminate&ids={two['id']}")
    assert "leak_license" not in await visitor.part(f"/fleet/confirm?action=stop&ids={one['id']}")
    dialog = await visitor.part(f"/fleet/confirm?action=terminate&ids={one['id']},{two['id']}")
    assert "Do not deregister the license" in dialog
    targets = f"{one['id']}:{one['version']},{two['id']}:{two['version']}"
    response = await visitor.send(
        "/fleet/do/terminate", {"targets": targets, "confirm": "2", "leak_license": "yes", "reason": ""}
    )
    assert "2 of 2" in response.text
    assert (await plane.ask("GET", f"/api/workers/{one['id']}")).json()["release_license"] is False


@pytest.mark.parametrize("proof", ["", "0" * 64])
async def test_a_change_requires_the_csrf_token(plane: TestPlane, proof: str) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.ADMIN)
    visitor.csrf = ""
    response = await visitor.send(f"/workers/{worker['id']}/do/terminate", csrf=proof)
    assert response.status_code == 403
    assert (await visitor.send("/fleet/do-hold", {"reason": "x"}, csrf=proof)).status_code == 403
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["desired_status"] == "RUNNING"


async def test_a_bulk_action_calls_a_worker_that_was_never_launched_as_lists_do(plane: TestPlane) -> None:
    worker = await plane.create("asleep", desired_status="STOPPED")
    visitor = await signed_in(plane, Role.OPERATOR)
    for action, effect in (("terminate", "It will become TERMINATED"), ("stop", "No change needed.")):
        dialog = await visitor.part(f"/fleet/confirm?action={action}&ids={worker['id']}")
        assert f"<strong>asleep</strong> (NOT LAUNCHED): {effect}" in dialog


async def test_a_bulk_action_changes_each_worker_on_its_own(plane: TestPlane) -> None:
    one, two = await plane.running("one"), await plane.running("two")
    failed = await plane.report(await plane.create("three"), "FAILED")
    visitor = await signed_in(plane, Role.OPERATOR)
    ids = ",".join(each["id"] for each in (one, two, failed))
    dialog = await visitor.part(f"/fleet/confirm?action=stop&ids={ids}")
    assert "Stop 2 workers?" in dialog
    assert "saves $0.0416 an hour" in dialog
    assert "retry or terminate it" in dialog
    await plane.ask("POST", f"/api/workers/{two['id']}/hold", json={"reason": "meanwhile"})
    targets = f"{one['id']}:{one['version']},{two['id']}:{two['version']}"
    refused = await visitor.send("/fleet/do/stop", {"targets": targets, "confirm": "3"})
    assert refused.status_code == 422
    assert "confirm: type 2, the number of records, to confirm" in refused.text
    response = await visitor.send("/fleet/do/stop", {"targets": targets, "confirm": "2"})
    assert "1 of 2" in response.text
    assert "version" in response.text
    assert (await plane.ask("GET", f"/api/workers/{one['id']}")).json()["desired_status"] == "STOPPED"
    assert (await plane.ask("GET", f"/api/workers/{two['id']}")).json()["desired_status"] == "RUNNING"


async def test_a_start_can_count_for_some_hours(plane: TestPlane) -> None:
    """calendar.md#overrides"""
    worker = await plane.create("alpha", desired_status="STOPPED")
    visitor = await signed_in(plane, Role.OPERATOR)
    path = f"/workers/{worker['id']}"
    assert "Policies may change that" in await visitor.part(f"{path}/confirm/start")
    await visitor.send(
        f"{path}/do/start", {"version": str(worker["version"]), "lasting": "8h", "reason": "<b>demo</b>"}
    )
    changed = (await plane.ask("GET", f"/api{path}")).json()
    assert changed["override"]["desired"] == "RUNNING"
    page = await visitor.part(f"{path}/now")
    assert 'id="override"' in page
    assert "&lt;b&gt;demo&lt;/b&gt;" in page


async def test_an_empty_selection_is_reported(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.OPERATOR)
    assert "select at least one" in await visitor.part("/fleet/confirm?action=stop", 422)
    assert "select an action" in await visitor.part("/fleet/confirm?action=explode&ids=w-1", 422)


async def test_the_fleet_is_held_and_released_from_any_page(plane: TestPlane) -> None:
    await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    assert "No worker will be launched, started, stopped" in await visitor.part("/fleet/confirm-hold")
    refused = await visitor.send("/fleet/do-hold", {"reason": "  "})
    assert refused.status_code == 422
    assert "enter 1 to 500 characters" in refused.text
    response = await visitor.send("/fleet/do-hold", {"reason": "<i>storm</i>", "lasting": "1h"})
    assert response.status_code == 200
    page = await visitor.page("/")
    assert "The fleet is on hold" in page
    assert "&lt;i&gt;storm&lt;/i&gt;" in page
    assert "Release the fleet" in page
    assert 'id="hold-fleet"' not in page
    assert "storm" in await visitor.part("/fleet/confirm-release")
    await visitor.send("/fleet/do-release")
    assert "The fleet is on hold" not in await visitor.page("/")


async def test_a_hold_of_many_needs_a_reason_and_holds_none_without(plane: TestPlane) -> None:
    one = await plane.running("one")
    visitor = await signed_in(plane, Role.OPERATOR)
    response = await visitor.send("/fleet/do/hold", {"targets": f"{one['id']}:{one['version']}"})
    assert response.status_code == 422
    assert (await plane.ask("GET", f"/api/workers/{one['id']}")).json()["hold"] is None


async def test_only_an_admin_closes_a_breaker(plane: TestPlane) -> None:
    report = {"region": "eu-west-1", "open": True, "reason": "9 of 9 vanished", "affected": ["w-1"]}
    await plane.ask("POST", "/api/internal/fleet/breaker", role=Role.CONTROLLER, json=report)
    operator, admin = await signed_in(plane, Role.OPERATOR), await signed_in(plane, Role.ADMIN)
    assert "Close it" not in await operator.page("/")
    assert (await operator.send("/fleet/do-breaker", {"region": "eu-west-1"})).status_code == 403
    assert "9 of 9 vanished" in await admin.part("/fleet/confirm-breaker?region=eu-west-1")
    assert (await admin.send("/fleet/do-breaker", {"region": "eu-west-1"})).status_code == 200
    assert "Breaker open" not in await admin.page("/")


def test_every_action_has_a_text() -> None:
    for action in WORKER_ACTIONS:
        worker = a_worker(status="DRAINING", desired_status="STOPPED", hold=Hold(reason="x", by="ann", since=NOW))
        found = preview_action(worker, action, NOW)
        assert found.refusal or found.effect
