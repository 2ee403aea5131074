"""Adopting an imported worker over the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind
from lcm.model.lablet.placement import check_adopted, check_ready
from lcm.model.lablet.scheduling.capacity import is_arriving
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.status import LicenseStatus
from tests.support.records.workers import NOW, a_worker
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.records.unit_of_work import Transaction
    from tests.support.virtual.control_plane import TestPlane


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def found(plane: TestPlane, **facts: Any) -> dict[str, Any]:
    body = {"instance_id": "i-0abc1230", "aws_region": "eu-west-1", "status": "RUNNING", **facts}
    response = await plane.ask("POST", "/api/internal/workers/import", role=Role.CONTROLLER, json=body)
    assert response.status_code in (200, 201), response.text
    worker: dict[str, Any] = response.json()
    return worker


async def adopt(plane: TestPlane, worker: dict[str, Any], status: int = 202, **body: Any) -> dict[str, Any]:
    path = f"/api/workers/{worker['id']}/adopt"
    response = await plane.ask("POST", path, json={"schedulable": True, **body})
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_an_adopted_worker_has_the_template_that_a_person_names(plane: TestPlane) -> None:
    worker = await found(plane, instance_type="x1.huge", cpu_cores=64, memory_gb=512)
    refused = await adopt(plane, worker, 422)
    assert refused["detail"].startswith("template_name: required")
    assert (await adopt(plane, worker, 422, template_name="none-such"))["detail"].startswith(
        "template_name: there is no"
    )
    bad_token = await adopt(plane, worker, 422, template_name="large", license_token="not a token")
    assert "license_token: a license token may contain only letters" in bad_token["detail"]
    adopted = await adopt(plane, worker, template_name="large", idle_detection_enabled=True)
    assert (adopted["template_name"], adopted["schedulable"], adopted["idle_detection_enabled"]) == (
        "large",
        True,
        True,
    )
    assert (adopted["capacity"]["cpu_cores"], adopted["capacity"]["memory_gb"]) == (64, 512)
    assert adopted["generation"] == worker["generation"] + 1
    audit = (await plane.ask("GET", f"/api/audit?subject={worker['id']}")).json()["items"]
    assert audit[0]["action"] == "adopted"


async def test_a_worker_without_a_template_can_be_adopted_without_lablets(plane: TestPlane) -> None:
    adopted = await adopt(plane, await found(plane), schedulable=False)
    assert (adopted["template_name"], adopted["adopted_at"] is not None) == (None, True)


async def test_a_token_given_with_the_adoption_is_stored_as_a_secret(plane: TestPlane) -> None:
    worker = await found(plane, instance_type="t3.large")
    adopted = await adopt(plane, worker, license_token="CANARY-token")
    assert adopted["has_license_token"]
    assert "CANARY" not in str(adopted)
    path = f"/api/internal/workers/{worker['id']}/license-token"
    assert "CANARY" in (await plane.ask("GET", path, role=Role.CONTROLLER)).text


async def test_only_an_imported_worker_that_is_not_ending_is_adopted(plane: TestPlane) -> None:
    assert "created by LCM" in (await adopt(plane, await plane.create(), 409))["detail"]
    worker = await found(plane, instance_type="t3.large")
    await plane.ask("POST", f"/api/workers/{worker['id']}/terminate")
    assert "terminated" in (await adopt(plane, worker, 409))["detail"]


async def test_a_repeated_import_adds_only_what_was_unknown(plane: TestPlane) -> None:
    worker = await found(plane, instance_type="t3.large")
    assert worker["capacity"]["memory_gb"] == 8
    again = await found(plane, cpu_cores=4, memory_gb=16.0)
    assert (again["id"], again["instance_cpu_cores"]) == (worker["id"], 4)
    assert (again["capacity"]["cpu_cores"], again["capacity"]["storage_gb"]) == (4, 200)
    assert (await found(plane, cpu_cores=9, memory_gb=1.0))["version"] == again["version"]


def test_no_lablet_is_placed_on_a_worker_that_nobody_adopted() -> None:
    responds = with_condition((), ConditionType.CML_READY, ConditionStatus.TRUE, now=NOW)
    worker = a_worker(status="RUNNING", instance_id="i-1", conditions=responds, origin="imported")
    assert worker.ready
    assert check_ready(worker) == "it was imported and is not adopted: lcm workers adopt alpha"
    assert not is_arriving(worker, NOW)
    adopted = worker.model_copy(update={"adopted_at": NOW})
    assert check_ready(adopted) is None
    assert check_adopted(adopted.model_copy(update={"schedulable": False})) == "it is marked as not schedulable"


async def test_the_dialog_says_that_a_license_is_leaked_where_nobody_could_sign_in_to_deregister_it(
    plane: TestPlane,
) -> None:
    """worker-lifecycle.md#terminating: an instance is started for its license only if there are CML credentials."""
    path = f"/api/workers/{(await found(plane, status='STOPPED'))['id']}"

    async def change(**body: Any) -> dict[str, Any]:
        response = await plane.ask("PATCH", path, json=body)
        assert response.status_code == 200, response.text
        changed: dict[str, Any] = response.json()
        return changed

    async def license_of_termination() -> tuple[str, str, str]:
        response = await plane.ask("POST", f"{path}/preview", json={"action": "terminate"})
        preview = response.json()
        return preview["losses"]["License"], preview["effect"], preview["takes"]

    async def register(tx: Transaction) -> None:
        worker = await tx.worker(path.rpartition("/")[2])
        tx.save_without_event(worker.model_copy(update={"license_status": LicenseStatus.REGISTERED}))

    assert (await change(cml_username="root", cml_password="secret"))["has_cml_credentials"] is True
    await plane.services.context.unit_of_work.run(Actor(kind=ActorKind.SYSTEM, name="test"), register)
    license_, effect, takes = await license_of_termination()
    assert "started once more to deregister it" in license_
    assert "it will be started once more before that" in effect
    assert "its license is deregistered first" in takes
    assert (await change(cml_username=None, cml_password=None))["has_cml_credentials"] is False
    license_, effect, takes = await license_of_termination()
    assert "LCM has no credentials for the CML of this worker and cannot deregister it" in license_
    assert license_.endswith("; Cisco will still count it (leaked)")
    assert "there are no CML credentials to deregister its license; it will be reported as leaked" in effect
    assert "deregistered first" not in takes
