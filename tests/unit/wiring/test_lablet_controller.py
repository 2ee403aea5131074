"""Assembly of the lablet controller: settings, components and HTTP routes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.client.client import Client
from lcm.cml.types import Credentials
from lcm.controllers.lablet.deps import LabletPolicy
from lcm.coordination.memory.client import MemoryCoordination
from lcm.model.access import Role
from lcm.settings import SettingsError, load
from lcm.wiring.connections import CmlConnection, connect_cml
from lcm.wiring.controllers import ControllerRuntime
from lcm.wiring.lablet_controller import (
    LabletControllerAssembly,
    LabletControllerProcessSettings,
    controller_config,
    make_lablet_controller,
)
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import serving_plane
from tests.support.virtual.fake_cml import FakeCml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.control_plane import TestPlane

TOKEN = "controller-token-for-tests-0123456789"


def load_settings(**env: str) -> LabletControllerProcessSettings:
    return load(LabletControllerProcessSettings, env={"LCM_CONTROLLER_TOKEN": TOKEN, **env}).settings


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


@pytest.fixture
async def made(plane: TestPlane) -> AsyncIterator[LabletControllerAssembly]:
    """A leading lablet controller with a control plane in this process."""
    settings, registry = load_settings(), CollectorRegistry()
    wire = httpx.ASGITransport(plane.app, raise_app_exceptions=False)
    control = Client(
        "http://lcm.test", plane.tokens[Role.CONTROLLER], wire=HttpxTransport(wire), registry=CollectorRegistry()
    )
    cml = connect_cml(settings, registry)
    runtime = ControllerRuntime(MemoryCoordination(), settings)
    made = make_lablet_controller(runtime, settings, control, cml, registry=registry)
    for service in made.services:
        await service.start()
    yield made
    for service in reversed(made.services):
        await service.stop()


async def ask(made: LabletControllerAssembly, method: str, path: str, token: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(made.app), base_url="http://lcm.test") as client:
        return await client.request(method, path, headers=headers)


def test_without_a_token_it_does_not_start() -> None:
    with pytest.raises(SettingsError) as caught:
        load(LabletControllerProcessSettings, env={})
    assert str(caught.value).startswith("LCM_CONTROLLER_TOKEN (not set): must be set")


def test_every_setting_reaches_the_controller() -> None:
    rules = controller_config(
        load_settings(
            LABLET_START_TIMEOUT="1",
            LABLET_STOP_TIMEOUT="2",
            LABLET_WORKER_TIMEOUT="3",
            LABLET_SWEEP_INTERVAL="4",
            CML_DEFAULT_USERNAME="lcm",
            CML_DEFAULT_PASSWORD="pw",
            CML_USE_PRIVATE_ADDRESS="true",
        )
    )
    assert rules.account == Credentials("lcm", "pw")
    assert rules.policy == LabletPolicy(start_timeout=1, stop_timeout=2, worker_timeout=3)
    assert (rules.sweep_interval, rules.private_addresses) == (4, True)
    assert controller_config(load_settings()).policy == LabletPolicy()
    assert controller_config(load_settings()).sweep_interval == 600.0


def test_it_listens_on_a_port_of_its_own() -> None:
    assert load_settings().lablet_controller_port == 8082
    assert load_settings(LABLET_CONTROLLER_PORT="9000").lablet_controller_port == 9000


async def test_without_a_session_it_is_not_made(plane: TestPlane) -> None:
    settings = load_settings()
    control = Client(
        "http://lcm.test", TOKEN, wire=HttpxTransport(httpx.ASGITransport(plane.app)), registry=CollectorRegistry()
    )
    with pytest.raises(ValueError, match="session"):
        make_lablet_controller(
            ControllerRuntime(MemoryCoordination(), settings),
            settings,
            control,
            CmlConnection(FakeCml(), control.aclose),
            registry=CollectorRegistry(),
        )
    await control.aclose()


async def test_it_is_elected_under_its_own_key_and_watches_lablets(made: LabletControllerAssembly) -> None:
    """controllers.md, lablets.md: its own election key, watching /instances/."""
    assert made.reconciler.election.election_key == "/lcm/lablet-controller/leader"
    assert made.reconciler.watch.prefix == "/instances/"


async def test_its_admin_routes_are_those_of_every_controller(made: LabletControllerAssembly, plane: TestPlane) -> None:
    """controllers.md#admin-routes."""
    health = (await ask(made, "GET", "/health")).json()
    assert health["lablets_managed"] == 0
    assert (await ask(made, "GET", "/info")).json()["service"] == "lablet-controller"
    assert "lcm_lablet_controller_labs_imported_count 0.0" in (await ask(made, "GET", "/metrics")).text
    assert (await ask(made, "GET", "/admin/stats")).status_code == 401
    assert (await ask(made, "GET", "/admin/stats", plane.tokens[Role.OPERATOR])).status_code == 403
    stats = (await ask(made, "GET", "/admin/stats", plane.tokens[Role.ADMIN])).json()
    assert stats["labs_imported_count"] == 0
    assert stats["lablets"] == {"INSTANTIATING": 0, "RUNNING": 0, "SCHEDULED": 0, "STOPPING": 0}
    assert set(stats["strays"]) == {
        "labs_without_marker",
        "labs_of_unknown_lablets",
        "labs_not_recorded",
        "labs_left_behind",
    }
    await asyncio.sleep(5)
    pushed = await ask(made, "POST", "/admin/trigger-reconcile", plane.tokens[Role.ADMIN])
    assert pushed.json() == {"triggered": "all"}
    assert (await ask(made, "GET", "/health")).json()["is_leader"] is True
