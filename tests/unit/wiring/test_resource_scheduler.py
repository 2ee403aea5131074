"""Assembly of a resource scheduler: settings reach their components, and missing ones are reported."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.client.client import Client
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.coordination.memory.client import MemoryCoordination
from lcm.model.access import Role
from lcm.model.lablet.ports import PortRange
from lcm.settings import SettingsError, load
from lcm.wiring.controllers import ControllerRuntime, ControllerRuntimeSettings
from lcm.wiring.resource_scheduler import (
    ResourceSchedulerComponentSettings,
    ResourceSchedulerProcessSettings,
    make_resource_scheduler,
    scheduler_config,
)
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.control_plane import serving_plane


class Together(ControllerRuntimeSettings, ResourceSchedulerComponentSettings):
    """Settings of a process that also runs other components."""


def test_settings_reach_the_config() -> None:
    settings = load(
        ResourceSchedulerComponentSettings,
        env={"LABLET_PORT_RANGE": "100-200", "LABLET_LEAD_TIME": "60", "SCALE_UP_COOLDOWN_SECONDS": "5"},
    ).settings
    assert scheduler_config(settings) == SchedulerConfig(PortRange(100, 200), lead_time=60, scale_up_cooldown=5)
    assert scheduler_config(load(ResourceSchedulerComponentSettings, env={}).settings) == SchedulerConfig()


@pytest.mark.parametrize(("token", "word"), [(None, "must be set"), ("a b", "printable")])
def test_a_process_needs_a_token(token: str | None, word: str) -> None:
    env = {} if token is None else {"LCM_CONTROLLER_TOKEN": token}
    with pytest.raises(SettingsError, match=f"LCM_CONTROLLER_TOKEN.*{word}"):
        load(ResourceSchedulerProcessSettings, env=env)


async def test_an_assembled_scheduler_leads_and_stops() -> None:
    async with serving_plane() as plane:
        wire = httpx.ASGITransport(plane.app)
        registry = CollectorRegistry()
        control = Client("http://lcm.test", plane.tokens[Role.CONTROLLER], wire=HttpxTransport(wire), registry=registry)
        settings = load(Together, env={"COORDINATION": "memory"}).settings
        made = make_resource_scheduler(
            ControllerRuntime(MemoryCoordination(), settings), settings, control, registry=registry
        )
        assert made.scheduler.election.election_key == "/lcm/resource-scheduler/leader"
        assert made.scheduler.watch.prefix == "/instances/"
        assert made.about["service"] == "resource-scheduler"
        for service in made.services:
            await service.start()
        await asyncio.sleep(10)
        assert made.scheduler.is_leader
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made.app), base_url="http://s") as client:
            assert (await client.get("/ready")).json() == {"ready": True, "reasons": [], "degraded": []}
            health = (await client.get("/health")).json()
        assert (health["is_leader"], health["lablets_pending"], health["lablets_placed"]) == (True, 0, 0)
        for service in reversed(made.services):
            await service.stop()
        assert not made.scheduler.is_leader
