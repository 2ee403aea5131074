"""The routes of the simulated server: differences between versions and access rights. No sockets are used."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from lcm.cml.simulator.http.app import make_simulator_app
from lcm.cml.simulator.state.license import NODE_FEATURE
from lcm.cml.simulator.state.sessions import CMLAccount
from lcm.cml.simulator.state.topology import parse_topology
from lcm.cml.simulator.state.world import SimulatorSettings, World

VERSIONS = ("2.7", "2.8", "2.9", "2.10")


@dataclass
class Browser:
    """A client that is logged in."""

    world: World
    client: httpx.AsyncClient

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        response = await self.client.request(method, f"/api/v0{path}", json=body)
        return response.status_code, response.json() if response.content else None

    async def get(self, path: str) -> Any:
        status, response = await self.ask("GET", path)
        assert status == 200, response
        return response

    async def text(self, path: str) -> str:
        response = await self.client.get(f"/api/v0{path}")
        assert response.status_code == 200, response.text
        return response.text


async def browse(version: str = "2.9", username: str = "admin") -> Browser:
    world = World(SimulatorSettings(version=version, boot_seconds=0))
    world.power_on()
    world.sessions.accounts["student"] = CMLAccount("student", "simulated", admin=False)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=make_simulator_app(world)), base_url="https://cml")
    response = await client.post("/api/v0/authenticate", json={"username": username, "password": "simulated"})
    client.headers["authorization"] = f"Bearer {response.json()}"
    return Browser(world, client)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_session_check_path_depends_on_the_version(version: str) -> None:
    browser = await browse(version)
    found = {name: (await browser.ask("GET", f"/{name}"))[0] for name in ("authok", "authentication")}
    newer = version == "2.10"
    assert found == {"authok": 404 if newer else 200, "authentication": 200 if newer else 404}


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_telemetry_opt_in_format_depends_on_the_version(version: str) -> None:
    browser = await browse(version)
    newer = version == "2.10"
    assert (await browser.get("/telemetry"))["opt_in"] == ("accepted" if newer else True)
    assert (await browser.ask("PUT", "/telemetry", {"opt_in": "DECLINED" if newer else False}))[0] == 204
    assert (await browser.get("/telemetry"))["opt_in"] == ("declined" if newer else False)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_diagnostics_paths_depend_on_the_version(version: str) -> None:
    browser = await browse(version)
    by_category = version in ("2.9", "2.10")
    assert (await browser.ask("GET", "/diagnostics"))[0] == (404 if by_category else 200)
    status, response = await browser.ask("GET", "/diagnostics/licensing")
    assert (status, response.get("quota")) == ((200, 20) if by_category else (404, None))
    assert (await browser.ask("GET", "/diagnostics/weather"))[0] == 404


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_newer_versions_report_features(version: str) -> None:
    assert ("features" in await (await browse(version)).get("/system_information")) is (version == "2.10")


async def test_diagnostics_cover_startup_and_labs() -> None:
    browser = await browse()
    lab = browser.world.start_user_lab("student")
    assert (await browser.get("/diagnostics/startup_scheduler"))["system_ready"] is True
    assert (await browser.get("/diagnostics/labs"))[lab.id] == {"state": "STARTED", "nodes": 2}


async def test_only_public_paths_need_no_token() -> None:
    browser = await browse()
    del browser.client.headers["authorization"]
    for path in ("/system_information", "/system/maintenance_mode"):
        assert (await browser.ask("GET", path))[0] == 200
    for path in ("/labs", "/licensing", "/system_stats", "/users", "/nowhere"):
        status, response = await browser.ask("GET", path)
        assert (status, response["code"]) == (401, 401)


async def test_extended_login_and_logout_of_all_sessions() -> None:
    browser = await browse()
    account = {"username": "admin", "password": "simulated"}
    _, response = await browser.ask("POST", "/auth_extended", account)
    assert (response["username"], response["admin"], response["error"]) == ("admin", True, None)
    assert await browser.ask("DELETE", "/logout") == (200, True)
    assert (await browser.ask("GET", "/labs"))[0] == 200
    assert await browser.ask("DELETE", "/logout?clear_all_sessions=true") == (200, True)
    assert (await browser.ask("GET", "/labs"))[0] == 401


async def test_errors_have_a_code_and_a_description() -> None:
    browser = await browse()
    for method, path, body, code in (
        ("GET", "/nowhere", None, 404),
        ("GET", "/labs/x", None, 404),
        ("POST", "/labs", {}, 405),
        ("POST", "/authenticate", [], 400),
        ("POST", "/licensing/registration", {"token": 3}, 400),
    ):
        status, response = await browser.ask(method, path, body)
        assert (status, response["code"]) == (code, code)
        assert response["description"]
    broken = await browser.client.post("/api/v0/licensing/registration", content=b"{")
    assert broken.status_code == 400
    foreign = await browser.client.post("/api/v0/import", content=b"\xff\xfe")
    assert foreign.status_code == 400


async def test_a_user_without_admin_rights_sees_only_own_labs() -> None:
    browser = await browse(username="student")
    others = browser.world.start_user_lab("teacher")
    own = browser.world.start_user_lab("student")
    assert await browser.get("/labs?show_all=true") == [own.id]
    assert (await browser.ask("GET", f"/labs/{others.id}"))[0] == 403
    assert (await browser.ask("PUT", f"/labs/{others.id}/stop"))[0] == 403
    assert (await browser.ask("GET", "/diagnostics/labs"))[0] == 403
    assert (await browser.ask("DELETE", "/licensing/deregistration"))[0] == 403


async def test_an_admin_sees_all_labs_only_with_show_all() -> None:
    browser = await browse()
    others = browser.world.start_user_lab("teacher")
    assert await browser.get("/labs") == []
    assert await browser.get("/labs?show_all=true") == [others.id]
    assert list((await browser.get("/populate_lab_tiles"))["lab_tiles"]) == [others.id]
    users = {user["username"]: user["labs"] for user in await browser.get("/users")}
    assert users["teacher"] == [others.id]


@pytest.mark.parametrize("version", VERSIONS)
async def test_operations_on_single_nodes(version: str) -> None:
    browser = await browse(version)
    lab = browser.world.start_user_lab("student")
    ids = await browser.get(f"/labs/{lab.id}/nodes")
    node = f"/labs/{lab.id}/nodes/{ids[1]}"
    assert await browser.get(f"{node}/state") == {"state": "QUEUED", "progress": "Not running"}
    assert await browser.get(f"{node}/check_if_converged") is False
    await asyncio.sleep(20)
    assert await browser.get(f"{node}/state") == {"state": "BOOTED", "progress": "Booted"}
    details = await browser.get(node)
    assert ("compute_id" in details, "operational" in details) == (
        (False, True) if version == "2.10" else (True, False)
    )
    assert (await browser.ask("PUT", f"{node}/wipe_disks"))[0] == 400
    for verb, state in (("state/stop", "STOPPED"), ("wipe_disks", "DEFINED_ON_CORE"), ("state/start", "BOOTED")):
        assert await browser.ask("PUT", f"{node}/{verb}") == (204, None)
        await asyncio.sleep(20)
        assert (await browser.get(f"{node}/state"))["state"] == state
    assert (await browser.ask("GET", f"/labs/{lab.id}/nodes/none/state"))[0] == 404
    assert [event["element_id"] for event in await browser.get(f"/labs/{lab.id}/events")][:2] == ids
    names = {event["event"] for event in await browser.get(f"/labs/{lab.id}/events")}
    assert names == ({"ADD", "STATE_CHANGED"} if version == "2.9" else {"CREATED", "state"})


async def test_license_settings_can_be_changed() -> None:
    browser = await browse()
    transport = {"ssms": "https://satellite.example", "proxy": {"server": "proxy.example", "port": 8080}}
    assert (await browser.ask("PUT", "/licensing/transport", transport))[0] == 204
    assert (await browser.ask("PUT", "/licensing/product_license", "CML_Personal"))[0] == 204
    assert (await browser.ask("PATCH", "/licensing/features", [{"id": NODE_FEATURE, "count": 40}]))[0] == 204
    assert (await browser.ask("PATCH", "/licensing/features", {NODE_FEATURE: 40}))[0] == 204, "both forms are sent"
    license_state = await browser.get("/licensing")
    assert license_state["transport"]["ssms"] == "https://satellite.example"
    assert license_state["product_license"] == {"active": "CML_Personal", "is_enterprise": False}
    assert license_state["features"][1]["in_use"] == 40
    assert (await browser.get("/diagnostics/licensing"))["quota"] == 60
    assert (await browser.ask("PUT", "/licensing/registration/renew"))[0] == 400
    await browser.ask("POST", "/licensing/registration", {"token": "GoodToken"})
    await asyncio.sleep(9)
    for what in ("registration", "authorization"):
        assert (await browser.ask("PUT", f"/licensing/{what}/renew"))[0] == 204
    assert (await browser.ask("PUT", "/licensing/transport", transport))[0] == 400


async def test_node_and_image_definitions_are_listed() -> None:
    browser = await browse()
    definitions = {entry["id"] for entry in await browser.get("/node_definitions")}
    assert {entry["node_definition_id"] for entry in await browser.get("/image_definitions")} < definitions
    for entry in await browser.get("/node_definitions"):  # the columns of virlutils' `cml definitions nodes ls`
        assert entry["ui"]["label"]
        assert entry["general"]["description"]
        assert entry["device"]["interfaces"]["physical"]
        assert entry["sim"]["linux_native"].keys() >= {"ram", "cpus"}
    columns = {"id", "node_definition_id", "label", "description", "ram", "cpus", "boot_disk_size"}
    assert all(entry.keys() >= columns for entry in await browser.get("/image_definitions"))
    assert (await browser.get("/system/external_connectors"))[0]["label"] == "NAT"
    assert (await browser.get("/system/compute_hosts"))[0]["is_controller"] is True


async def test_a_lab_is_downloaded_as_it_was_and_can_be_imported_again() -> None:
    """virlutils' `cml up`, `use`, `save` and `extract` keep a copy of the lab."""
    browser = await browse()
    lab = browser.world.start_user_lab("admin")
    await asyncio.sleep(20)
    text = await browser.text(f"/labs/{lab.id}/download")
    again = parse_topology(text, browser.world.profile.schema, None)
    assert (again.title, [node.label for node in again.nodes]) == (lab.plan.title, ["sw", "host"])
    assert len(again.links) == len(lab.plan.links)
    switch, host = await browser.get(f"/labs/{lab.id}/nodes")
    assert (await browser.ask("PUT", f"/labs/{lab.id}/nodes/{switch}/extract_configuration"))[0] == 400
    assert (await browser.ask("PUT", f"/labs/{lab.id}/nodes/{host}/extract_configuration"))[0] == 200


async def test_a_lab_is_a_testbed_for_pyats() -> None:
    """virlutils' `cml generate pyats`."""
    browser = await browse()
    lab = browser.world.start_user_lab("admin")
    testbed = yaml.safe_load(await browser.text(f"/labs/{lab.id}/pyats_testbed"))
    assert testbed["testbed"]["name"] == lab.plan.title
    assert list(testbed["devices"]) == ["terminal_server", "host"]


async def test_users_and_groups_are_listed() -> None:
    """virlutils' `cml users ls` and `cml groups ls`."""
    browser = await browse()
    assert await browser.get("/groups") == []
    user, *_ = await browser.get("/users")
    assert user.keys() >= {"id", "username", "admin", "fullname", "email", "groups", "labs"}
