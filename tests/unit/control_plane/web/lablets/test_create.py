"""Creating lablets with a placement preview, and the Definitions page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lcm.model.access import Role
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

EVIL = "<script>alert(1)</script>"
DEFINITION_FORM = {
    "name": "bgp",
    "version": "2",
    "description": "two systems",
    "topology": TOPOLOGY.replace("\n", "\r\n"),
    "cpu_cores": "0.5",
    "memory_gb": "2",
    "storage_gb": "4",
    "nodes": "3",
    "license": "on",
    "cml_version": ">=2.6, <3",
    "node_definitions": "iosv, csr1000v",
    "ports": "SSH_PORT HTTP_PORT",
    "time_to_live_minutes": "90",
}


@pytest.fixture
async def world(plane: TestPlane) -> LabletWorld:
    return await LabletWorld(plane).open()


async def test_the_newest_version_is_chosen_and_no_disabled_one_is_offered(world: LabletWorld) -> None:
    for version in ("1", "2", "3"):
        await world.define(version=version)
    await world.plane.ask("POST", "/api/lablet-definitions/ospf/3/disable", role=Role.ADMIN)
    visitor = await signed_in(world.plane, Role.OPERATOR)
    dialog = await visitor.part("/lablets/new")
    assert re.findall(r'<option value="(ospf@\d)"( selected)?>', dialog) == [("ospf@2", " selected"), ("ospf@1", "")]
    assert 'name="owner" id="f-owner" value="operator"' in dialog
    assert '<option value="ospf@1" selected>' in await visitor.part("/lablets/new?definition=ospf%401")


async def test_without_definitions_the_dialog_says_where_to_begin(world: LabletWorld) -> None:
    dialog = await (await signed_in(world.plane, Role.OPERATOR)).part("/lablets/new")
    assert 'href="/definitions"' in dialog
    assert "Create the lablet" not in dialog


async def test_a_preview_shows_the_worker_or_the_launch(world: LabletWorld) -> None:
    await world.define()
    visitor = await signed_in(world.plane, Role.OPERATOR)
    launched = await visitor.part("/lablets/new/preview?definition=ospf%401")
    assert 'data-outcome="launch"' in launched
    assert "an hour more" in launched
    await world.plane.create("coming", desired_status="STOPPED")
    worker = await world.worker()
    placed = await visitor.part("/lablets/new/preview?definition=ospf%401&aws_region=")
    assert 'data-outcome="place"' in placed
    assert "1 matching worker<" in placed
    assert "alpha, score" in placed
    assert "1 rejected worker<" in placed
    assert "coming" in placed
    assert "No additional cost." in placed
    assert (await world.plane.ask("GET", "/api/lablets")).json()["items"] == []
    assert (await world.plane.ask("GET", f"/api/workers/{worker['id']}")).json()["version"] == worker["version"]


async def test_a_preview_of_an_invalid_form_says_why(world: LabletWorld) -> None:
    await world.define()
    visitor = await signed_in(world.plane, Role.OPERATOR)
    path = "/lablets/new/preview?definition=ospf"
    assert "time to live minutes: must be a number" in await visitor.part(f"{path}&time_to_live_minutes=long")
    assert "is not in the future" in await visitor.part(f"{path}&ends_at=2020-01-01T10:00")
    assert "there is no definition rip" in await visitor.part("/lablets/new/preview?definition=rip")
    assert "not configured" in await visitor.part(f"{path}&aws_region=mars-1")
    assert EVIL not in await visitor.part(f"{path}&name={EVIL}")


async def test_a_lablet_is_created(world: LabletWorld) -> None:
    await world.define()
    visitor = await signed_in(world.plane, Role.OPERATOR)
    fields = {
        "definition": "ospf@1",
        "name": "first",
        "owner": "anna",
        "aws_region": "us-east-1",
        "time_to_live_minutes": "90",
        "starts_at": "2999-01-01T09:00",
        "ends_at": "2999-01-01T17:00",
        "lost_worker_policy": "fail",
    }
    response = await visitor.send("/lablets/new", fields)
    assert response.status_code == 200, response.text
    assert response.headers["HX-Trigger"] == "lcm:done"
    (made,) = (await world.plane.ask("GET", "/api/lablets")).json()["items"]
    assert f'href="/lablets/{made["id"]}"' in response.text
    assert {name: made[name] for name in ("definition", "name", "aws_region", "lost_worker_policy")} == {
        name: fields[name] for name in ("definition", "name", "aws_region", "lost_worker_policy")
    }
    assert (made["owner"], made["owner_name"]) == ("", "anna")  # a name that somebody typed proves nothing
    assert (made["starts_at"], made["ends_at"]) == ("2999-01-01T09:00:00Z", "2999-01-01T17:00:00Z")
    assert made["time_to_live_minutes"] == 90
    plain = await visitor.send("/lablets/new", {"definition": "ospf@1"})
    assert plain.status_code == 200, plain.text


@pytest.mark.parametrize(
    ("wrong", "field", "status"),
    [
        ({"name": "no blanks"}, "name", 422),
        ({"name": "taken"}, "name", 409),
        ({"time_to_live_minutes": "-1"}, "time_to_live_minutes", 422),
        ({"ends_at": "tomorrow"}, "ends_at", 422),
        ({"ends_at": "2020-01-01T10:00"}, "ends_at", 422),
        ({"aws_region": "mars-1"}, "aws_region", 422),
        ({"definition": "rip@1"}, "definition", 404),
        ({"definition": ""}, "definition", 422),
    ],
)
async def test_problems_are_shown_at_their_fields_and_input_is_kept(
    world: LabletWorld, wrong: dict[str, str], field: str, status: int
) -> None:
    await world.define()
    await world.make("taken")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    fields = {"definition": "ospf@1", "owner": f"anna {EVIL}", "lost_worker_policy": "fail", **wrong}
    response = await visitor.send("/lablets/new", fields)
    assert response.status_code == status, response.text
    assert f'id="f-{field}-problem"' in response.text
    assert re.search(rf'id="f-{field}"[^>]* aria-invalid="true" aria-describedby="f-{field}-problem"', response.text)
    assert 'value="anna &lt;script&gt;' in response.text
    assert EVIL not in response.text
    assert '<option value="fail" selected>' in response.text
    assert len((await world.plane.ask("GET", "/api/lablets")).json()["items"]) == 1


async def test_definitions_are_listed_with_their_requirements(world: LabletWorld) -> None:
    await world.define("ospf", "1", description=EVIL, time_to_live_minutes=240)
    await world.define("ospf", "2", requirements={"cpu_cores": 2, "memory_gb": 4, "nodes": 3, "ports": ["SSH"]})
    await world.define("bgp", "1.0+x")
    await world.make("first", "ospf@1")
    page = await (await signed_in(world.plane, Role.VIEWER)).page("/definitions")
    assert re.findall(r'<tr id="d-([^"]+)"', page) == ["bgp@1.0+x", "ospf@2", "ospf@1"]
    assert EVIL not in page
    assert "2 CPU, 4 GB memory, 1 GB disk, 3 nodes, license, 1 port" in page
    assert page.count("newest") == 2
    assert 'href="/lablets?definition=ospf%401"' in page
    assert "/definitions/bgp/1.0%2Bx/topology" in page
    for word in ("New version", "New definition", "Disable"):
        assert word not in page
    visitor = await signed_in(world.plane, Role.VIEWER)
    assert re.findall(r'<tr id="d-([^"]+)"', await visitor.part("/definitions?q=bg")) == ["bgp@1.0+x"]
    assert "nodes:" in await visitor.part("/definitions/bgp/1.0%2Bx/topology")
    assert "No matching definitions" in await visitor.page("/definitions?q=no-such-name")


async def test_a_topology_is_shown_as_it_was_written(world: LabletWorld) -> None:
    await world.define(topology=f"nodes:\n- label: '{EVIL}'\n")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    for path in ("/definitions/ospf/1/topology", "/definitions/new?like=ospf%401"):
        part = await visitor.part(path)
        assert "nodes:\n- label: &#39;&lt;script&gt;" in part
        assert EVIL not in part


async def test_a_version_is_created_from_a_form(world: LabletWorld) -> None:
    visitor = await signed_in(world.plane, Role.OPERATOR)
    assert "New definition" in await visitor.page("/definitions")
    response = await visitor.send("/definitions/save", DEFINITION_FORM)
    assert response.status_code == 200, response.text
    made = (await world.plane.ask("GET", "/api/lablet-definitions/bgp/2")).json()
    assert made["topology"] == TOPOLOGY
    assert made["time_to_live_minutes"] == 90
    assert made["requirements"] == {
        "cpu_cores": 0.5,
        "memory_gb": 2.0,
        "storage_gb": 4.0,
        "nodes": 3,
        "license": True,
        "cml_version": ">=2.6,<3",
        "node_definitions": ["iosv", "csr1000v"],
        "ports": ["SSH_PORT", "HTTP_PORT"],
    }
    again = await visitor.send("/definitions/save", DEFINITION_FORM)
    assert "already exists with the same content" in again.text
    copy = await visitor.part("/definitions/new?like=bgp%402")
    assert 'id="f-version" value=""' in copy
    assert 'value="SSH_PORT, HTTP_PORT"' in copy


@pytest.mark.parametrize(
    ("wrong", "field", "status"),
    [
        ({"name": ""}, "name", 422),
        ({"version": ""}, "version", 422),
        ({"description": "another"}, "version", 409),
        ({"version": "3", "topology": ""}, "topology", 422),
        ({"version": "3", "topology": "nodes: [\r\n"}, "topology", 422),
        ({"version": "3", "topology": "nodes:\r\n- label: ${OTHER}\r\n"}, "topology", 422),
        ({"version": "3", "cpu_cores": "two"}, "cpu_cores", 422),
        ({"version": "3", "nodes": ""}, "nodes", 422),
        ({"version": "3", "ports": "ssh"}, "ports", 422),
        ({"version": "3", "ports": "SSH SSH"}, "ports", 422),
        ({"version": "3", "cml_version": "new"}, "cml_version", 422),
        ({"version": "3", "time_to_live_minutes": "0"}, "time_to_live_minutes", 422),
    ],
)
async def test_problems_of_a_version_are_shown_at_their_fields(
    world: LabletWorld, wrong: dict[str, str], field: str, status: int
) -> None:
    visitor = await signed_in(world.plane, Role.OPERATOR)
    assert (await visitor.send("/definitions/save", DEFINITION_FORM)).status_code == 200
    response = await visitor.send("/definitions/save", {**DEFINITION_FORM, **wrong})
    assert response.status_code == status, response.text
    assert re.search(rf'id="f-{field}-problem">[^<]+<', response.text), response.text
    typed = {**DEFINITION_FORM, **wrong}
    for name in ("name", "memory_gb", "node_definitions"):
        assert f'id="f-{name}" value="{typed[name]}"' in response.text
    assert typed["topology"].replace("\r\n", "\n") in response.text
    assert len((await world.plane.ask("GET", "/api/lablet-definitions")).json()["items"]) == 1


async def test_an_admin_disables_and_enables_a_version(world: LabletWorld) -> None:
    await world.define()
    visitor = await signed_in(world.plane, Role.ADMIN)
    assert "Disable" in await visitor.page("/definitions")
    assert (await visitor.send("/definitions/ospf/1/disable")).status_code == 200
    page = await visitor.page("/definitions")
    assert "Enable" in page
    assert "newest" not in page
    assert (await visitor.send("/definitions/ospf/1/enable")).status_code == 200
    assert (await world.plane.ask("GET", "/api/lablet-definitions/ospf/1")).json()["enabled"]
    assert (await visitor.send("/definitions/ospf/9/enable")).status_code == 404
    assert (await visitor.send("/definitions/ospf/1/delete")).status_code == 422
